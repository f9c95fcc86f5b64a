"""Quire: nearest-neighbour search over vectors on NVMe, live collections, and a cache for answers of models.

    import numpy, quire
    index = quire.Index.build("demo", numpy.random.rand(10000, 64).astype("float32"))
    ids, distances = index.search(numpy.random.rand(64), k=10, recall=0.95)

docs/python.md is the guide; `help(quire.Index)`, `help(quire.Collection)` and `help(quire.Cache)` have every call.
`quire.compiled`: whether the package was built with a C compiler, which makes a single search cheaper.
"""
from ._abi import QUIRE_VERSION_STRING as __version__
from ._library import version
from ._search import Hits, SearchStats, compiled
from .cache import Audit, Cache, CacheAnswer, CacheStats, Candidate, PutResult, Tune, TunePoint
from .collection import Collection, CollectionInfo, Element, Match, Matches, Snapshot
from .errors import (
    AddressInUse, Busy, Cancelled, Closed, Corrupt, Error, Exists, FormatError, IOFailure, Internal, Invalid,
    LimitReached, NetworkError, NoFile, NoMemory, NoSpace, NotFinite, NotFound, OutOfRange, Oversized, ParseError,
    PermissionDenied, ShortRead, Stale, Timeout, Truncated, Unsupported, WrongDimension, WrongFormat, WrongType,
    WrongVersion, ZeroVector,
)
from .index import Index, IndexInfo, VerifyReport, read_vectors

__all__ = [
    "AddressInUse", "Audit", "Busy", "Cache", "CacheAnswer", "CacheStats", "Cancelled", "Candidate", "Closed",
    "Collection", "CollectionInfo", "Corrupt", "Element", "Error", "Exists", "FormatError", "Hits", "IOFailure",
    "Index", "IndexInfo", "Internal", "Invalid", "LimitReached", "Match", "Matches", "NetworkError", "NoFile",
    "NoMemory", "NoSpace", "NotFinite", "NotFound", "OutOfRange", "Oversized", "ParseError", "PermissionDenied",
    "PutResult", "SearchStats", "ShortRead", "Snapshot", "Stale", "Timeout", "Truncated", "Tune", "TunePoint",
    "Unsupported", "VerifyReport", "WrongDimension", "WrongFormat", "WrongType", "WrongVersion", "ZeroVector",
    "__version__", "compiled", "read_vectors", "version",
]
