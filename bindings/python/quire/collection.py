"""Collection: written and searched at the same time, durable; docs/library.md has what it is.

Threads: any number of threads may use one Collection for anything, and calls run outside of Python's lock. close() may
be called from any thread at any time. A folder belongs to one process at a time (quire.Busy).
"""
from __future__ import annotations

import asyncio
import ctypes
import os
import threading
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union, overload

import numpy as np
import numpy.typing as npt

from . import _abi, _arrays
from ._arrays import Attributes, Key, Pieces, choice, key_bytes, key_text, tenants_of
from ._handle import Handle, Log, Owner, log_callback
from ._library import lib
from ._offload import offload
from ._search import SearchStats, Tenants, options, stats_of
from .errors import Error, Invalid, NotFound, error_of, raise_error
from .index import INFO_NAMES, Path, path_bytes, plain_of

byref = ctypes.byref
_ATTRIBUTES, _VECTORS = 1, 2
_VISIT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
_put, _put_granted = lib.quire_put, lib.quire_put_granted
_NOTFOUND = NotFound.code


@dataclass(frozen=True)
class CollectionInfo:
    """What a collection is and holds (struct quire_collection_info)."""

    elements: int
    raw_bytes: int
    dim: int
    type: str
    metric: str
    slot: str
    index: str
    memory_rows: int
    memory_bytes: int
    segments: int
    segment_rows: int
    dead_rows: int
    resident_bytes: int
    disk_bytes: int
    recovery_us: int
    replayed_records: int


@dataclass(frozen=True)
class Element:
    """An element as it is stored."""

    key: str
    vector: npt.NDArray[np.float32]
    attributes: Any


class Match:
    """One element of an answer."""

    __slots__ = ("key", "distance", "deviation", "vector", "_json", "_attributes")

    def __init__(self, key: str, distance: float, deviation: float, text: Optional[bytes],
                 vector: Optional[npt.NDArray[np.float32]]) -> None:
        self.key = key
        #: nearer is smaller: squared L2, 1 - cosine, or minus the inner product
        self.distance = distance
        #: 0: the distance is exact; otherwise the standard deviation of the estimate
        self.deviation = deviation
        #: the stored vector, where vectors=True
        self.vector = vector
        self._json = text
        self._attributes: Any = None

    @property
    def attributes(self) -> Any:
        """The attributes as a dict; None: there are none, or attributes=False."""
        if self._json is not None:
            self._attributes, self._json = _arrays.json_of(self._json), None
        return self._attributes

    def __repr__(self) -> str:
        return "Match(%r, %.6g, %r)" % (self.key, self.distance, self.attributes)


class Matches(Sequence[Match]):
    """An answer of a collection, nearest first."""

    __slots__ = ("_matches", "stats")

    def __init__(self, matches: List[Match], stats: Optional[SearchStats]) -> None:
        self._matches = matches
        #: with stats=True: how the search went about it
        self.stats = stats

    @property
    def keys(self) -> List[str]:
        return [m.key for m in self._matches]

    @property
    def distances(self) -> npt.NDArray[np.float32]:
        return np.array([m.distance for m in self._matches], np.float32)

    @overload
    def __getitem__(self, i: int) -> Match: ...

    @overload
    def __getitem__(self, i: slice) -> List[Match]: ...

    def __getitem__(self, i: Union[int, slice]) -> Union[Match, List[Match]]:
        return self._matches[i]

    def __iter__(self) -> Iterator[Match]:
        return iter(self._matches)

    def __len__(self) -> int:
        return len(self._matches)

    def __repr__(self) -> str:
        return "Matches(%r)" % self._matches


def _take(result: int, dim: int, vectors: bool) -> List[Match]:
    """Copies a result of the library."""
    n = lib.quire_result_count(result)
    found: List[Match] = []
    element = _abi.quire_element()
    reference = byref(element)
    rows = np.empty((n, dim), np.float32) if vectors else None
    string_at, get = ctypes.string_at, lib.quire_result_element
    for i in range(n):
        get(result, i, reference)
        if rows is not None:
            ctypes.memmove(rows.ctypes.data + rows.strides[0] * i, element.vector, dim * 4)
        found.append(Match(key_text(string_at(element.key, element.key_bytes)), element.distance, element.deviation,
                           string_at(element.attributes, element.attribute_bytes) if element.attributes else None,
                           rows[i] if rows is not None else None))
    return found


