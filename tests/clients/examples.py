"""examples.py - the examples of docs/clients.md that can be run here: each must print what the comment in its last
printing line says. Arguments: the languages, python and javascript; for javascript NODE_PATH leads to the npm
packages.
"""
import contextlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from wire import PORT, Client, check, end

PAGE = Path(__file__).resolve().parents[2] / "docs" / "clients.md"
# heading: language, and the packages that stand for require('redis')
RUNNABLE = {"redis-py": ("python", [None]), "node-redis": ("javascript", ["redis6", "redis4"]),
            "ioredis": ("javascript", [None]),
            "@langchain/redis": ("javascript", ["redis4"])}
EMBEDDINGS = """
const { Embeddings } = require('@langchain/core/embeddings');
class Letters extends Embeddings {
    async embedQuery(text) {
        const v = new Array(26).fill(0.01);
        for (const c of text)
            if (c >= 'a' && c <= 'z')
                v[c.charCodeAt(0) - 97]++;
        return v;
    }
    async embedDocuments(texts) { return Promise.all(texts.map((t) => this.embedQuery(t))); }
}
const embeddings = new Letters({});
"""


def blocks():
    """heading: the first indented block below it."""
    found, heading, lines = {}, None, []
    for line in [*PAGE.read_text(encoding="utf-8").splitlines(), "### end"]:
        if line.startswith("#") and not lines:
            heading = line.lstrip("# ")
        elif line.startswith("    ") or (lines and not line.strip()):
            lines.append(line[4:])
        elif lines:
            found.setdefault(heading, "\n".join(lines).strip() + "\n")
            lines = []
            if line.startswith("#"):
                heading = line.lstrip("# ")
    return found


def run(language, code):
    with tempfile.TemporaryDirectory(prefix="example.") as folder:
        path = Path(folder) / ("example.py" if language == "python" else "example.js")
        path.write_text(code if language == "python"
                        else EMBEDDINGS * ("embeddings" in code) + "(async () => {\n%s})().catch((e) => { "
                        "console.error(e); process.exit(1); });\n" % code, encoding="utf-8")
        return subprocess.run(["/usr/bin/python3" if language == "python" else "node", path], capture_output=True,
                              text=True, check=False, timeout=60)


def main():
    wanted, found = sys.argv[1:], blocks()
    for heading, (language, packages) in RUNNABLE.items():
        if language not in wanted:
            continue
        code = found.get(heading, "").replace("7000", str(PORT))
        prints = re.findall(r"(?:print|console\.log)\(.*\)?;? *(?:#|//) (.*)", code)
        if not check("docs/clients.md has a runnable example of " + heading, len(prints) == 1, code):
            continue
        for package in packages:
            with contextlib.closing(Client()) as client:
                client.call("FLUSHALL")
            ended = run(language, code.replace("require('redis')", "require('%s')" % package))
            check("the example of %s%s prints %s" % (heading, " (%s)" % package if package else "", prints[0]),
                  ended.returncode == 0 and ended.stdout.strip() == prints[0].strip(), ended.stdout + ended.stderr)
    end()


if __name__ == "__main__":
    main()
