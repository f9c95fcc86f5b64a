#!/usr/bin/env python3
"""links.py - links of the Markdown files that lead nowhere, one a line: files that are not there, headings that a page
does not have. Anchors are made of headings as GitHub makes them, which the site does as well (docs/site/conf.py).
"""
import re
import subprocess
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def pages():
    names = subprocess.run(["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                           capture_output=True, text=True, check=True).stdout.split("\n")
    return [ROOT / name for name in names if name and (ROOT / name).exists()]


def prose(text):
    """The text without code, in which brackets are no links and # no headings."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return re.sub(r"^(?:    .*\n)+", "\n", text, flags=re.M)


def anchors_of(page):
    found, seen = set(re.findall(r'<a (?:id|name)="([^"]+)"', page)), {}
    for heading in re.findall(r"^#+ +(.+?) *$", prose(page), re.M):
        heading = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
        anchor = re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
        number = seen[anchor] = seen.get(anchor, -1) + 1
        found.add(anchor if number == 0 else "%s-%d" % (anchor, number))
    return found


def main():
    texts = {page: page.read_text(encoding="utf-8") for page in pages()}
    anchors = {page: anchors_of(text) for page, text in texts.items()}
    for page, text in texts.items():
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", prose(text))):
            path, _, anchor = target.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            at = (page.parent / urllib.parse.unquote(path)).resolve() if path else page
            if not at.exists():
                print("%s: %s is not there" % (page.relative_to(ROOT), target))
            elif anchor and at in anchors and anchor not in anchors[at]:
                print("%s: %s has no heading #%s" % (page.relative_to(ROOT), path or "the page", anchor))


main()
