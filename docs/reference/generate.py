#!/usr/bin/env python3
"""generate.py BUILD_DIR [--check] - the reference pages beside it, from what the programs say of themselves.

Settings and options come from --help, commands from COMMAND DOCS and, as there is no text of their arguments in it, from
server/commands.def: each is made from the one table that the program itself reads (server/process/config.def,
gateway/settings/settings.def, the options of each verb, server/commands.def). --check changes nothing and exits with 1
where a page is not what the programs say now, or where a table by hand lacks something: that of settings in operations.md,
and those of quire.so's settings and commands in cluster.md, which are compared with the module's sources, since asking it
takes an engine (ctest -R docs/reference).
"""
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MADE = "\n*Made by `docs/reference/generate.py` from what the program says of itself: change the program, then run it.*\n\n"


def said(program, *words):
    return subprocess.run([program, *words], capture_output=True, text=True, check=True).stdout


def cell(text):
    return text.replace("|", "\\|").replace("<", "&lt;").strip()


def settings(text, title, where, intro):
    """A table of the lines '  --name   help [default]' of a help text."""
    rows, name = [], None
    for line in text.split("\n"):
        found = re.match(r"  --([a-z][a-z0-9-]*)(?:[ ,].*?)?(?:\s{2,}(.*))?$", line)
        if found:
            rows.append([found.group(1), found.group(2) or ""])
        elif rows and re.match(r" {20,}\S", line):
            rows[-1][1] += " " + line.strip()
    out = "# %s\n%s%s\n\n| setting | default | meaning |\n|---|---|---|\n" % (title, MADE, intro)
    for name, text in rows:
        if name in ("help", "version"):
            continue  # these are no settings
        default = re.search(r" \[([^\]]*)\]$", text)
        meaning = text[:default.start()] if default else text
        value = "`%s`" % default.group(1) if default and default.group(1) else ""
        out += "| `%s` | %s | %s |\n" % (name, cell(value), cell(meaning))
    if len(rows) < 10:
        sys.exit("generate.py: only %d settings found in the help of %s" % (len(rows), where))
    return out


def gateway_settings(text):
    """A table for each part of the gateway's help."""
    out = "# Settings of quire-gateway\n%sIn the settings file as names of a JSON object, on the command line as `--NAME VALUE`. What they mean " \
          "together: [gateway.md](../gateway.md). `upstreams` and `routes` are lists of objects, which are described there.\n" % MADE
    n, name, heading = 0, None, ""
    for line in text.split("\n"):
        part, row = re.match(r"([A-Z]\S.*)$", line), re.match(r"  ([a-z][a-z0-9-]+) {2,}(\S.*)$", line)
        values = re.match(r" {20,}\((.*); default (.*)\)$", line)
        if part:
            heading = "\n## %s\n\n| setting | default | values | meaning |\n|---|---|---|---|\n" % line.strip()
        elif row:
            name, meaning = row.groups()
        elif values and name:
            default = "" if values.group(2) == "none" else "`%s`" % values.group(2)
            out += heading + "| `%s` | %s | %s | %s |\n" % (name, cell(default), cell(values.group(1)), cell(meaning))
            name, n, heading = None, n + 1, ""
        elif line.startswith(" " * 20) and name:
            meaning += " " + line.strip()
    if n < 40:
        sys.exit("generate.py: only %d settings found in the help of quire-gateway" % n)
    return out


def command_line(build):
    quire = build / "quire"
    usage = said(quire, "--help")
    verbs = re.findall(r"^  ([a-z][a-z-]*) +\S", usage, re.M)
    out = "# The command line\n%sEach verb's `--help`. What they are for: [README](../../README.md).\n\n" % MADE
    pages = []
    for verb in verbs:
        subs = ["embed fit", "embed apply"] if verb == "embed" else [verb]
        for sub in subs:
            text = said(quire, *sub.split(), "--help")
            pages.append("## quire %s\n\n<!-- not run: the text of --help -->\n\n%s\n" % (
                sub, "".join("    %s\n" % line if line else "\n" for line in text.rstrip().split("\n"))))
    return out + "<!-- not run: the text of --help -->\n\n" + "".join(
        "    %s\n" % line if line else "\n" for line in usage.rstrip().split("\n")) + "\n" + "\n".join(pages)


def command_docs(build):
    """(name, group, since, summary, syntax) of each command and sub-command."""
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "socket"
        server = subprocess.Popen([build / "quire-server", "--port", "0", "--unixsocket", str(path), "--dir", ""],
                                  cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(400):
                if path.exists():
                    break
                time.sleep(0.05)
            import redis
            client = redis.Redis(unix_socket_path=str(path))
            client.set_response_callback("COMMAND", lambda reply, **options: reply)
            docs = client.execute_command("COMMAND", "DOCS")
        finally:
            server.terminate()
            server.wait()

    def pairs(flat):
        return {k.decode() if isinstance(k, bytes) else k: v for k, v in (
            flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2]))}

    def walk(flat):
        for name, entry in pairs(flat).items():
            entry = pairs(entry)
            yield name, entry
            if "subcommands" in entry:
                yield from walk(entry["subcommands"])
    return [(name, entry) for name, entry in walk(docs)]


def syntaxes():
    """The arguments of each command, by its name in lower case, as server/commands.def has them."""
    rows = re.split(r"^COMMAND_ROW\(", (ROOT / "server/commands.def").read_text(encoding="utf-8"), flags=re.M)[1:]
    found = {}
    for row in rows:
        name, _, _, _, syntax = re.findall(r'"((?:[^"\\]|\\.)*)"', re.sub(r'"\s+"', "", row))
        found[name] = re.sub(r"\\(.)", r"\1", syntax)
    return found


