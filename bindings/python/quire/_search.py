"""Options, answers and figures of a search, for indexes and collections.

Options are made once for each set of values and kept, as an application uses few; they are only read by the library, so
threads share them.
"""
from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _abi
from ._arrays import F32, Pieces, name_of, tenants_of
from ._library import lib
from .errors import Invalid

HIT = np.dtype([("id", "<i8"), ("row", "<u4"), ("distance", "<f4"), ("deviation", "<f4")], align=True)
assert HIT.itemsize == ctypes.sizeof(_abi.quire_hit) and sys.byteorder == "little"
Tenants = Union[str, Sequence[str], None]
_KEPT_MAX = 256


class Options:
    """struct quire_search_options and what it points to; room: hits that an answer may have."""

    __slots__ = ("struct", "reference", "address", "k", "room", "_pieces")

    def __init__(self, k: int, dim: int, recall: Optional[float], effort: Optional[int], exact: bool,
                 filter: Optional[str], tenants: Optional[Tuple[str, ...]], estimate: bool,
                 farthest: Optional[float], reads_max: Optional[int], filter_effort: Optional[int]) -> None:
        pieces = self._pieces = Pieces()
        o = self.struct = _abi.quire_search_options()
        lib.quire_search_options_init(ctypes.byref(o))
        self.k = k
        _number(o, "k", k)
        _number(o, "effort", effort)
        _number(o, "reads_max", reads_max)
        _number(o, "filter_effort", filter_effort)
        o.dim = dim
        if recall is not None:
            o.recall = recall
            if not 0 < recall <= 1:
                raise Invalid("recall is %r: above 0, up to 1" % recall)
        o.exact = bool(exact)
        if estimate:
            o.distance = _abi.ENUMS["quire_distance"]["QUIRE_DISTANCE_ESTIMATE"]
        if filter is not None:
            text = filter.encode()
            o.filter, o.filter_bytes = pieces.pointer(text), len(text)
        if tenants is not None:
            o.tenants, o.n_tenants = pieces.array(tenants)
        if farthest is not None:
            o.limited, o.farthest = True, farthest
        self.reference = ctypes.byref(o)
        self.address = ctypes.addressof(o)
        self.room = min(k, _abi.QUIRE_K_MAX)  # more are refused


def _number(struct: _abi.quire_search_options, name: str, value: Optional[int]) -> None:
    if value is None:
        return
    if not isinstance(value, (int, np.integer)) or not 0 <= value < 2**32:
        raise Invalid("%s is %r: a whole number from 0" % (name, value))
    setattr(struct, name, int(value))


_made: Dict[Tuple[object, ...], Options] = {}


def options(k: int, dim: int, recall: Optional[float] = None, effort: Optional[int] = None, exact: bool = False,
            filter: Optional[str] = None, tenants: Tenants = None, estimate: bool = False,
            farthest: Optional[float] = None, reads_max: Optional[int] = None,
            filter_effort: Optional[int] = None) -> Options:
    names = None if tenants is None else tenants_of(tenants)
    key = (k, dim, recall, effort, exact, filter, names, estimate, farthest, reads_max, filter_effort)
    found = _made.get(key)
    if found is None:
        found = Options(*key)
        if len(_made) >= _KEPT_MAX:
            _made.clear()
        _made[key] = found
    return found


# ---- one search ------------------------------------------------------------------------------------------------------
# search_one(index, query, options, k, dim, stats) is _fast.search, which says what it gives, or without it the same by
# ctypes. Few objects and calls: between two searches the interpreter's have left the processor's caches.

try:
    from . import _fast
except ImportError:  # built without a compiler, or for an older Python: quire.compiled says so
    _fast = None  # type: ignore[assignment]

#: Whether the package was built with a compiler: a single search costs less then.
compiled = _fast is not None


class _Rest(ctypes.Structure):
    _fields_ = [("error", _abi.quire_error), ("count", ctypes.c_uint32)]


_COUNT_AT = _Rest.count.offset
_rooms: Dict[int, Any] = {}
_quire_search = lib.quire_search
addressof = ctypes.addressof