class _Searched(Handle):
    """What a collection and a snapshot of it have in common."""

    __slots__ = ()
    _dim: int

    def _pointers(self, owner: Owner) -> Tuple[int, Optional[int]]:
        raise NotImplementedError

    def search(self, query: Any, k: int = 10, *, recall: Optional[float] = None, effort: Optional[int] = None,
               exact: bool = False, filter: Optional[str] = None, tenants: Tenants = None, estimate: bool = False,
               farthest: Optional[float] = None, reads_max: Optional[int] = None, filter_effort: Optional[int] = None,
               attributes: bool = True, vectors: bool = False, stats: bool = False) -> Matches:
        """The k nearest elements to one query; min(k, matches) with a filter or tenants.

        tenants: only elements granted to one of them; an empty list sees nothing, None everything: a program that
        serves tenants must not forget it. attributes, vectors: what comes with the keys. The rest as Index.search()."""
        owner = self._owner
        if owner is None:
            self._refuse()
        try:
            q = _arrays.query(query)
            o = options(k, len(q), recall, effort, exact, filter, tenants, estimate, farthest, reads_max,
                        filter_effort)
            collection, snapshot = self._pointers(owner)
            result, err = ctypes.c_void_p(), _abi.quire_error()
            figures = _abi.quire_search_stats() if stats else None
            code = lib.quire_collection_search(
                collection, snapshot, _arrays.address(q), o.reference,
                (_ATTRIBUTES if attributes else 0) + (_VECTORS if vectors else 0), byref(result),
                byref(figures) if figures is not None else None, byref(err))
        finally:
            owner = None
        if code < 0:
            raise_error(code, err)
        try:
            matches = _take(result.value or 0, self._dim, vectors)
        finally:
            lib.quire_result_free(result)
        return Matches(matches, stats_of(figures) if figures is not None else None)

    def search_batch(self, queries: Any, k: int = 10, *, threads: int = 0, **named: Any) -> List[Matches]:
        """search() for each of n queries (n x dim) on `threads` threads (0: as many as there are processors)."""
        q = _arrays.queries(queries)
        return _spread(lambda i: self.search(q[i], k, **named), len(q), threads)

    async def search_async(self, query: Any, k: int = 10, **named: Any) -> Matches:
        """search() for asyncio, in a thread."""
        q = np.array(_arrays.query(query))  # of the caller's, who may go on writing into it
        return await offload(self.search, q, k, **named)


class Snapshot(_Searched):
    """A collection as it was when snapshot() was called, for searches (attributes of elements in memory are those of
    the present). Elements that are removed meanwhile keep their space until it is closed."""

    __slots__ = ("_dim", "_count")

    def __init__(self, collection: "Collection") -> None:
        owner = collection._owner
        if owner is None:
            collection._refuse()
        out, err = ctypes.c_void_p(), _abi.quire_error()
        try:
            code = lib.quire_snapshot_open(owner.pointer, byref(out), byref(err))
            if code == 0:
                self._dim = collection._dim
                self._count = int(lib.quire_snapshot_count(out))
                self._begin(Owner(out.value or 0, lib.quire_snapshot_close, "a snapshot of " + owner.fate.what, owner))
        finally:
            owner = None
        if code < 0:
            raise_error(code, err)

    def _pointers(self, owner: Owner) -> Tuple[int, Optional[int]]:
        assert isinstance(owner.keep, Owner)
        return owner.keep.pointer, owner.pointer

    def __len__(self) -> int:
        return self._count


