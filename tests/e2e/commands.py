"""commands.py BUILD_DIR [--slow] [PAGE...] - runs the blocks of commands of README.md and docs/, as they stand there.

A block is one that is indented by four spaces. What it is follows from its first line, comments left out (kind_of):
    shell        begins with the name of a program (PROGRAM), or with "$ ": then lines without that prompt are output
    redis        begins with a command of the server (server/commands.def): each line is sent to the server that the page
                 started last, and an error fails it; a line that begins with a blank goes on with the one before
    python       has the mark for that
    transcript   begins with "> ": a page of them is replayed by another test (pages.sh, transcripts tested by), or each has a mark
    unknown      looks like a command (LOOKS) of a program that is not known here: it fails until it is marked, or known
All else, such as code, replies and forms of commands ("VADD key ..."), is not looked at.

The blocks of a page are run in their order by one bash in an empty folder with links to quire, quire-server and
quire-gateway, which are on the PATH as well. A command that does not exit with 0 fails the page. A server or gateway in
the foreground is left running, and the next command waits for its port. commands.sh starts this in a network of its
own, so that ports are those of the page, and ends with it whatever a page has started. What is not run needs a reason:
a mark without one, and a block that is neither run nor marked, fail.

Marks, as comments of HTML in the lines before a block:
    not run: REASON              for this block
    page not run: REASON         for the page, anywhere in it; that programs and scripts of its blocks exist is checked
    slow: REASON                 run with --slow (./check --full)
    tested by: FILE              another test runs this block
    run with: A -> B             B in the place of A, for instance fewer rows
    run before: LINES            a comment of several lines, which are run at that place
    run as python: LINES         the block is Python; it is run with these lines behind it
    transcripts tested by: FILE  of the page, anywhere in it: its transcripts are replayed by that test
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from pages import indented

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = re.compile(r"(?:[A-Z_]+=\S+ +)*(?:\./|tools/|tests/(?:\S*/)?|build/\S+/|DIR/bin/)?(?:quire(?:-\w+)?|quickstart|check|site|"
                     r"redis-cli|redis-benchmark|cmake|ctest|curl|cc|gcc|python3|npm|node|docker|podman|apt-get|systemctl|"
                     r"install|cp|rsync|openssl|export|git|chrt|perf|awk|tail|seq|printf|sed|grep|tar|ln|ls|scp|sudo|kill|rm|mkdir|cat|echo|until|for|cd|setup-debian\.sh|"
                     r"cluster-demo|nice|systemd-(?:sysusers|tmpfiles)|"
                     r"[a-z_]+\.(?:sh|py)|bench_\w+|test_\w+)(?= |$)")
SERVER = re.compile(r"(?:\./)?quire-(server|gateway)\b(?!.*--help)")
COMMANDS = set(re.findall(r'^COMMAND_ROW\("([a-z.]+)"', (ROOT / "server/commands.def").read_text(encoding="utf-8"), re.M))
FORM = re.compile(r"[A-Z.]+ (key|cache)\b")  # of a command: words in small letters stand for what is given
# a path of the repository, or a word in small letters with an option behind it
LOOKS = re.compile(r"(?:[A-Z_]+=\S+ +)*(?:(?:\./|tools/|tests/|build/)[\w./-]+(?= |$)|[a-z][\w.-]*(?: +\S+)*? +--?[a-z])")
MARK = re.compile(r"<!-- (page not run|not run|slow|transcripts tested by|tested by|run with|run before|run as python)"
                  r": *(.*?) *-->", re.S)
SECONDS = 720 if os.environ.get("QUIRE_SANITIZE_FLAGS") else 240  # for a page
failed = 0


def say(name, wrong=None, seen=""):
    global failed
    print("ok - " + name if wrong is None else "FAIL - %s: %s" % (name, wrong), flush=True)
    if wrong is not None:
        failed += 1
        for line in seen.splitlines()[-12:]:
            print("    | " + line, flush=True)


def kind_of(block):
    """What a block is: shell, redis, transcript, unknown; None: no commands."""
    begins = next((line for line in block if line.strip() and not line.startswith("#")), "")
    word = begins.split(" ")[0]
    if begins.startswith("> "):
        return "transcript"
    if begins.startswith("$ ") or PROGRAM.match(begins):
        return "shell"
    if word.isupper() and word.lower() in COMMANDS and not FORM.match(begins):
        return "redis"
    return "unknown" if LOOKS.match(begins) else None


def blocks_of(text):
    """(number of the line, kind, lines, marks) of each block of commands, marks being those between it and the text before."""
    lines = text.split("\n")
    comments = [(text.count("\n", 0, m.start()) + 1, text.count("\n", 0, m.end()) + 1, m) for m in MARK.finditer(text)]
    for _, first, block in indented(lines):
        if any(begin <= first <= end for begin, end, _ in comments):
            continue
        kind = kind_of(block)
        marks, at = {}, first - 1
        while at > 0:
            found = next((c for c in comments if c[0] <= at <= c[1]), None)
            if found:
                marks.setdefault(found[2].group(1), []).append(found[2].group(2))
                at = found[0] - 1
            elif not lines[at - 1].strip():
                at -= 1
            else:
                break
        if "run as python" in marks:
            kind, block = "python", block + marks["run as python"][0].strip().split("\n")
        if kind is not None:
            yield first, kind, block, marks


def left_out(kind, marks, of_page, slow):
    """(whether a block is not run, why; "": there is no reason)."""
    if "page not run" in of_page:
        return True, of_page["page not run"]
    if kind == "transcript" and "transcripts tested by" in of_page:
        return True, of_page["transcripts tested by"]
    for mark in ("not run", "tested by", *(() if slow else ("slow",))):
        if mark in marks:
            return True, " ".join(marks[mark])
    return kind in ("transcript", "unknown"), ""


def with_servers(block):
    """The lines as bash runs them: what serves goes to the background, and its port is waited for."""
    out = []
    for line in re.sub(r"\\\n\s*", "", "\n".join(block)).split("\n"):
        plain = re.sub(r"\s+#.*", "", line)
        served = SERVER.match(plain)
        if served:
            option = "listen|port" if served.group(1) == "server" else "listen"
            port = re.search(r"--(?:%s) (?:[\w.]+:)?(\d+)" % option, plain)
            port = port.group(1) if port else "6379" if served.group(1) == "server" else "8080"
            line = re.sub(r"\s*&$", "", plain) + " >>served.log 2>&1 &"
            out += [line, "__listening %s" % port if port != "0" else ":"]
            if served.group(1) == "server":
                out.append("__port=%s" % port)
            if served.group(1) == "gateway" and "--console" not in plain:
                out.append("__cache_ready %s" % port)
        else:
            out.append(line)
    return "\n".join(out) + "\n"


def as_shell(kind, block):
    """The lines of a block as bash runs them."""
    if kind == "redis":
        return "".join("__redis %s\n" % shlex.quote(line) for line in re.sub(r"\n +", " ", "\n".join(block)).split("\n") if line)
    if kind == "python":
        return "/usr/bin/python3 - <<'__END'\n%s\n__END\n" % "\n".join(block)
    if any(line.startswith("$ ") for line in block):
        block = [line[2:] for line in block if line.startswith("$ ")]
    return with_servers(block)


PRELUDE = """
set -o pipefail -E
trap '__status=$?; echo "@@failed $__block status $__status: $BASH_COMMAND"' ERR
redis-cli() { command redis-cli -e "$@"; } # an error of the server is one of the command
__listening() {
    local tries
    for tries in $(seq 400); do
        if (exec 3<>/dev/tcp/127.0.0.1/$1) 2>/dev/null; then return 0; fi
        sleep 0.05
    done
    echo "nothing listens at port $1"; tail -5 served.log
    return 1
}
__redis() { # LINE: sent to the server that was started last
    local said
    said=$(command redis-cli -p "${__port:?the page has started no server}" --no-raw <<<"$1")
    echo "$said"
    [[ $said != *"(error)"* ]]
}
__cache_ready() { # a gateway serves before it has found its server: nobody types a request so fast
    local tries
    for tries in $(seq 100); do
        if [[ $(curl -s http://127.0.0.1:$1/health) == *'"cache":{"ready":true'* ]]; then return 0; fi
        sleep 0.1
    done
}
"""


def check_names(page, first, block):
    """Of a block that is not run: programs of the repository are there."""
    for line in block:
        word = re.match(r"(?:[A-Z_]+=\S+ +)*((?:tools|tests|docs)/[\w./-]+|\./(?:check|quickstart))(?= |$)", line)
        if word and not (ROOT / word.group(1)).exists():
            say("%s, line %d" % (page, first), "there is no %s" % word.group(1))
        bench = re.match(r"(?:\S+ +)*?build/release/(bench_\w+)", line)
        if bench and not re.search(r"\b(?:%s|%s)\b" % (bench.group(1), bench.group(1)[6:]),
                                   (ROOT / "cmake/tests.cmake").read_text()):
            say("%s, line %d" % (page, first), "no target is called %s" % bench.group(1))


def run_page(build, page, slow):
    name = os.path.relpath(page, ROOT)
    text = page.read_text(encoding="utf-8")
    of_page = {m.group(1): m.group(2) for m in MARK.finditer(text) if m.group(1) in ("page not run", "transcripts tested by")}
    script, numbers, left = [PRELUDE], [], 0
    for first, kind, block, marks in blocks_of(text):
        tests = marks.get("tested by", []) + [of_page[m] for m in of_page if m == "transcripts tested by"]
        for test in tests:
            if not (ROOT / test.split(",")[0].split(" ")[0]).exists():
                say("%s, line %d" % (name, first), "there is no %s" % test)
        is_left, reason = left_out(kind, marks, of_page, slow)
        if is_left:
            if not reason:
                say("%s, line %d" % (name, first), "it is not run, and no reason is given: %s" % block[0])
            check_names(name, first, block)
            left += 1
            continue
        commands = as_shell(kind, block)
        for change in marks.get("run with", []):
            old, _, new = change.partition(" -> ")
            if old not in commands:
                say("%s, line %d" % (name, first), "'%s', which is to be replaced, is not in the block" % old)
            commands = commands.replace(old, new)
        before = "".join(text + "\n" for text in reversed(marks.get("run before", [])))
        script.append("__block=%d\n%s%s" % (first, with_servers(before.split("\n")), commands))
        numbers.append(first)
    if not numbers:
        return left
    with tempfile.TemporaryDirectory(prefix="quire-page.") as work:
        for program in ("quire", "quire-server", "quire-gateway"):
            os.symlink(build / program, Path(work) / program)
        environment = dict(os.environ, PATH="%s:%s" % (build, os.environ["PATH"]), REPOSITORY=str(ROOT))
        for variable in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
            environment.pop(variable, None)
        path = Path(work) / ".page.sh"
        path.write_text("".join(script) + "echo @@end\n", encoding="utf-8")
        log = Path(work) / ".page.log"
        with open(log, "wb") as out:
            running = subprocess.Popen(["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "bash", str(path)],
                                       cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT)
            try:
                running.wait(SECONDS)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
        seen = log.read_text(encoding="utf-8", errors="replace")
    bad = dict(re.findall(r"@@failed (\d+) (.*)", seen)[::-1])
    ended = "@@end" in seen
    for number in numbers:
        title = "%s, line %d" % (name, number)
        say(title, bad.get(str(number)), seen.split("@@failed %d " % number)[0].split("@@failed")[-1] if str(number) in bad else "")
    if not ended:
        say(name, "not all of it was run within %d s" % SECONDS, seen)
    return left


def main():
    arguments = [a for a in sys.argv[1:] if a != "--slow"]
    build, slow = Path(arguments[0]).resolve(), "--slow" in sys.argv
    pages = [Path(p).resolve() for p in arguments[1:]] or [ROOT / "README.md", ROOT / "CONTRIBUTING.md",
                                                           *sorted((ROOT / "docs").rglob("*.md"))]
    left = sum(run_page(build, page, slow) for page in pages)
    print("%d blocks were not run: each has its reason in the page" % left)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
