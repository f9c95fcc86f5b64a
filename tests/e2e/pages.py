"""pages.py PAGE - replays every transcript of docs/wire.md against the server at QUIRE_PORT, in the order of the page.

A transcript is an indented block whose lines begin with "> " (a command for redis-cli) or are its reply. A reply must be
what the page shows: numbers within TOLERANCE, "..." for any lines. What depends on chance, time or memory is compared
by its form (LOOSE). Started by pages.sh, which has made the data that the page says.

With QUIRE_HOST=module the port is that of an engine with quire.so: only the commands that the module has are run
(tests/cluster/wire.sh). With QUIRE_HOST=cluster it is that of a node of a cluster of such engines, where redis-cli
follows the slots (tests/cluster/clients.py).
"""
import os
import re
import subprocess
import sys

TOLERANCE = 2e-3
# after these names of a map, or in the replies of these commands, a number is as good as another
LOOSE_FIELDS = {"latency-us", "step-us", "memory-bytes", "codes-scored", "bytes", "vset-uid"}
LOOSE_COMMANDS = ("VRANDMEMBER", "INFO")
# heading -> what the page says in words before its transcript
BEFORE = {
    "Tenants": ["ACL SETUSER bolt on >pw ~docs +@read +@write tenant:bolt"],
    "Transactions": ["FLUSHALL", "SET version 3"],
}
AS_USER = {"Tenants": ["--user", "bolt", "--pass", "pw", "--no-auth-warning"]}
port = os.environ.get("QUIRE_PORT")
is_cluster = os.environ.get("QUIRE_HOST") == "cluster"
is_module = is_cluster or os.environ.get("QUIRE_HOST") == "module"
failed = 0


def indented(lines):
    """(heading, number of the first line, lines without their indentation) of each indented block outside of fences."""
    heading, block, first, fenced = "", [], 0, False
    for number, line in enumerate(lines + ["# end"], 1):
        if line.startswith("```"):
            fenced = not fenced
        if fenced:
            continue
        if line.startswith("    ") or (block and not line.strip()):
            first = first if block else number
            block.append(line[4:])
            continue
        if block:
            yield heading, first, block
        block = []
        if re.match(r"##+ ", line):
            heading = line.lstrip("# ")


def blocks(lines):
    """The same of each transcript."""
    return (found for found in indented(lines) if any(text.startswith("> ") for text in found[2]))


def exchanges(block):
    """(command, reply lines) of a transcript."""
    out = []
    for text in block:
        if text.startswith("> "):
            out.append((text[2:], []))
        elif out and text.strip():
            out[-1][1].append(text.rstrip())
    return out


def ask(commands, options):
    """The replies of commands that are sent on one connection, as redis-cli shows them."""
    done = subprocess.run(["redis-cli", "-p", port, "--no-raw", *(["-c"] if is_cluster else []), *options],
                          input="\n".join(commands) + "\n", capture_output=True, text=True, timeout=60)
    lines = [line.rstrip() for line in done.stdout.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("-> Redirected to slot")]
    return [line for line in lines if not re.match(r"\(\d+\.\d\ds\)$", line)]  # how long a slow one took


def tokens(line):
    return re.findall(r'"(?:[^"\\]|\\.)*"|[^\s"]+', line)


def same_token(shown, seen, loose):
    if shown == seen:
        return True
    if shown.startswith("/") and os.path.basename(shown) == os.path.basename(seen):
        return True  # the folder of the indexes is this test's
    if "\\x" in shown and "\\x" in seen:
        return True  # the bytes of a vector; its numbers are compared where they are shown as such
    try:
        difference = abs(float(shown.strip('"')) - float(seen.strip('"')))
    except ValueError:
        return loose
    return loose or difference <= TOLERANCE


def same_line(shown, seen, loose):
    a, b = tokens(shown), tokens(seen)
    return len(a) == len(b) and all(same_token(x, y, loose) for x, y in zip(a, b))


def compare(command, shown, seen):
    """None, or what differs. "..." stands for any number of lines."""
    if command.startswith("INFO"):
        names = [line.split(":")[0] for line in shown if line != "..."]
        have = [line.split(":")[0] for line in seen]
        missing = [name for name in names if name not in have]
        return "no %s" % missing if missing else None
    at, skipping, field = 0, False, ""
    for line in shown:
        if line.strip() == "...":
            skipping = True
            continue
        loose = command.startswith(LOOSE_COMMANDS) or field in LOOSE_FIELDS
        while skipping and at < len(seen) and not same_line(line, seen[at], loose):
            at += 1
        if at >= len(seen) or not same_line(line, seen[at], loose):
            return "the page has %r, the server %r" % (line, seen[at] if at < len(seen) else "nothing")
        found = re.findall(r'"([a-z-]+)"$', line)
        field = found[0] if found else ""
        at, skipping = at + 1, False
    if at < len(seen) and not skipping:
        return "the server goes on with %r" % seen[at]
    return None


def check(page, heading, number, command, difference):
    global failed
    name = "%s, line %d: %s" % (page, number, command)
    print("ok - " + name if difference is None else "FAIL - %s: %s" % (name, difference), flush=True)
    failed += difference is not None


def is_of_module(command):
    return re.match(r"(V[A-Z]+|(SC|JSON)\.[A-Z.]+)( |$)", command)


def replay(page, heading, first, block):
    if is_module and heading in AS_USER:
        return  # users of the engine are bound to no tenants
    pairs = exchanges(block)
    is_transaction = pairs[0][0] == "MULTI"
    if is_cluster and is_transaction:
        return  # its keys are of different slots
    if is_module and not is_transaction:
        pairs = [pair for pair in pairs if is_of_module(pair[0])]
    if not pairs:
        return
    for command in BEFORE.pop(heading, []):
        ask([command], [])
    options = AS_USER.get(heading, [])
    if is_transaction:  # one connection; what is shown is one reply after the other
        difference = compare("MULTI", [line for _, reply in pairs for line in reply],
                             ask([command for command, _ in pairs], options))
        return check(page, heading, first, "MULTI ... EXEC", difference)
    for command, reply in pairs:
        check(page, heading, first, command, compare(command, reply, ask([command], options)))


if __name__ == "__main__":
    with open(sys.argv[1]) as f:
        wanted = f.read().split("\n")
    for transcript in blocks(wanted):
        replay(os.path.basename(sys.argv[1]), *transcript)
    sys.exit(failed > 0)
