"""commands_itself.py - what commands.py takes for commands, and that it lets none pass without a reason. Started by commands.sh."""
import sys

import commands

failed = 0


def check(name, seen, expected):
    global failed
    print("ok - " + name if seen == expected else "FAIL - %s: %r, expected %r" % (name, seen, expected), flush=True)
    failed += seen != expected


for kind, lines in {
    "shell": ["quire inspect demo-index", "# first\nNAME=1 ./quire-server --dir data", "$ quire top --once\nquire top",
              "tests/rooms.py includes", "tests/bench/search.sh a b", "nice -n -15 quire bench-kernels",
              "systemd-tmpfiles --create", "tools/cluster-demo build/release"],
    "redis": ["VADD films VALUES 3 0 0 1 heat", "FT.AGGREGATE shop \"*\"\n    LIMIT 0 1", "SC.CREATE answers DIM 4",
              'CONFIG SET tenant-limits "acme weight=4"', "HSET film:1 year 1979", "VSIM keys ELE a"],
    "transcript": ["> VADD colours VALUES 3 1 0 0 red\n(integer) 1", "> QUIRE.BACKUP /srv/x\nOK"],
    "unknown": ["wget --quiet http://127.0.0.1/", "./other", "tools/nothing now", "pip install -e ."],
    None: ["VADD key [REDUCE dim] (FP32 vector | VALUES num value ...) element", "SC.GET cache CAT cat", "import redis, struct",
           "ERR EXEC without MULTI", '{"listen": ["127.0.0.1:8080"]}', "user default off", "#include <quire.h>",
           "repl-backlog-size 256mb", "y = u - (2^bits - 1) / 2", "device       processor", "usage: quire VERB"],
}.items():
    for text in lines:
        check("%s: %s" % (kind, text.split("\n")[0]), commands.kind_of(text.split("\n")), kind)

page = """# Page

    quire --version

<!-- not run: it ends the machine -->

    quire-server --die

<!-- not run: -->

    quire inspect nothing

and

    > PING
    PONG

<!-- tested by: tests/e2e/pages.sh -->

    > PING
    PONG

and

    wget --quiet http://127.0.0.1/

<!-- slow: minutes -->

    quire gen --rows 1000000

<!-- run as python:
assert double(2) == 4
-->

    def double(x):
        return 2 * x

```python
def fenced():
    quire --version
```

    code = 1
"""


def seen_of(text, of_page, slow=False):
    return [(first, *commands.left_out(kind, marks, of_page, slow)) for first, kind, _, marks in commands.blocks_of(text)]


check("a page: what is run, and reasons", seen_of(page, {}), [
    (3, False, ""), (7, True, "it ends the machine"), (11, True, ""), (15, True, ""), (20, True, "tests/e2e/pages.sh"),
    (25, True, ""), (29, True, "minutes"), (35, False, "")])
check("a page: Python, and the lines behind it", list(commands.blocks_of(page))[-1][1:3],
      ("python", ["def double(x):", "    return 2 * x", "", "assert double(2) == 4"]))
check("a page: slow ones, too", seen_of(page, {}, True)[-2], (29, False, ""))
check("a page whose transcripts are replayed elsewhere", seen_of(page, {"transcripts tested by": "x"})[3:5],
      [(15, True, "x"), (20, True, "x")])
check("a page that is not run", {reason for _, _, reason in seen_of(page, {"page not run": "why"})}, {"why"})
check("`$ ` and its output", commands.as_shell("shell", ["$ quire --version", "quire 0.1.0"]), "quire --version\n")
check("commands of the server, one of two lines", commands.as_shell("redis", ["VADD a b", "     c 'd'", "VCARD a", ""]),
      "__redis 'VADD a b c '\"'\"'d'\"'\"''\n__redis 'VCARD a'\n")
sys.exit(failed > 0)