class Collection(_Searched):
    """A live collection: elements with a key, a vector and attributes, in a folder."""

    __slots__ = ("_dim", "_type", "_path", "_snapshots")

    def __init__(self, path: Path, *, create: bool = False, dim: int = 0, type: str = "f32", metric: str = "l2",
                 slot: str = "auto", index: str = "pagegraph", columns: Optional[Mapping[str, str]] = None,
                 tenants: bool = False, durability: str = "everysec", memtable_bytes: int = 0, memory_bytes: int = 0,
                 disk_bytes: int = 0, block_bytes: int = 0, code_bits: int = 0, threads: int = 0, engine: str = "auto",
                 reads_max: int = 0, log: Optional[Log] = None) -> None:
        """Opens the collection in the folder `path`; create: makes it where there is none, and then dim is needed. What
        is given of a collection that is there (with dim: type and metric, too) must be so.

        columns: declared fields of the attributes, such as {"year": "integer"}; others are learnt. tenants: every
        element is granted to a tenant (put(..., tenants=...)). durability: what a crash of the machine may lose,
        "everysec" the last second, "always" nothing, "no" what the system has not written. log(warning, line) is called
        by the library's threads. The rest is described at struct quire_collection_options in quire.h."""
        o, pieces = _abi.quire_collection_options(), Pieces()
        lib.quire_collection_options_init(byref(o))
        o.create, o.dim, o.tenants = create, dim, tenants
        o.type = choice("quire_type", "QUIRE_TYPE_", type, "type")
        o.metric = choice("quire_metric", "QUIRE_METRIC_", metric, "metric")
        o.slot = choice("quire_slot", "QUIRE_SLOT_", slot, "slot")
        o.index = choice("quire_index_kind", "QUIRE_INDEX_", index, "index")
        o.durability = choice("quire_durability", "QUIRE_DURABLE_", durability, "durability")
        o.engine = choice("quire_engine_kind", "QUIRE_ENGINE_", engine, "engine")
        o.columns, o.n_columns = pieces.columns(columns)
        o.memtable_bytes, o.memory_bytes, o.disk_bytes = memtable_bytes, memory_bytes, disk_bytes
        o.block_bytes, o.code_bits, o.threads, o.reads_max = block_bytes, code_bits, threads, reads_max
        callback = log_callback(log) if log is not None else None
        if callback is not None:
            o.log = ctypes.cast(callback, ctypes.c_void_p).value
        out, err = ctypes.c_void_p(), _abi.quire_error()
        code = lib.quire_collection_open(path_bytes(path), byref(o), byref(out), byref(err))
        if code < 0:
            raise_error(code, err)
        self._path = os.fspath(path)
        self._snapshots: "weakref.WeakSet[Snapshot]" = weakref.WeakSet()
        self._begin(Owner(out.value or 0, _close, "the collection %s" % self._path, callback))
        info = self.info
        self._dim, self._type = info.dim, info.type

    def _pointers(self, owner: Owner) -> Tuple[int, Optional[int]]:
        return owner.pointer, None

    def _let_go(self, owner: Owner) -> None:
        for snapshot in list(self._snapshots):
            snapshot.close()

    # ---- writing ----

    def put(self, key: Key, vector: Any, attributes: Attributes = None, *, tenants: Tenants = None) -> bool:
        """Adds an element, or replaces the one with this key; whether it was new. Found by searches when this returns.

        vector: dim numbers, passed without a copy where they are of the collection's type. attributes: a dict, or JSON
        text; None leaves those that the element has. tenants: on behalf of these, who see it afterwards;
        quire.PermissionDenied where an element is there that none of them may see."""
        data = key_bytes(key)
        row = _arrays.rows(vector, "the vector of %r" % (key,), self._type, self._dim, 1)
        text = _arrays.json_bytes(attributes)
        return self._put(data, _arrays.address(row), text, tenants_of(tenants))

    def _put(self, key: bytes, vector: Any, text: Optional[bytes], tenants: Optional[Tuple[str, ...]]) -> bool:
        new = ctypes.c_bool()
        size = len(text) if text is not None else 0
        if tenants is None:
            self._call(_put, key, len(key), vector, text, size, byref(new))
        else:
            pieces = Pieces()
            names, n = pieces.array(tenants)
            self._call(_put_granted, key, len(key), vector, text, size, names, n, byref(new))
        return new.value

    def put_many(self, keys: Sequence[Key], vectors: Any, attributes: Optional[Sequence[Attributes]] = None, *,
                 tenants: Tenants = None, threads: int = 1) -> int:
        """put() for each of n keys and the rows of `vectors` (n x dim); how many were new. tenants are those of all of
        them. threads: with durability "always", writes of several threads share a sync.

        An error ends it: what was put before stays, and the exception's `row` says which row was refused."""
        rows = _arrays.rows(vectors, "vectors", self._type, self._dim, 2)
        if len(keys) != len(rows) or (attributes is not None and len(attributes) != len(rows)):
            raise Invalid("%d keys%s for %d vectors: one per vector is needed"
                          % (len(keys), "" if attributes is None else " and %d attributes" % len(attributes), len(rows)))
        names = tenants_of(tenants)
        if not len(rows):
            return 0
        base, step = int(rows.__array_interface__["data"][0]), rows.strides[0]

        def one(i: int) -> bool:
            try:
                return self._put(key_bytes(keys[i]), base + step * i,
                                 _arrays.json_bytes(attributes[i]) if attributes is not None else None, names)
            except Error as e:
                e.row = i  # type: ignore[attr-defined]
                raise

        return sum(_spread(one, len(rows), threads))

    def set_attributes(self, key: Key, attributes: Attributes) -> None:
        """Replaces an element's attributes; None: it has none then. quire.NotFound."""
        data, text = key_bytes(key), _arrays.json_bytes(attributes)
        self._call(lib.quire_set_attributes, data, len(data), text, len(text) if text is not None else 0)

    def remove(self, key: Key) -> bool:
        """Removes an element; False where there was none."""
        data = key_bytes(key)
        try:
            self._call(lib.quire_remove, data, len(data))
        except NotFound:
            return False
        return True

    def __delitem__(self, key: Key) -> None:
        if not self.remove(key):
            raise NotFound("there is no element %r" % (key,))

    def remove_where(self, *, filter: Optional[str] = None, tenants: Tenants = None, dry_run: bool = False) -> int:
        """Removes what matches, or with dry_run only counts it; how many. A filter or tenants must be given."""
        where, pieces = _where(filter, tenants)
        n = ctypes.c_uint64()
        self._call(lib.quire_remove_where, byref(where), dry_run, byref(n))
        del pieces
        return n.value

    # ---- tenants ----

    def grant(self, key: Key, tenants: Union[str, Sequence[str]]) -> int:
        """Lets tenants see an element; how many did not before. quire.NotFound."""
        return self._change_grants(lib.quire_grant, key, tenants)

    def revoke(self, key: Key, tenants: Union[str, Sequence[str]]) -> int:
        """Tenants do not see an element any more; how many did before. quire.NotFound."""
        return self._change_grants(lib.quire_revoke, key, tenants)

    def _change_grants(self, function: Any, key: Key, tenants: Union[str, Sequence[str]]) -> int:
        data, pieces, n = key_bytes(key), Pieces(), ctypes.c_uint32()
        names, n_names = pieces.array(tenants_of(tenants) or ())
        self._call(function, data, len(data), names, n_names, byref(n))
        return n.value

    def drop_tenant(self, tenant: str) -> int:
        """From now on no element is this tenant's; how many it had."""
        data, n = key_bytes(tenant), ctypes.c_uint64()
        self._call(lib.quire_drop_tenant, data, len(data), byref(n))
        return n.value

    # ---- reading ----

    def get(self, key: Key) -> Optional[Element]:
        """An element: its vector as it is stored, and its attributes (None: it has none). None where there is none."""
        data, size = key_bytes(key), ctypes.c_size_t(4096)
        vector = np.empty(self._dim, np.float32)
        while True:
            room = ctypes.create_string_buffer(size.value)
            try:
                self._call(lib.quire_get, data, len(data), _arrays.address(vector), room, byref(size))
            except NotFound:
                return None
            except Error as e:
                if e.name != "QUIRE_ELIMIT" or size.value <= len(room):
                    raise
                continue  # attributes are larger; they may have become so
            text = room.raw[:size.value]
            return Element(key_text(data), vector, _arrays.json_of(text) if text else None)

    def __getitem__(self, key: Key) -> Element:
        found = self.get(key)
        if found is None:
            raise NotFound("there is no element %r" % (key,))
        return found

    def __contains__(self, key: Key) -> bool:
        data = key_bytes(key)
        try:
            self._call(lib.quire_get, data, len(data), None, None, None)
        except NotFound:
            return False
        return True

    def count(self, *, filter: Optional[str] = None, tenants: Tenants = None) -> int:
        """How many elements match."""
        where, pieces = _where(filter, tenants)
        n = ctypes.c_uint64()
        self._call(lib.quire_count, byref(where), byref(n))
        del pieces
        return n.value

    def __len__(self) -> int:
        return self.count()

    def keys(self, *, filter: Optional[str] = None, tenants: Tenants = None) -> Iterator[str]:
        """The keys of all elements that match, each once, as of the moment of the call, in no particular order. They
        are gathered first: the memory is that of the keys' bytes."""
        where, pieces = _where(filter, tenants)
        gathered, ends = bytearray(), _Ends()

        def visit(context: Optional[int], key: int, size: int) -> int:
            try:
                gathered.extend(ctypes.string_at(key, size))
                ends.add(len(gathered))
            except MemoryError:
                return -_abi.ERRORS["NOMEM"][0]
            return 0

        # in a thread, as an exception of a signal that came inside of visit would be lost
        _aside(lambda: self._call(lib.quire_each_key, byref(where), _VISIT(visit), None))
        del pieces
        return _each(bytes(gathered), ends.all())

    def __iter__(self) -> Iterator[str]:
        return self.keys()

    def items(self, *, filter: Optional[str] = None, tenants: Tenants = None) -> Iterator[Element]:
        """The elements that match when this is called, read one by one; those that are removed meanwhile are left
        out."""
        return (e for e in (self.get(key) for key in self.keys(filter=filter, tenants=tenants)) if e is not None)

    # ---- the whole of it ----

    def snapshot(self) -> Snapshot:
        """The collection as it is now, for searches. Closed at the latest with the collection."""
        snapshot = Snapshot(self)
        self._snapshots.add(snapshot)
        if self._owner is None:  # closed meanwhile, by another thread that waits for this
            snapshot.close()
            self._refuse()
        return snapshot

    def checkpoint(self) -> None:
        """All that was written is on the device when this returns, and the next opening replays nothing of it."""
        self._call(lib.quire_checkpoint)

    def seal(self) -> None:
        """Moves what is in memory to the disk."""
        self._call(lib.quire_seal)

    def compact(self) -> None:
        """Merges all sealed parts into one."""
        self._call(lib.quire_compact)

    def backup(self, to: Path) -> None:
        """A consistent copy in the new folder `to` on the same file system, by hard links; writes go on."""
        self._call(lib.quire_backup, path_bytes(to))

    @property
    def info(self) -> CollectionInfo:
        info = _abi.quire_collection_info()
        owner = self._owner
        if owner is None:
            self._refuse()
        try:
            lib.quire_collection_get_info(owner.pointer, byref(info))
        finally:
            owner = None
        return CollectionInfo(**plain_of(info, INFO_NAMES))

    @property
    def dim(self) -> int:
        return self._dim

    def __repr__(self) -> str:
        return "<quire.Collection %s of %d dimensions%s>" % (self._path, self._dim, ", closed" if self.closed else "")

    async def put_async(self, key: Key, vector: Any, attributes: Attributes = None, *, tenants: Tenants = None) -> bool:
        """put() for asyncio, in a thread."""
        row = np.array(_arrays.rows(vector, "the vector of %r" % (key,), self._type, self._dim, 1))
        text = _arrays.json_bytes(attributes)
        return await offload(self._put, key_bytes(key), row.__array_interface__["data"][0], text, tenants_of(tenants),
                             kept=row)


