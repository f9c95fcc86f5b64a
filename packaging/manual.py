#!/usr/bin/env python3
"""manual.py BIN OUT - manual pages and shell completion from what the programs of the folder BIN say of themselves.

    packaging/manual.py build/release build/release/manual

Every program prints its own table (`--help --json`), the one that its parser and its --help are made from; so a page
cannot know an option that the program does not, nor miss one. Written are

    OUT/man/man1/quire.1, quire-VERB.1, quire-server.1, quire-gateway.1
    OUT/man/man5/quire.conf.5, quire-gateway.json.5
    OUT/bash/quire, quire-server, quire-gateway        for bash-completion
    OUT/zsh/_quire, _quire-server, _quire-gateway      for zsh

What no table knows (files, signals, exit status) stands here, in TEXTS.
"""
import json
import os
import re
import subprocess
import sys

TEXTS = {
    "quire-server": [
        ("FILES", [("/etc/quire/quire.conf", "settings of the service; see quire.conf(5)"),
                   ("/var/lib/quire", "its data: log, checkpoint and segments")]),
        ("SIGNALS", [("SIGTERM, SIGINT", "stop: replies under way are sent first, for at most shutdown-timeout; a "
                                         "second one ends the process at once")]),
        ("ENVIRONMENT", [("QUIRE_ENGINE", "uring or threads: decides where the setting engine is auto")]),
        ("EXIT STATUS", [("0", "stopped gracefully"), ("1", "the server could not start"),
                         ("2", "wrong arguments or settings")]),
    ],
    "quire-gateway": [
        ("FILES", [("/etc/quire/gateway.json", "settings of the service; see quire-gateway.json(5)"),
                   ("/var/lib/quire-gateway", "what the service keeps")]),
        ("SIGNALS", [("SIGHUP", "read the settings, the certificate and its key again, open the access log again; a "
                                "file that cannot be taken changes nothing"),
                     ("SIGTERM, SIGINT", "stop: streams under way go on for at most stop-timeout; a second one ends "
                                         "the process at once")]),
        ("EXIT STATUS", [("0", "stopped"), ("1", "the gateway could not start"),
                         ("2", "wrong arguments or settings")]),
    ],
}
MANUAL = "Quire"


def described(bin_folder, *words):
    """The object that a program prints for --help --json."""
    run = subprocess.run([os.path.join(bin_folder, words[0]), *words[1:], "--help", "--json"], check=True,
                         stdout=subprocess.PIPE)
    return json.loads(run.stdout)


# ---- texts ------------------------------------------------------------------------------------------------------