def _room_for(k: int) -> Any:
    """The type of a room for the answer of k hits. One for each power of two, as ctypes keeps types for ever."""
    bits = max(k - 1, 0).bit_length()
    room = _rooms.get(bits)
    if room is None:
        room = _rooms[bits] = type("Room%d" % (1 << bits), (ctypes.Structure,), {
            "_fields_": [("hits", _abi.quire_hit * (1 << bits)), ("rest", _Rest)]})
    return room


def _search_by_ctypes(index: int, query: Any, options: int, k: int, dim: int, stats: int) -> Any:
    if type(query) is not np.ndarray or query.dtype is not F32 or query.shape != (dim,):
        return None
    data = query.tobytes()
    room = _room_for(k)()
    at, rest = addressof(room), addressof(room.rest)
    code = _quire_search(index, data, options, at, rest + _COUNT_AT, stats or None, rest)
    return room if code >= 0 else (code, bytes(room.rest.error))


if compiled:
    _fast.bind(ctypes.cast(lib.quire_search, ctypes.c_void_p).value or 0, ctypes.sizeof(_abi.quire_hit),
               ctypes.sizeof(_abi.quire_error))
    search_one = _fast.search
else:
    search_one = _search_by_ctypes


@dataclass(frozen=True)
class SearchStats:
    """How one search went about it (struct quire_search_stats)."""

    plan: str
    switched: bool
    matches: int
    reads_expected: int
    reads: int
    cached: int
    bytes: int
    rounds: int
    rows_scored: int
    codes_scored: int
    effort: int
    estimated: int
    cpu_ns: int
    latency_ns: int
    exact: bool
    complete: bool


def stats_of(s: Any) -> SearchStats:
    plan = name_of("quire_plan", "QUIRE_PLAN_", s.plan)
    return SearchStats(plan, *(getattr(s, name) for name, _ in _abi.quire_search_stats._fields_[1:]))


class Hits:
    """The nearest rows of an index to one query (arrays of n <= k), or to each of a batch (arrays of n x k).

    `ids, distances = index.search(...)` unpacks it. Where a query of a batch has fewer than k answers, the others have
    the id -1 and infinite distance. The arrays are views of one array, `array`."""

    __slots__ = ("_found", "_counts", "_stats")

    def __init__(self, found: Any, counts: Optional[npt.NDArray[np.uint32]] = None, stats: Any = None) -> None:
        self._found = found  # the array, or what search_one gave until somebody looks at it
        self._counts = counts
        self._stats = stats

    @property
    def array(self) -> npt.NDArray[Any]:
        """numpy structured array: id, row, distance, deviation."""
        found = self._found
        if type(found) is not np.ndarray:
            n = len(found) // HIT.itemsize if type(found) is bytearray else found.rest.count
            found = self._found = np.frombuffer(found, HIT, n) if n else np.empty(0, HIT)
        array: npt.NDArray[Any] = found
        return array

    @property
    def counts(self) -> npt.NDArray[np.uint32]:
        """How many answers each query has."""
        return np.array([len(self.array)], np.uint32) if self._counts is None else self._counts

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        """Numbers of the rows in the build's input."""
        return self.array["id"]

    @property
    def distances(self) -> npt.NDArray[np.float32]:
        """Nearer is smaller: squared L2, 1 - cosine, or minus the inner product."""
        return self.array["distance"]

    @property
    def rows(self) -> npt.NDArray[np.uint32]:
        """Places in the index, for key(), vector() and attributes()."""
        return self.array["row"]

    @property
    def deviations(self) -> npt.NDArray[np.float32]:
        """0: the distance is exact; otherwise the standard deviation of the estimate."""
        return self.array["deviation"]

    @property
    def stats(self) -> Any:
        """With stats=True: a SearchStats, or of a batch a list of them; otherwise None."""
        if self._stats is None:
            return None
        return [stats_of(s) for s in self._stats] if self.array.ndim == 2 else stats_of(self._stats[0])

    def __iter__(self) -> Iterator[npt.NDArray[Any]]:
        yield self.ids
        yield self.distances

    def __len__(self) -> int:
        return len(self.array)

    def __repr__(self) -> str:
        return "Hits(ids=%r, distances=%r)" % (self.ids, self.distances)
