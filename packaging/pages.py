#!/usr/bin/env python3
"""pages.py FOLDER - in the pages of an install, links to files of the sources that are not installed become plain text.

    packaging/pages.py /usr/share/doc/quire

`[the io layer](../io/README.md)` becomes `the io layer (io/README.md of the sources)`. Run by cmake --install.
"""
import os
import re
import sys

LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def main():
    top = os.path.realpath(sys.argv[1])
    for folder, _, files in os.walk(top):
        for name in files:
            path = os.path.join(folder, name)
            if not name.endswith(".md") or os.path.islink(path):
                continue

            def plain(match, folder=folder):
                text, target = match.group(1), match.group(2)
                place = os.path.normpath(os.path.join(folder, target))
                if re.match(r"[a-z]+:", target) or os.path.lexists(place):
                    return match.group(0)
                return f"{text} ({os.path.relpath(place, top)} of the sources)"

            with open(path, encoding="utf-8") as file:
                before = file.read()
            after = LINK.sub(plain, before)
            if after != before:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(after)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main()
