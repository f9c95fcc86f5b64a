"""The Python code of docs/python.md and of README.md runs as it is shown; the packages of LangChain and LlamaIndex are
stand-ins: what the shown classes call of them, with the same names, arguments and results."""
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

LLAMA_STAND_INS = """
import abc, dataclasses, enum, json, sys, types

class BasePydanticVectorStore(abc.ABC):  # takes its fields by name, and only those, as pydantic's models do
    is_embedding_query = True
    def __init__(self, **fields):
        known = {n: getattr(type(self), n, None) for c in type(self).__mro__ for n in c.__dict__.get("__annotations__", ())}
        assert set(fields) <= set(known), fields
        self.__dict__.update({**known, **fields})
    @property
    @abc.abstractmethod
    def client(self): ...
    @abc.abstractmethod
    def add(self, nodes): ...
    @abc.abstractmethod
    def delete(self, ref_doc_id, **delete_kwargs): ...
    @abc.abstractmethod
    def query(self, query, **kwargs): ...

@dataclasses.dataclass
class VectorStoreQueryResult:
    nodes: list = None
    similarities: list = None
    ids: list = None

class VectorStoreQueryMode(str, enum.Enum):
    DEFAULT, HYBRID = "default", "hybrid"

@dataclasses.dataclass
class VectorStoreQuery:
    query_embedding: list = None
    similarity_top_k: int = 1
    doc_ids: list = None
    node_ids: list = None
    mode: VectorStoreQueryMode = VectorStoreQueryMode.DEFAULT
    filters: object = None

class FilterOperator(str, enum.Enum):
    EQ, GT, IN, NIN = "==", ">", "in", "nin"
class FilterCondition(str, enum.Enum):
    AND, OR = "and", "or"
@dataclasses.dataclass
class MetadataFilter:
    key: str
    value: object
    operator: FilterOperator = FilterOperator.EQ
@dataclasses.dataclass
class MetadataFilters:
    filters: list
    condition: FilterCondition = FilterCondition.AND

@dataclasses.dataclass
class TextNode:
    node_id: str
    ref_doc_id: str
    text: str
    metadata: dict
    embedding: list = None
    def get_embedding(self):
        assert self.embedding is not None
        return self.embedding

def node_to_metadata_dict(node, remove_text=False, text_field="text", text_resource_field="text_resource", flat_metadata=False):
    content = {**dataclasses.asdict(node), "embedding": None}
    return {**node.metadata, "_node_content": json.dumps(content), "_node_type": "TextNode", "document_id": node.ref_doc_id,
            "doc_id": node.ref_doc_id, "ref_doc_id": node.ref_doc_id}
def metadata_dict_to_node(metadata, text=None):
    return TextNode(**json.loads(metadata["_node_content"]))

for name in ("llama_index", "llama_index.core", "llama_index.core.vector_stores"):
    sys.modules[name] = types.ModuleType(name)
for name, members in (("types", (BasePydanticVectorStore, VectorStoreQueryResult)),
                      ("utils", (node_to_metadata_dict, metadata_dict_to_node))):
    module = types.ModuleType("llama_index.core.vector_stores." + name)
    module.__dict__.update({m.__name__: m for m in members})
    sys.modules[module.__name__] = module
"""
USE_OF_NODES = """
import quire
def embed(text): return [text.count(c) + 0.0 for c in "abcdefghijklmnopqrstuvwxyz"]
nodes = [TextNode("n%d" % i, doc, text, {"lang": lang, "page": i}, embed(text)) for i, (doc, text, lang) in enumerate(
    [("d1", "a cat", "en"), ("d1", "the dog", "en"), ('d"2', "a horse, \u00e9", "fr"), ('d"2', "a cat and a dog", "d\u00e9")])]
with quire.Collection("nodes", create=True, dim=26, metric="cosine") as collection:
    store = QuireNodes(collection=collection)
    assert store.client is collection and store.stores_text and store.is_embedding_query
    assert store.add(nodes) == ["n0", "n1", "n2", "n3"] and len(collection) == 4
    got = store.query(VectorStoreQuery(embed("a cat"), 2))
    assert got.ids == ["n0", "n3"] and abs(got.similarities[0] - 1) < 1e-5 and 0.5 < got.similarities[1] < 1, got
    assert got.nodes[0] == dataclasses.replace(nodes[0], embedding=None), got.nodes[0]
    def ids(*filters, condition=FilterCondition.AND, k=9):
        query = VectorStoreQuery(embed("a cat"), k, filters=MetadataFilters([MetadataFilter(*f) for f in filters], condition))
        return sorted(store.query(query).ids)
    assert ids(("lang", "en")) == ["n0", "n1"]
    assert ids(("lang", "d\u00e9")) == ["n3"]
    assert ids(("lang", "en"), ("page", 0, FilterOperator.GT)) == ["n1"]
    assert ids(("lang", ["fr", "en"], FilterOperator.IN), ("page", 2, FilterOperator.GT), condition=FilterCondition.OR) == [
        "n0", "n1", "n2", "n3"]
    assert ids() == ["n0", "n1", "n2", "n3"]
    try:
        ids(("lang", ["en"], FilterOperator.NIN))
        assert False, "an operator that Quire has not"
    except quire.Error as e:
        print(e)
    for query in (VectorStoreQuery(embed("x"), 1, mode=VectorStoreQueryMode.HYBRID), VectorStoreQuery(embed("x"), 1, node_ids=["n0"])):
        try:
            store.query(query)
            assert False, query
        except NotImplementedError:
            pass
    store.delete('d"2')
    assert sorted(collection.keys()) == ["n0", "n1"]
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
    if "llama_index" in code:
        code = LLAMA_STAND_INS + code + USE_OF_NODES
    env = dict(os.environ, PYTHONPATH=os.path.join(TREE, "bindings", "python"))
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=folder, env=env, stderr=subprocess.PIPE,
                          stdout=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()


def test_there_are_blocks():
    assert len(list(blocks())) >= 6 or not os.path.exists(PAGES[0])