def roff(text):
    """Text of a page: what roff would take as its own is written so that it shows."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga")
    text = text.replace("^", "\\(ha").replace("~", "\\(ti")
    return "\n".join("\\&" + line if line.startswith(".") else line for line in text.split("\n"))


def size_text(n):
    for factor, unit in ((1 << 50, "pb"), (1 << 40, "tb"), (1 << 30, "gb"), (1 << 20, "mb"), (1 << 10, "kb")):
        if n >= factor and n % factor == 0:
            return f"{n // factor}{unit}"
    return str(n)


def range_text(row):
    if "allowed" in row:
        return row["allowed"]
    if row.get("choices"):
        return "one of " + ", ".join(row["choices"])
    if "maximum" not in row:
        return ""
    show = size_text if row["kind"] in ("size", "share", "output") else str
    return f"{show(row.get('minimum', 0))} to {show(row['maximum'])}"


def default_text(row):
    value = row.get("default")
    if value is None or value == "" or (row["kind"] in ("count", "amount", "size") and value == 0):
        return ""
    return str(value)


def sentence(text):
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text[-1:] in ".!?:" else ".")


class Page:
    """A manual page under way."""

    def __init__(self, name, section, version, summary):
        self.name, self.section = name, section
        self.lines = ['.\\" made by packaging/manual.py from what the program says of itself',
                      f'.TH "{roff(name.upper())}" {section} "" "quire {version}" "{MANUAL}"',
                      ".SH NAME", f"{roff(name)} \\- {roff(summary)}"]

    def head(self, title):
        self.lines.append(f".SH {title}")

    def sub(self, title):
        self.lines.append(f".SS {roff(title)}")

    def text(self, text, after_rows=False):
        for i, paragraph in enumerate(text.strip("\n").split("\n\n")):
            self.lines += [".PP"] * (i > 0 or after_rows) + [roff(line.strip()) for line in paragraph.split("\n")]

    def synopsis(self, usage):
        self.head("SYNOPSIS")
        for line in usage.split("\n"):
            name, _, rest = line.partition(" ")
            self.lines += [f".B {roff(name)}", roff(rest), ".br"] if rest else [f".B {roff(name)}", ".br"]
        self.lines.pop()

    def row(self, left, argument, texts):
        self.lines += [".TP", f"\\fB{roff(left)}\\fR" + (f" \\fI{roff(argument)}\\fR" if argument else "")]
        self.lines += [roff(text) for text in texts if text]

    def example(self, text):
        self.head("EXAMPLES")
        self.lines += [".nf", ".RS 2"] + [roff(line[2:] if line.startswith("  ") else line)
                                          for line in text.rstrip("\n").split("\n")] + [".RE", ".fi"]

    def texts(self, program):
        for title, rows in TEXTS.get(program, []):
            self.head(title)
            for left, right in rows:
                self.row(left, "", [sentence(right)])

    def see(self, others):
        self.head("SEE ALSO")
        shown = [f"\\fB{roff(name)}\\fR({section})" for name, section in others if name != self.name]
        self.lines += [f"{text}{',' if i + 1 < len(shown) else ''}" for i, text in enumerate(shown)]
        self.lines += [".PP", "The pages in /usr/share/doc/quire/docs, or docs/ of the sources, say more."]

    def write(self, out):
        folder = os.path.join(out, "man", f"man{self.section}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{self.name}.{self.section}"), "w", encoding="utf-8") as file:
            file.write("\n".join(self.lines) + "\n")


def argument_of(row):
    return row.get("unit") or "|".join(row.get("choices", [])) or ""


def option_row(page, row):
    notes = [sentence(row["help"])]
    if row.get("required"):
        notes.append("Required.")
    if row.get("repeatable"):
        notes.append("May be given several times.")
    if row["kind"] in ("count", "amount", "size") and "maximum" in row:
        notes.append(f"From {range_text(row)}.")
    if default_text(row):
        notes.append(f"Default: {default_text(row)}.")
    page.row("--" + row["name"], argument_of(row), notes)


def setting_row(page, row, dashes=""):
    notes = [sentence(row["help"])]
    allowed = range_text(row)
    if allowed and row["kind"] != "fixed":
        notes.append(sentence(allowed))
    if row["kind"] == "fixed":
        notes.append("Can be read and has this one value: " + (row["default"] or '""') + ".")
    elif not row.get("secret"):
        notes.append("Default: " + (default_text(row) or "none") + ".")
    if row.get("repeatable"):
        notes.append("May be given several times.")
    if row.get("live"):
        notes.append("CONFIG SET changes it while the server runs.")
    if row.get("secret"):
        notes.append("A secret: it is shown in no log.")
    page.row(dashes + row["name"], "", notes)


# ---- pages ------------------------------------------------------------------------------------------------------

def verb_pages(quire, verbs, out):
    programs = [("quire", 1)] + [(verb["program"].replace(" ", "-"), 1) for verb in verbs]
    others = [("quire-server", 1), ("quire-gateway", 1)]
    page = Page("quire", 1, quire["version"], "build, search and look after indexes of vectors")
    page.synopsis("quire VERB [options]\nquire VERB --help\nquire --version")
    page.head("DESCRIPTION")
    page.text("Each verb has a page of its own.")
    page.head("VERBS")
    for verb in verbs:
        page.row(verb["program"].split(" ", 1)[1], "", [sentence(verb["short"])])
    page.head("NOTES")
    page.text(quire["notes"])
    page.see(programs + others)
    page.write(out)
    for verb in verbs:
        page = Page(verb["program"].replace(" ", "-"), 1, quire["version"], verb["short"].rstrip("."))
        page.synopsis(" ".join(filter(None, (verb["program"], verb["arguments"], "[options]"))))
        page.head("DESCRIPTION")
        page.text(verb["summary"])
        page.head("OPTIONS")
        for row in verb["options"]:
            option_row(page, row)
        page.text("Sizes take K, M, G and T (powers of 1024).", after_rows=True)
        page.head("EXIT STATUS")
        page.text(re.sub(r"^.*?Exit codes: ", "", quire["notes"], flags=re.S))
        page.example(verb["examples"])
        page.see([("quire", 1)] + others)
        page.write(out)


def server_pages(server, out):
    see = [("quire", 1), ("quire-server", 1), ("quire.conf", 5), ("quire-gateway", 1)]
    page = Page("quire-server", 1, server["version"], server["summary"])
    page.synopsis(server["usage"])
    page.head("DESCRIPTION")
    page.text("Serves vector sets, semantic caches, documents and indexes over them, strings and hashes to clients of "
              "Redis.\n\n" + server["notes"] + "\n\nquire.conf(5) explains the settings.")
    page.head("OPTIONS")
    page.row("--help", "", ["All settings with their defaults; with --json behind it as an object, for programs."])
    page.row("--version", "", ["The version."])
    for row in server["settings"]:
        if row["kind"] != "fixed":
            page.row("--" + row["name"], "value", [sentence(row["help"])])
    page.texts("quire-server")
    page.example(server["examples"])
    page.see(see)
    page.write(out)

    page = Page("quire.conf", 5, server["version"], "settings of quire-server")
    page.head("DESCRIPTION")
    page.text("One setting per line: name, blanks, value, which may stand in double quotes. Lines that begin with # "
              "are skipped.\nA setting that is given twice counts as it stands last. Settings of redis.conf(5) that "
              "mean nothing here are ignored, and one line of the log names them; an unknown name or a value out of "
              "range ends the start.\nThe same names with -- before them are options of the command line, which count "
              "after the file.\n\nSizes: 512kb, 64mb, 2gb are powers of 1024; 512k, 64m, 2g powers of 1000.")
    page.head("SETTINGS")
    for row in server["settings"]:
        setting_row(page, row)
    page.texts("quire-server")
    page.see(see)
    page.write(out)


def gateway_pages(gateway, out):
    see = [("quire-gateway", 1), ("quire-gateway.json", 5), ("quire-server", 1), ("quire", 1)]
    page = Page("quire-gateway", 1, gateway["version"], gateway["summary"])
    page.synopsis(gateway["usage"])
    page.head("DESCRIPTION")
    page.text("What was asked once is answered from the cache of a quire-server; everything else passes to the model "
              "servers as it is.\n\nquire-gateway.json(5) explains the settings.")
    page.head("OPTIONS")
    for row in gateway["options"]:
        option_row(page, row)
    for row in gateway["settings"]:
        page.row("--" + row["name"], "value", [sentence(row["help"])])
    page.texts("quire-gateway")
    page.example(gateway["examples"])
    page.see(see)
    page.write(out)

    page = Page("quire-gateway.json", 5, gateway["version"], "settings of quire-gateway")
    page.head("DESCRIPTION")
    page.text("One JSON object whose members are settings. Times carry their unit, sizes may. An unknown name, or one "
              "that stands twice, is an error. Two members are lists of objects: upstreams (name, url, key or "
              "key-file, models, weight, health, proxy, ca-file; only url is needed) and routes (category, path, "
              "model, tenant, system).\n\nquire-gateway --check-settings --settings FILE says whether a file can be "
              "taken.")
    part = None
    page.head("SETTINGS")
    for row in gateway["settings"]:
        if row["part"] != part:
            part = row["part"]
            page.sub(part)
        setting_row(page, row)
    page.texts("quire-gateway")
    page.see(see)
    page.write(out)


# ---- completion ---------------------------------------------------------------------------------------------------

def values_of(row):
    """What may follow an option: words, "files", "folders", or None (anything); "" where nothing follows."""
    if row["kind"] == "flag":
        return ""
    if row.get("choices"):
        return row["choices"]
    unit, text = row.get("unit") or "", row["help"].lower()
    if re.fullmatch(r"(FILE|MODEL|IN|OUT)", unit) or (not unit and re.search(r"\bfile\b|\bpath\b", text)):
        return "files"
    if unit == "DIR" or (not unit and re.search(r"\bfolder\b", text)):
        return "folders"
    words = [word for word in unit.split("|") if word.islower()]
    return words or None


def bash_values(rows):
    """Lines of a case over the option before the word."""
    lines = []
    for row in rows:
        values = values_of(row)
        if values == "":
            continue
        act = ("compopt -o filenames; COMPREPLY=($(compgen -f -- \"$word\"))" if values == "files" else
               "compopt -o filenames; COMPREPLY=($(compgen -d -- \"$word\"))" if values == "folders" else
               f"COMPREPLY=($(compgen -W '{' '.join(values)}' -- \"$word\"))" if values else ":")
        lines.append(f"    --{row['name']}) {act}; return ;;")
    return lines


def shell_name(program):
    return "_" + re.sub(r"[^a-z0-9]", "_", program)


HEAD = "made by packaging/manual.py from what the program says of itself"


def bash_function(name, rows, arguments):
    """A function that completes the options of `rows`; arguments: whether files may stand where no option does."""
    options = " ".join("--" + row["name"] for row in rows)
    return [f"{name}() {{", "    case $before in", *bash_values(rows), "    esac",
            "    if [[ $word == -* ]]; then", f"        COMPREPLY=($(compgen -W '{options}' -- \"$word\"))",
            *(["    else", "        compopt -o filenames", "        COMPREPLY=($(compgen -f -- \"$word\"))"]
              if arguments else []), "    fi", "}", ""]


BASH_WORDS = ["    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}", "    COMPREPLY=()"]


def bash_quire(verbs):
    lines = [f"# bash completion for quire, {HEAD}", ""]
    groups = {}
    for verb in verbs:
        words = verb["program"].split(" ")[1:]
        lines += bash_function(shell_name(verb["program"]), verb["options"], bool(verb["arguments"]))
        if len(words) > 1:
            groups.setdefault(words[0], []).append(words[1])
    firsts = list(dict.fromkeys(verb["program"].split(" ")[1] for verb in verbs))
    lines += ["_quire() {", *BASH_WORDS, "    if ((COMP_CWORD == 1)); then",
              f"        COMPREPLY=($(compgen -W '{' '.join(firsts)} --help --version' -- \"$word\"))", "        return",
              "    fi", "    case ${COMP_WORDS[1]} in"]
    for first in firsts:
        if first not in groups:
            lines.append(f"    {first}) {shell_name('quire ' + first)} ;;")
            continue
        lines += [f"    {first})", "        if ((COMP_CWORD == 2)); then",
                  f"            COMPREPLY=($(compgen -W '{' '.join(groups[first])} --help' -- \"$word\"))",
                  "            return", "        fi", "        case ${COMP_WORDS[2]} in"]
        lines += [f"        {second}) {shell_name(f'quire {first} {second}')} ;;" for second in groups[first]]
        lines += ["        esac", "        ;;"]
    return "\n".join(lines + ["    esac", "}", "complete -F _quire quire", ""])


def bash_program(program, rows, arguments):
    name = shell_name(program)
    return "\n".join([f"# bash completion for {program}, {HEAD}", "",
                      *bash_function(name + "_options", rows, arguments), f"{name}() {{", *BASH_WORDS,
                      f"    {name}_options", "}", f"complete -F {name} {program}", ""])


def zsh_spec(row):
    """An argument of _arguments."""
    values = values_of(row)
    help_text = row["help"].split("\n")[0].replace("\\", "\\\\").replace("[", "(").replace("]", ")")
    help_text = help_text.replace(":", "\\:").replace("'", "'\\''")
    spec = f"{'*' if row.get('repeatable') else ''}--{row['name']}[{help_text}]"
    if values != "":
        unit = re.sub(r"[^A-Za-z0-9 ]+", " ", row.get("unit") or "value").strip().lower()
        act = ("_files" if values == "files" else "_files -/" if values == "folders" else
               "(" + " ".join(values) + ")" if values else " ")
        spec += f":{unit}:{act}"
    return f"'{spec}'"


def zsh_arguments(rows, arguments, indent):
    specs = [zsh_spec(row) for row in rows] + (["'*:file:_files'"] if arguments else [])
    return [f"{indent}_arguments \\"] + [f"{indent}    {spec} \\" for spec in specs[:-1]] + [f"{indent}    {specs[-1]}"]


def zsh_words(words, indent):
    lines = [f"{indent}local -a words_of=("]
    for name, summary in words:
        summary = summary.split("\n")[0].replace("'", "'\\''").replace(":", "\\:")
        lines.append(f"{indent}    '{name}:{summary}'")
    return lines + [f"{indent})", f"{indent}_describe verb words_of"]


def zsh_quire(verbs):
    groups = {}
    for verb in verbs:
        groups.setdefault(verb["program"].split(" ")[1], []).append(verb)
    firsts = [(first, group[0]["short"] if len(group) == 1 else group[0]["group"]) for first, group in groups.items()]
    lines = ["#compdef quire", f"# {HEAD}", "", "_quire() {", "    if ((CURRENT == 2)); then",
             *zsh_words(firsts + [("--help", "all verbs"), ("--version", "the version")], " " * 8), "        return",
             "    fi", "    local verb=$words[2]", "    shift words", "    ((CURRENT--))", "    case $verb in"]
    for first, group in groups.items():
        lines.append(f"    {first})")
        if len(group) == 1 and group[0]["program"].count(" ") == 1:
            lines += zsh_arguments(group[0]["options"], group[0]["arguments"], " " * 8)
        else:
            lines += ["        if ((CURRENT == 2)); then",
                      *zsh_words([(verb["program"].split(" ")[2], verb["short"]) for verb in group], " " * 12),
                      "            return", "        fi", "        verb=$words[2]", "        shift words",
                      "        ((CURRENT--))", "        case $verb in"]
            for verb in group:
                lines += [f"        {verb['program'].split(' ')[2]})",
                          *zsh_arguments(verb["options"], verb["arguments"], " " * 12), "            ;;"]
            lines.append("        esac")
        lines.append("        ;;")
    return "\n".join(lines + ["    esac", "}", "", '_quire "$@"', ""])


def zsh_program(program, rows, arguments):
    return "\n".join([f"#compdef {program}", f"# {HEAD}", "", *zsh_arguments(rows, arguments, ""), ""])


def write(out, folder, name, text):
    os.makedirs(os.path.join(out, folder), exist_ok=True)
    with open(os.path.join(out, folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    bin_folder, out = sys.argv[1:]
    quire, verbs = described(bin_folder, "quire"), []
    for word in quire["verbs"]:
        verb = described(bin_folder, "quire", word["name"])
        for inner in verb.get("verbs", []):
            one = described(bin_folder, "quire", word["name"], inner["name"])
            verbs.append(one | {"short": inner["summary"].split("\n")[0], "group": word["summary"]})
        if "verbs" not in verb:
            verbs.append(verb | {"short": word["summary"]})
    server, gateway = described(bin_folder, "quire-server"), described(bin_folder, "quire-gateway")
    verb_pages(quire, verbs, out)
    server_pages(server, out)
    gateway_pages(gateway, out)
    ends = [{"name": "help", "kind": "flag", "help": "all settings"},
            {"name": "version", "kind": "flag", "help": "the version"}]
    server_rows = [row for row in server["settings"] if row["kind"] != "fixed"] + ends
    named = {row["name"] for row in gateway["options"]}
    gateway_rows = gateway["options"] + [row for row in gateway["settings"] if row["name"] not in named]
    write(out, "bash", "quire", bash_quire(verbs))
    write(out, "bash", "quire-server", bash_program("quire-server", server_rows, True))
    write(out, "bash", "quire-gateway", bash_program("quire-gateway", gateway_rows, False))
    write(out, "zsh", "_quire", zsh_quire(verbs))
    write(out, "zsh", "_quire-server", zsh_program("quire-server", server_rows, True))
    write(out, "zsh", "_quire-gateway", zsh_program("quire-gateway", gateway_rows, False))


if __name__ == "__main__":
    main()