def _close(pointer: int) -> None:
    err = _abi.quire_error()
    code = lib.quire_collection_close(pointer, byref(err))
    if code < 0 and code != -_abi.ERRORS["CLOSED"][0]:
        raise error_of(code, err)


class _Ends:
    """Whole numbers, packed."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, n: int) -> None:
        self._bytes += n.to_bytes(8, "little")

    def all(self) -> npt.NDArray[np.uint64]:
        return np.frombuffer(bytes(self._bytes), "<u8")


def _each(keys: bytes, ends: npt.NDArray[np.uint64]) -> Iterator[str]:
    begin = 0
    for end in ends:
        yield key_text(keys[begin:int(end)])
        begin = int(end)


def _where(filter: Optional[str], tenants: Tenants) -> Tuple[_abi.quire_where, Pieces]:
    where, pieces = _abi.quire_where(), Pieces()
    if filter is not None:
        text = filter.encode()
        where.filter, where.filter_bytes = pieces.pointer(text), len(text)
    names = tenants_of(tenants)
    if names is not None:
        where.tenants, where.n_tenants = pieces.array(names)
    return where, pieces


def _aside(call: Callable[[], object]) -> None:
    """Runs it in a thread, and raises here what it raised."""
    failed: List[BaseException] = []

    def work() -> None:
        try:
            call()
        except BaseException as e:  # noqa: B902 - raised below
            failed.append(e)

    thread = threading.Thread(target=work, name="quire")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]


def _spread(call: Callable[[int], Any], n: int, threads: int) -> List[Any]:
    """call(0), call(1), ... on so many threads. The first error, or a signal, ends it: no more are begun."""
    if not isinstance(threads, int) or threads < 0:
        raise Invalid("threads is %r: a whole number from 0" % (threads,))
    threads = min(threads or os.cpu_count() or 1, n)
    if threads <= 1:
        return [call(i) for i in range(n)]
    answers: List[Any] = [None] * n
    numbers = iter(range(n))
    lock = threading.Lock()
    failed: List[BaseException] = []

    def work() -> None:
        while not failed:
            with lock:
                i = next(numbers, None)
            if i is None:
                return
            try:
                answers[i] = call(i)
            except BaseException as e:  # noqa: B902 - raised below
                failed.append(e)

    workers = [threading.Thread(target=work, name="quire") for _ in range(threads)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except BaseException as e:
        failed.append(e)
        for worker in workers:
            worker.join()
        raise
    if failed:
        raise failed[0]
    return answers
