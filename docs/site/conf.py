"""conf.py - how Sphinx makes the pages of the site of the Markdown that is in the repository. Started by tools/site.

The sources are the Markdown files as they are: they read well where nothing is built. What only the site needs is made
here: its tree of pages, from the lists of docs/index.md; and links to folders and source files, which the site has
beside the pages.
"""
import os
import re
import subprocess

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
START = "docs/index"

project = "Quire"
copyright = "the authors of Quire"
version = release = re.search(r"VERSION ([0-9.]+)", open(os.path.join(ROOT, "CMakeLists.txt")).read()).group(1)
extensions = ["myst_parser"]
root_doc = START
source_suffix = {".md": "markdown"}
myst_heading_anchors = 6
myst_enable_extensions = ["html_image"]
exclude_patterns = ["build", ".*", "**/node_modules", "**/.*"]
html_theme = "furo"
html_title = "Quire " + version
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
highlight_language = "none"
# a transcript or a command is no program that could be read wrongly
suppress_warnings = ["misc.highlighting_failure", "myst.header"]

TRACKED = subprocess.run(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"],
                         capture_output=True, text=True, check=True).stdout.split("\n")
PAGES = {name[:-3] for name in TRACKED if name.endswith(".md") and os.path.exists(os.path.join(ROOT, name))}
# files that git does not know are no pages
exclude_patterns += sorted({os.path.relpath(os.path.join(folder, name), ROOT)
                            for folder, below, names in os.walk(ROOT) for name in names
                            if name.endswith(".md") and not below.__contains__("node_modules")
                            and os.path.relpath(os.path.join(folder, name), ROOT)[:-3] not in PAGES})


def trees(text):
    """A hidden tree of pages for each list of docs/index.md, and one for the pages that are in none."""
    out, seen, caption = "", {START}, None
    lists = {}
    for line in text.split("\n"):
        if line.startswith("## "):
            caption = line[3:]
        elif caption:
            for target in re.findall(r"\]\(([^)#]+\.md)(?:#[^)]*)?\)", line):
                page = os.path.normpath(os.path.join("docs", target))[:-3]
                if page in PAGES and page not in seen:
                    seen.add(page)
                    lists.setdefault(caption, []).append(page)
    lists["Rooms of the source, and the rest"] = sorted(PAGES - seen)
    for caption, pages in lists.items():
        out += "\n```{toctree}\n:hidden:\n:maxdepth: 1\n:caption: %s\n\n%s\n```\n" % (
            caption, "\n".join("/" + page for page in pages))
    return out


def rewrite(page, target):
    """Where a link of the repository leads on the site: a folder is its README."""
    path, _, anchor = target.partition("#")
    if not path or "://" in path or path.startswith("mailto:"):
        return target
    at = os.path.normpath(os.path.join(ROOT, os.path.dirname(page), path))
    if os.path.isdir(at):
        readme = os.path.join(at, "README.md")
        if not os.path.exists(readme):
            return None
        return os.path.relpath(readme, os.path.join(ROOT, os.path.dirname(page)))
    return target


def on_source(app, page, source):
    def link(found):
        target = rewrite(page, found.group(2))
        return found.group(1) if target is None else "[%s](%s)" % (found.group(1), target)
    parts = re.split(r"(^```.*?^```|(?:^    [^\n]*\n)+)", source[0], flags=re.M | re.S)
    # a backtick has one way to be matched: with two, a bracket without an end takes forever
    text = "".join(part if i % 2 else re.sub(r"(?<!!)\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^)\s]+)\)", link, part)
                   for i, part in enumerate(parts))
    source[0] = text + (trees(source[0]) if page == START else "")


def setup(app):
    app.connect("source-read", on_source)
