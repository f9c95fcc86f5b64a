#!/usr/bin/env python3
"""make_abi.py - include/quire.h as declarations for ctypes: quire/_abi.py.

usage: make_abi.py [--check]

Reads include/quire.h of this tree and writes bindings/python/quire/_abi.py. With --check it writes nothing and exits
with 1 if the file is not what it would write. Run it whenever include/quire.h has changed. That sizes and offsets are
those of a C compiler is tested by tests/test_abi.py.

The header is regular, and what is not understood here is an error: no declaration is left out or guessed.

Example
  bindings/python/make_abi.py && git diff bindings/python/quire/_abi.py
"""
from __future__ import annotations

import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
HEADER = os.path.join(HERE, "..", "..", "include", "quire.h")
OUTPUT = os.path.join(HERE, "quire", "_abi.py")

PLAIN = {
    "int": "C.c_int", "unsigned": "C.c_uint", "bool": "C.c_bool", "float": "C.c_float", "double": "C.c_double",
    "size_t": "C.c_size_t", "uint8_t": "C.c_uint8", "uint32_t": "C.c_uint32", "uint64_t": "C.c_uint64",
}
# of the caller's own making, never seen from inside
OPAQUE = ("quire_index", "quire_loop", "quire_collection", "quire_snapshot", "quire_result", "quire_cache")


def fail(text: str) -> "NoReturn":  # noqa: F821
    sys.exit("make_abi.py: not understood in quire.h: %s" % " ".join(text.split()))


def ctype(declared: str, constants: dict[str, int], returned: bool = False) -> tuple[str, str]:
    """Name and type for ctypes of one declaration, such as `const char *const *keys` or `char why[160]`."""
    text = " ".join(re.sub(r"\bconst\b", " ", declared).split())
    m = re.fullmatch(r"((?:struct |enum )?\w+) ?(\**(?: \*)*) ?(\w*)(?:\[(\w+)\])?", text)
    if not m:
        fail(declared)
    base, stars, name, length = m.group(1), m.group(2).count("*"), m.group(3), m.group(4)
    if not name and not stars and base not in PLAIN and not base.startswith(("struct", "enum")):
        fail(declared)
    if stars:
        # what comes back as text is read; anything else is an address, whatever it is of
        result = "C.c_char_p" if base == "char" and stars == 1 and (returned or not name) else "C.c_void_p"
    elif base.startswith("struct "):
        result = base[7:]
    elif base.startswith("enum "):
        result = "C.c_int"
    elif base == "char" and length:
        result = "C.c_char"
    elif base == "quire_search_callback":
        result = base
    elif base in PLAIN:
        result = PLAIN[base]
    else:
        fail(declared)
    if length:
        result += " * %d" % (constants[length.rstrip("u")] if length.rstrip("u") in constants else int(length.rstrip("u")))
    return name, result


def parameters(text: str, constants: dict[str, int]) -> list[str]:
    """Types of a parameter list. Those that are functions become the addresses of them."""
    out = []
    depth, piece = 0, ""
    for c in text + ",":
        depth += (c == "(") - (c == ")")
        if c == "," and depth == 0:
            piece = piece.strip()
            if piece and piece != "void":
                out.append("C.c_void_p" if "(*" in piece or "quire_search_callback" in piece
                           else ctype(piece, constants)[1])
            piece = ""
        else:
            piece += c
    return out


