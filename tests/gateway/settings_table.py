#!/usr/bin/env python3
"""settings_table.py BUILD_DIR [--write] - the tables of settings in docs/gateway.md are those of gateway/settings/settings.def,
and what quire-gateway --print-settings prints has the same names and defaults. --write puts them into the page."""
import ast
import json
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PAGE = os.path.join(ROOT, "docs", "gateway.md")
BEGIN, END = "<!-- settings.def -->", "<!-- end of settings.def -->"
SHAPES = {"TEXT": 4, "SECRET": 3, "LIST": 4, "NUMBER": 6, "BYTES": 6, "TIME": 6, "REAL": 6, "BOOL": 4, "CHOICE": 5}


def fields(text):
    """The arguments of a row: texts as texts, numbers as numbers."""
    out = []
    for part in re.findall(r'\s*"(?:[^"\\]|\\.)*"(?:\s*"(?:[^"\\]|\\.)*")*|[^,]+', text):
        part = part.strip()
        if part.startswith('"'):
            out.append("".join(ast.literal_eval(p) for p in re.findall(r'"(?:[^"\\]|\\.)*"', part)))
        elif part:
            out.append(part)
    return out


def number(text):
    return eval(re.sub(r"(?<=[0-9])(ull|ll|u|l)\b", "", text), {"__builtins__": {}})  # arithmetic of a checked-in table


def time(ms):
    for unit, n in (("h", 3600000), ("m", 60000), ("s", 1000)):
        if ms and ms % n == 0 and (ms >= 2 * n or unit == "s"):
            return "%d%s" % (ms // n, unit)
    return "%dms" % ms


def size(n):
    for unit, k in (("gb", 30), ("mb", 20), ("kb", 10)):
        if n and n % (1 << k) == 0:
            return "%d%s" % (n >> k, unit)
    return str(n)


def rows():
    """("part", title) and ("row", name, values, default, help)."""
    text = open(os.path.join(ROOT, "gateway", "settings", "settings.def"), encoding="utf-8").read()
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for kind, inner in re.findall(r"^SETTING_(\w+)\((.*?)\)$", text, flags=re.M | re.S):
        part = fields(inner)
        if kind == "PART":
            yield ("part", part[0])
            continue
        if len(part) != SHAPES[kind]:
            sys.exit("settings.def: %s has %d fields: %r" % (kind, len(part), part))
        name, help = part[1], part[-1]
        shown = {"TEXT": "text", "SECRET": "text, never shown", "LIST": "texts", "BOOL": "true, false"}.get(kind)
        default = "" if kind == "SECRET" else part[2]
        if kind in ("NUMBER", "REAL"):
            shown = "%s to %s" % (part[3], part[4]) if kind == "REAL" else "%d to %d" % (number(part[3]), number(part[4]))
        elif kind in ("TIME", "BYTES"):
            show = time if kind == "TIME" else size
            default, shown = show(number(part[2])), "%s to %s" % (show(number(part[3])), show(number(part[4])))
        elif kind == "CHOICE":
            words = part[3].split("|")
            default, shown = words[int(part[2])], ", ".join(words)
        yield ("row", name, shown, default, help)


def table():
    out = []
    for row in rows():
        if row[0] == "part":
            out += ["", "**%s**" % row[1], "", "| setting | values | default | meaning |", "|---|---|---|---|"]
        else:
            _, name, shown, default, help = row
            out.append("| `%s` | %s | %s | %s |" % (name, shown, "`%s`" % default if default else "",
                                                    help.replace("|", "\\|")))
    return "\n".join(out[1:]) + "\n"


def main():
    failed = 0

    def check(name, right, seen=""):
        nonlocal failed
        print(("ok - " if right else "FAIL - ") + name)
        if not right:
            failed += 1
            print("    | " + str(seen)[:600])

    page = open(PAGE, encoding="utf-8").read()
    before, _, rest = page.partition(BEGIN)
    inside, _, after = rest.partition(END)
    wanted = "\n\n" + table() + "\n"
    if "--write" in sys.argv:
        open(PAGE, "w", encoding="utf-8").write(before + BEGIN + wanted + END + after)
        return
    check("docs/gateway.md has the table of settings.def (settings_table.py BUILD_DIR --write)", inside == wanted)
    program = os.path.join(sys.argv[1], "quire-gateway")
    ran = subprocess.run([program, "--upstream", "http://127.0.0.1:9", "--print-settings"], capture_output=True, text=True,
                         timeout=120, check=False)
    check("--print-settings prints JSON", ran.returncode == 0, ran.stderr)
    printed = json.loads(ran.stdout)
    names = [row[1] for row in rows() if row[0] == "row"]
    check("with the names of the table, and upstreams and routes", sorted(printed) == sorted(names + ["upstreams", "routes"]),
          set(printed) ^ set(names))
    ran = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=120, check=False)
    check("--help names them all", all(name in ran.stdout for name in names), [n for n in names if n not in ran.stdout])
    for row in rows():
        if row[0] == "row":
            _, name, _, default, help = row
            check("%s: --help says what it is" % name, help[:30] in re.sub(r"\s+", " ", ran.stdout), help)
    sys.exit(failed > 0)


main()
