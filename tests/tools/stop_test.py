#!/usr/bin/env python3
"""stop_test.py BUILD_DIR - Ctrl-C in every verb of `quire` that works for long, and in every phase of a build and a fit.

Each run is stopped at a moment: after some seconds, or as soon as its bar shows a phase. It must end with 130 and leave
nothing, after at most STOP_CPU_S of its own processor time: time by the clock would test the machine's other work. A run
that has ended before its moment is begun again with a quarter of the delay.
"""
import itertools
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

STOP_CPU_S = 2.0  # of all threads, of which there are two at most
STOP_WALL_S = 120  # beyond any load: it hangs
build = os.path.abspath(sys.argv[1])
quire = os.path.join(build, "quire")
with open(quire, "rb") as f:
    program = f.read()
THREAD_SANITIZER = b"__tsan_init" in program
if b"__asan_init" in program or THREAD_SANITIZER:
    STOP_CPU_S *= 20
work = tempfile.mkdtemp(prefix="quire-stop-", dir=os.environ.get("TMPDIR", "/tmp"))
passed = failed = 0


def say(ok, name, seen=""):
    global passed, failed
    passed, failed = passed + ok, failed + (not ok)
    print(("ok - " if ok else "FAIL - ") + name + ("" if ok else ": " + str(seen)[-600:]), flush=True)


def cpu_s(pid):
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def reset_signals():
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it


def start(arguments):
    return subprocess.Popen([quire, *arguments, "--progress", "always"], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, preexec_fn=reset_signals)


def wait_for(child, moment):
    """What it has said until the moment; None: it ended before."""
    said, until = b"", time.monotonic() + (moment if not isinstance(moment, str) else STOP_WALL_S)
    while time.monotonic() < until:
        if select.select([child.stderr], [], [], min(0.05, max(0, until - time.monotonic())))[0]:
            data = os.read(child.stderr.fileno(), 65536)
            if not data:
                return None
            said += data
        if isinstance(moment, str) and (b"\r" + moment.encode()) in said:
            return said
    return None if isinstance(moment, str) or child.poll() is not None else said


def stop(name, arguments, moment, number=signal.SIGINT):
    before = sorted(os.listdir(work))
    while True:
        child = start(arguments)
        said = wait_for(child, moment)
        if said is not None:
            break
        child.kill()
        child.wait()
        for entry in set(os.listdir(work)) - set(before):
            path = os.path.join(work, entry)
            shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        if isinstance(moment, str) or moment < 0.02:
            return say(False, "%s runs until %s" % (name, moment), child.returncode)
        moment /= 4
    used = cpu_s(child.pid)
    child.send_signal(number)
    try:
        said += child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
    except KeyboardInterrupt:
        child.kill()
        raise
    child.returncode = os.waitstatus_to_exitcode(status)
    used = usage.ru_utime + usage.ru_stime - used
    # while it only reads, the signal itself ends it; a shell shows both as 130
    ended = child.returncode in (128 + number, -number)
    say(ended and used <= STOP_CPU_S, "%s, stopped %s, ends with %d after %.1f s of processor time" % (
        name, "in " + moment.strip() if isinstance(moment, str) else "after %.2f s" % moment, child.returncode, used),
        said.decode(errors="replace"))
    left = [entry for entry in sorted(os.listdir(work)) if entry not in before]
    say(not left, "%s leaves nothing" % name, left)


def run(*arguments):
    subprocess.run([quire, *arguments], check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)


def make_text(path, lines, seed=1):
    """Lines of words with frequencies as in a language, of more directions than the model's dimensions."""
    draw = random.Random(seed)
    words = ["".join(draw.choice("bcdfghklmnprstvw") + draw.choice("aeiou") for _ in range(draw.randint(1, 4)))
             for _ in range(20000)]
    weights = list(itertools.accumulate(1 / (i + 5) for i in range(len(words))))  # summed once, not for each line
    with open(path, "w") as f:
        for i in range(lines):
            f.write("k%d\t%s\n" % (i, " ".join(draw.choices(words, cum_weights=weights, k=12))))


def second_signal_ends():
    os.mkfifo("pipe.fbin")
    child = subprocess.Popen([quire, "convert", "pipe.fbin", "x.npy"], stderr=subprocess.PIPE,
                             preexec_fn=reset_signals)
    with open("pipe.fbin", "wb", 0) as pipe:
        pipe.write(struct.pack("<II", 1000, 64))
        time.sleep(0.2)
        child.send_signal(signal.SIGINT)
        time.sleep(1)
        say(child.poll() is None, "the first signal waits for the next look")
        child.send_signal(signal.SIGINT)
        say(child.wait(STOP_WALL_S) == -signal.SIGINT, "a second one ends it at once", child.returncode)


