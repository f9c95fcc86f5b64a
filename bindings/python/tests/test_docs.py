"""The Python code of docs/python.md and of README.md runs as it is shown; the packages of LangChain are stand-ins."""
import os
import re
import subprocess
import sys

import pytest

TREE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
PAGES = [os.path.join(TREE, "docs", "python.md"), os.path.join(TREE, "README.md")]

STAND_INS = """
import sys, types
class VectorStore: pass
class Document:
    def __init__(self, page_content, metadata): self.page_content, self.metadata = page_content, metadata
for name, value in (("documents", Document), ("vectorstores", VectorStore)):
    module = types.ModuleType("langchain_core." + name)
    setattr(module, value.__name__, value)
    sys.modules["langchain_core." + name] = module
sys.modules["langchain_core"] = types.ModuleType("langchain_core")
"""
USE_OF_STORE = """
import quire
class Letters:
    def embed_query(self, text): return [text.count(c) + 0.0 for c in "abcdefghijklmnopqrstuvwxyz"]
    def embed_documents(self, texts): return [self.embed_query(t) for t in texts]
with quire.Collection("store", create=True, dim=26, metric="cosine") as collection:
    store = QuireStore.from_texts(["a cat", "the dog"], Letters(), [{"n": 1}, {"n": 2}], collection=collection)
    ids = store.add_texts(["a horse"], ids=["h"])
    assert ids == ["h"] and len(collection) == 3
    found = store.similarity_search("cat", k=1)
    assert found[0].page_content == "a cat" and found[0].metadata == {"n": 1}, found[0].__dict__
    assert [d.page_content for d in store.similarity_search("cat", k=5, filter=".n == 2")] == ["the dog"]
"""


def blocks():
    for page in PAGES:
        if os.path.exists(page):
            with open(page) as f:
                for i, code in enumerate(re.findall(r"^```python\n(.*?)^```$", f.read(), re.M | re.S)):
                    yield pytest.param(code, id="%s-%d" % (os.path.basename(page), i + 1))


@pytest.mark.parametrize("code", blocks())
def test_block(code, folder):
    if "langchain_core" in code:
        code = STAND_INS + code + USE_OF_STORE
    env = dict(os.environ, PYTHONPATH=os.path.join(TREE, "bindings", "python"))
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=folder, env=env, stderr=subprocess.PIPE,
                          stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()


def test_there_are_blocks():
    assert len(list(blocks())) >= 6 or not os.path.exists(PAGES[0])