def commands(build):
    def text_of(value):
        return value.decode() if isinstance(value, bytes) else str(value)
    groups, takes = {}, syntaxes()
    for name, entry in command_docs(build):
        groups.setdefault(text_of(entry.get("group", "?")), []).append((
            name.replace("|", " ").upper(), takes[name], text_of(entry.get("since", "")), text_of(entry.get("summary", ""))))
    out = "# Commands\n%sWhat they take and answer: [wire.md](../wire.md), [search.md](../search.md), " \
          "[cache.md](../cache.md). A word in capitals is written as it is, others are values; `[...]` may be left out, " \
          "`a|b` is one of them, `...` more of the same. `redis-cli` shows that, too, with `help NAME`. quire.so has some of " \
          "these, and `QUIRE.*` of its own: [cluster.md](../cluster.md#commands).\n" % MADE
    for group in sorted(groups):
        out += "\n## %s\n\n| command | takes | since | what it does |\n|---|---|---|---|\n" % group
        out += "".join("| `%s` | %s | %s | %s |\n" % (n, cell("`%s`" % a if a else ""), cell(s), cell(t))
                       for n, a, s, t in sorted(groups[group]))
    if sum(map(len, groups.values())) < 100:
        sys.exit("generate.py: the server names only %d commands" % sum(map(len, groups.values())))
    return out


def check_operations(page):
    """1 unless the table of operations.md has each setting that the program has, and no other."""
    text = (HERE.parent / "operations.md").read_text(encoding="utf-8")
    table = text[text.index("| setting | default | range |"):]
    table = table[:table.index("\n\n")]
    shown = {n for row in re.findall(r"^\| (`[^|]*) \|", table, re.M) for n in re.findall(r"`([a-z0-9-]+)`", row)}
    known = set(re.findall(r"^\| `([a-z0-9-]+)` \|", page, re.M))
    section = text[text.index("## Settings"):text.index("## The data folder")]
    known -= set(re.findall(r"`([a-z0-9-]+)`", section)) - shown  # those that can only be read stand below the table
    if shown == known:
        print("ok - operations.md has the %d settings of the program" % len(known))
        return 0
    print("FAIL - operations.md lacks %s, and has %s that the program does not know" % (
        sorted(known - shown), sorted(shown - known)))
    return 1


def table_of(text, head):
    """The rows of the table that begins so: lists of cells."""
    table = text[text.index(head):]
    return [[c.strip() for c in row.split("|")[1:-1]] for row in table[:table.index("\n\n")].split("\n")[2:]]


def differ(what, shown, known):
    """1, and what differs, unless both are the same."""
    if shown == known:
        print("ok - cluster.md has the %d %s of quire.so" % (len(known), what))
        return 0
    print("FAIL - the %s of quire.so in cluster.md: it lacks %s, and has %s that the module does not" % (
        what, sorted(set(known) - set(shown)), sorted(set(shown) - set(known))))
    return 1


def check_cluster(page):
    """1 for each table of cluster.md that differs from the module's sources: settings with what is live and defaults; commands."""
    text = (HERE.parent / "cluster.md").read_text(encoding="utf-8")
    source = (ROOT / "module/module_config.c").read_text(encoding="utf-8")
    default = dict(re.findall(r"^\| `([a-z0-9-]+)` \| `?([^|`]*?)`? \|", page, re.M))
    known = {("quire." + name, "live" if live == "true" else "", default[name]) for name, live in re.findall(
        r'\{"([a-z-]+)", (true|false)\}', source)}
    known |= {("quire." + name, "" if flag == "IMMUTABLE" else "live", value) for name, value, flag in re.findall(
        r'\{"([a-z-]+)", "([^"]*)", RM_CONFIG_(\w+)', source)}
    shown = set()
    for cells in table_of(text, "| setting | default | |"):
        names, value, meaning = cells
        for name in re.findall(r"`([^`]+)`", names):
            said = default[name[6:]] if value == "as there" or name == "quire.dir" else value
            shown.add((name, "live" if meaning.startswith("live") else "", said))
    wrong = differ("settings", shown, known)
    own = re.findall(r'\{"(QUIRE\.[A-Z]+)",', (ROOT / "module/module_admin.c").read_text(encoding="utf-8"))
    named = [re.match(r"`(QUIRE\.[A-Z]+)", cells[0]).group(1) for cells in table_of(text, "| command | |")]
    return wrong + differ("commands", sorted(named), sorted(own))


def main():
    build = Path(sys.argv[1]).resolve()
    pages = {
        "settings.md": settings(said(build / "quire-server", "--help"), "Settings of quire-server", "quire-server",
                                "In a file without the dashes, on the command line with them. Ranges, which of them can be "
                                "changed live, and what they mean together: [operations.md](../operations.md#settings)."),
        "gateway-settings.md": gateway_settings(said(build / "quire-gateway", "--help")),
        "command-line.md": command_line(build),
        "commands.md": commands(build),
    }
    wrong = 0
    if "--check" in sys.argv:
        wrong = check_operations(pages["settings.md"]) + check_cluster(pages["settings.md"])
    for name, text in pages.items():
        path = HERE / name
        if "--check" not in sys.argv:
            path.write_text(text, encoding="utf-8")
            print(path)
        elif path.exists() and path.read_text(encoding="utf-8") == text:
            print("ok - docs/reference/%s is what the programs say" % name)
        else:
            print("FAIL - docs/reference/%s is not what the programs say: docs/reference/generate.py BUILD_DIR" % name)
            wrong = 1
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