def main():
    os.chdir(work)
    run("gen", "--rows", "12000", "--dim", "64", "--queries", "300", "--out", "base")
    run("convert", "base.fbin", "few.fbin", "--limit", "900")  # so few are not calibrated, which takes longest
    run("build", "--base", "few.fbin", "--out", "index")
    make_text("text.tsv", 30000)
    with open("text.tsv") as f, open("less.tsv", "w") as less:
        less.writelines(itertools.islice(f, 10000))
    with open("keys", "w") as f:
        f.writelines("key %d\n" % i for i in range(12000))
    with open("attrs", "w") as f:
        f.writelines('{"n":%d}\n' % i for i in range(12000))
    with open("labels.tsv", "w") as f:
        f.writelines("chat\tanswer%d\trow %d\n" % (i % 50, i) for i in range(12000))

    gen = ["gen", "--rows", "4000000", "--dim", "64", "--threads", "2", "--out", "x"]
    stop("gen", gen, 0.2)
    stop("gen", gen, 1)
    stop("gen-attrs", ["gen-attrs", "--rows", "4000000", "--out", "x"], 0.5)
    stop("truth", ["truth", "--base", "base.fbin", "--queries", "base.fbin", "--threads", "2", "--out", "x"], 0.5)
    stop("search", ["search", "--index", "index", "--queries", "base.fbin", "--repeat", "1000"], 0.5)
    stop("probe", ["probe", ".", "--size", "16M"], 0.7)
    plan = ["plan", "--rows", "1M", "--dim", "64", "--trial-rows", "32768"]
    for phase in ("try indexes of samples ", "probe the device "):
        stop("plan", plan if phase[0] == "t" else [*plan[:-1], "1024"], phase)
    stop("bench-kernels", ["bench-kernels", "--size", "64M"], 0.7)
    stop("cache-eval", ["cache-eval", "labels.tsv", "base.fbin", "--seeds", "1-20", "--delta", "0.02"], 1)
    build_all = ["build", "--base", "base.fbin", "--out", "x", "--threads", "2", "--keys", "keys", "--attrs", "attrs"]
    for phase in ("encode ", "partition ", "graph ", "write keys ", "write attributes ", "write columns ",
                  "write codes ", "write blocks (to calibrate) ", "exact answers (to calibrate) ", "calibrate ",
                  "write blocks "):
        stop("build", build_all, phase)
    for phase in ("cluster ", "replicas ", "write lists ", "exact answers for lists ", "calibrate lists "):
        stop("build of lists", [*build_all, "--index", "spann"], phase)
    stop("build, SIGTERM", build_all, "calibrate ", signal.SIGTERM)
    if subprocess.run([quire, "embed", "fit", "--text", "less.tsv", "--dim", "8", "--out", "model"],
                      stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).returncode == 0:
        fit = ["embed", "fit", "--text", "less.tsv", "--column", "2", "--out", "x"]
        for moment in ("read ", "weigh words ", "decompose ", 1, 2):
            stop("embed fit", fit, moment)
        stop("embed apply", ["embed", "apply", "--model", "model", "--text", "text.tsv", "--out", "x.fbin"], 0.1)
    else:
        print("skip - embed fit: there is no OpenBLAS")

    # two at the same moment are one wish; a second signal ends what never asks (here a pipe that gives nothing)
    if THREAD_SANITIZER:
        print("skip - a second signal: ThreadSanitizer holds handlers back until a read returns")
    else:
        second_signal_ends()
    child = start(build_all)
    wait_for(child, "graph ")
    os.kill(child.pid, signal.SIGSTOP)
    child.send_signal(signal.SIGINT)
    os.kill(child.pid, signal.SIGCONT)
    child.send_signal(signal.SIGTERM)
    child.stderr.read()
    say(child.wait(STOP_WALL_S) == 130, "SIGTERM at the moment of SIGINT is the same wish", child.returncode)
    return failed


try:
    code = main()
finally:
    shutil.rmtree(work, ignore_errors=True)
print("%d passed, %d failed" % (passed, failed))
sys.exit(failed > 0)