def read(header: str) -> str:
    """The text of _abi.py."""
    header = re.sub(r"/\*.*?\*/", " ", header, flags=re.S)
    constants: dict[str, int] = {}
    texts: dict[str, str] = {}
    for name, value in re.findall(r"^#define (QUIRE_\w+)\s+(\S.*?)\s*$", header, re.M):
        if re.fullmatch(r"0x[0-9a-f]+u?|\d+u?", value):
            constants[name] = int(value.rstrip("u"), 0)
        elif value.startswith('"'):
            texts[name] = value
    block = re.search(r"#define QUIRE_ERRORS\(X\)(.*?)\n\n", header, re.S)
    if not block:
        fail("#define QUIRE_ERRORS")
    errors = re.findall(r'X\((\w+), (\d+), "([^"]*)"\)', block.group(1))
    body = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*$", "", header, flags=re.M)
    body = body.replace('extern "C" {', "").rstrip().rstrip("}")

    enums, structs, callbacks, functions = [], [], [], []
    at = 0
    while True:
        while at < len(body) and body[at].isspace():
            at += 1
        if at >= len(body):
            break
        depth, end = 0, at
        while body[end] != ";" or depth:
            depth += (body[end] == "{") - (body[end] == "}")
            end += 1
        piece, at = body[at:end].strip(), end + 1
        if m := re.fullmatch(r"enum (\w+) \{(.*)\}", piece, re.S):
            values, last = [], -1
            if m.group(1) == "quire_errno":
                continue
            for item in filter(None, (i.strip() for i in m.group(2).split(","))):
                name, _, value = (s.strip() for s in item.partition("="))
                last = int(value) if value else last + 1
                values.append((name, last))
            enums.append((m.group(1), values))
        elif m := re.fullmatch(r"struct (\w+) \{(.*)\}", piece, re.S):
            fields = []
            for item in filter(None, (i.strip() for i in m.group(2).split(";"))):
                if f := re.match(r"(?:int|void) \(\*(\w+)\)\(", item):
                    fields.append((f.group(1), "C.c_void_p"))
                    continue
                first, *others = item.split(",")
                name, kind = ctype(first, constants)
                fields.append((name, kind))
                base = re.match(r"(?:const )?(?:struct |enum )?\w+ ", first).group(0)
                fields += [ctype(base + other.strip(), constants) for other in others]
            structs.append((m.group(1), fields))
        elif m := re.fullmatch(r"struct (\w+)", piece):
            if m.group(1) not in OPAQUE:
                fail(piece)
        elif m := re.fullmatch(r"typedef void (\w+)\((.*)\)", piece, re.S):
            callbacks.append((m.group(1), parameters(m.group(2), constants)))
        elif m := re.fullmatch(r"QUIRE_API (.*?)(quire_\w+)\((.*)\)", piece, re.S):
            returned = m.group(1).strip()
            kind = "None" if returned == "void" else ctype(returned + (" x" if returned[-1] != "*" else "x"),
                                                           constants, True)[1]
            functions.append((m.group(2), kind, parameters(m.group(3), constants)))
        else:
            fail(piece)
    if len(functions) < 50 or len(structs) < 20 or len(errors) < 20:
        fail("%d functions, %d structs, %d errors" % (len(functions), len(structs), len(errors)))

    lines = ['"""Declarations of libquire for ctypes: written by make_abi.py from include/quire.h, not by hand."""', "",
             "import ctypes as C", ""]
    lines += ["%s = %s" % item for item in sorted(texts.items())]
    lines += ["%s = %d" % item for item in sorted(constants.items())]
    lines += ["", "# name: number, as QUIRE_E<name> = -number", "ERRORS = {"]
    lines += ['    "%s": (%s, "%s"),' % e for e in errors] + ["}", "", "ENUMS = {"]
    for name, values in enums:
        lines += ['    "%s": {' % name] + ['        "%s": %d,' % v for v in values] + ["    },"]
    lines += ["}", ""]
    for name, fields in structs:
        lines += ["", "class %s(C.Structure):" % name, "    _fields_ = ["]
        lines += ['        ("%s", %s),' % f for f in fields] + ["    ]", ""]
    lines += ["", "STRUCTS = (%s,)" % ", ".join(name for name, _ in structs), ""]
    for name, kinds in callbacks:
        lines += ["%s = C.CFUNCTYPE(None, %s)" % (name, ", ".join(kinds))]
    lines += ["", "# name: (returned, parameters)", "FUNCTIONS = {"]
    for name, kind, kinds in functions:
        lines += ['    "%s": (%s, [%s]),' % (name, kind, ", ".join(kinds))]
    return "\n".join(lines + ["}", ""])


def main() -> int:
    if sys.argv[1:] not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    with open(HEADER) as f:
        text = read(f.read())
    if sys.argv[1:]:
        with open(OUTPUT) as f:
            if f.read() != text:
                print("bindings/python/quire/_abi.py is not what include/quire.h says: run bindings/python/make_abi.py",
                      file=sys.stderr)
                return 1
        return 0
    with open(OUTPUT, "w") as f:
        f.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
