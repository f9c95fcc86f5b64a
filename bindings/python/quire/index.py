"""Index: built once, then only read; docs/library.md has what it is.

Threads: any number of threads may search one Index at once, and searches run outside of Python's lock. close() may be
called from any thread at any time.
"""
from __future__ import annotations

import asyncio
import ctypes
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _abi, _arrays
from ._arrays import Attributes, Key, Pieces, choice, key_bytes, key_text, name_of, tenants_of
from ._handle import Handle, Owner, Progress, run_long
from ._library import lib
from ._search import HIT, Hits, Options, Tenants, options, search_one
from .aio import Searcher, searcher_of, searchers
from .errors import Corrupt, Invalid, WrongDimension, WrongType, error_of, raise_error

Path = Union[str, "os.PathLike[str]"]
addressof, byref = ctypes.addressof, ctypes.byref
_search_batch = lib.quire_search_batch
_READ = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_void_p,
                         ctypes.c_void_p)
_FINDING = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
# files of vectors: elements, and bytes of the header (u32 rows, u32 dim)
_FILES = {".fbin": "f32", ".u8bin": "u8", ".i8bin": "i8", ".bf16bin": "bf16"}


@dataclass(frozen=True)
class IndexInfo:
    """What an opened index is (struct quire_info)."""

    rows: int
    dim: int
    type: str
    metric: str
    index: str
    slot: str
    block_bytes: int
    blocks: int
    slots_per_block: int
    lists: int
    list_entries: int
    code_bits: int
    edge_codes: bool
    resident_bytes: int
    cache_bytes: int
    memory_bytes: int
    index_bytes: int
    raw_bytes: int
    direct_io: bool
    user_keys: bool
    format_version: int


@dataclass(frozen=True)
class VerifyReport:
    """What verify() has looked at, and a sentence for each damage."""

    files: int
    sections: int
    blocks: int
    rows: int
    edges: int
    keys: int
    lists: int
    list_entries: int
    rows_reachable: int
    rows_by_edges: int
    blocks_without_entry: int
    findings: int
    code_error: float
    code_error_max: float
    sentences: Tuple[str, ...] = ()


def path_bytes(path: Path) -> bytes:
    data = os.fsencode(path)
    if b"\0" in data:
        raise Invalid("the path %r holds a zero byte" % (path,))
    return data


def plain_of(struct: Any, names: Mapping[str, Tuple[str, str]]) -> Dict[str, Any]:
    """Fields of a struct; those in names are enums."""
    out = {}
    for name, _ in struct._fields_:
        value = getattr(struct, name)
        out[name] = name_of(*names[name], value) if name in names else value
    return out


INFO_NAMES = {"type": ("quire_type", "QUIRE_TYPE_"), "metric": ("quire_metric", "QUIRE_METRIC_"),
              "index": ("quire_index_kind", "QUIRE_INDEX_"), "slot": ("quire_slot", "QUIRE_SLOT_")}


def read_vectors(path: Path) -> npt.NDArray[Any]:
    """The vectors of a file as an array that is read when it is used (mmap): .fbin, .u8bin, .i8bin, .bf16bin (as uint16)
    or .npy. Do not change the file meanwhile: a file that is cut short ends the process that reads it."""
    name = os.fspath(path)
    ending = os.path.splitext(name)[1]
    if ending == ".npy":
        array: npt.NDArray[Any] = np.load(name, mmap_mode="r")
        if array.ndim != 2:
            raise WrongDimension("%s has the shape %s: rows x dim is needed" % (name, array.shape))
        return array
    if ending not in _FILES:
        raise Invalid("%s: files end in %s or .npy" % (name, ", ".join(_FILES)))
    dtype = _arrays.dtype_of(_FILES[ending])
    size = os.path.getsize(name)
    with open(name, "rb") as f:
        head = f.read(8)
    rows, dim = (int(n) for n in np.frombuffer(head.ljust(8, b"\0"), "<u4"))
    if size != 8 + rows * dim * dtype.itemsize or rows == 0 or dim == 0:
        raise Corrupt("%s says %d rows of %d, which are %d bytes; it has %d"
                      % (name, rows, dim, 8 + rows * dim * dtype.itemsize, size))
    return np.memmap(name, dtype=dtype, mode="r", offset=8, shape=(rows, dim))


def _texts(values: Optional[Sequence[Optional[bytes]]], rows: int, what: str, pieces: Pieces,
           lengths: bool) -> Tuple[Optional[int], Optional[int]]:
    """One text per row: addresses of the array of them and of the array of their lengths."""
    if values is None:
        return None, None
    if len(values) != rows:
        raise Invalid("%d %s for %d rows: one per row is needed" % (len(values), what, rows))
    pointers = pieces.keep((ctypes.c_char_p * max(rows, 1))(*values))
    sizes = pieces.keep((ctypes.c_uint32 * max(rows, 1))(*(len(v or b"") for v in values))) if lengths else None
    return ctypes.addressof(pointers), ctypes.addressof(sizes) if sizes is not None else None


class Index(Handle):
    """An opened index. `Index.build(...)` makes one, `Index(path)` opens one that is there."""

    __slots__ = ("_info", "_rows", "_dim", "_latest")
    _latest: Tuple[Optional[Tuple[object, ...]], Any]  # what the latest search asked for, and the Options of it

    def __init__(self, path: Path, *, memory_bytes: int = 0, cache: bool = True, engine: str = "auto",
                 reads_max: int = 0) -> None:
        """memory_bytes: what codes and cached blocks may take, 0: all that there is. cache: keep blocks in memory.
        engine: "auto", "uring" or "threads"."""
        o = _abi.quire_open_options()
        lib.quire_open_options_init(byref(o))
        o.memory_bytes, o.no_cache, o.reads_max = memory_bytes, not cache, reads_max
        o.engine = choice("quire_engine_kind", "QUIRE_ENGINE_", engine, "engine")
        out, err = ctypes.c_void_p(), _abi.quire_error()
        code = lib.quire_open(path_bytes(path), byref(o), byref(out), byref(err))
        if code < 0:
            raise_error(code, err)
        info = _abi.quire_info()
        lib.quire_get_info(out, byref(info))
        self._info = IndexInfo(**plain_of(info, INFO_NAMES))
        self._rows, self._dim = self._info.rows, self._info.dim
        self._latest = None, None
        self._begin(Owner(out.value or 0, lib.quire_close, "the index %s" % os.fspath(path)))

    # ---- building ----

    @classmethod
    def build(cls, path: Path, vectors: Any, *, metric: str = "l2", type: Optional[str] = None,
              index: str = "pagegraph", slot: str = "auto", keys: Optional[Sequence[Key]] = None,
              attributes: Optional[Sequence[Attributes]] = None,
              tenants: Optional[Sequence[Union[str, Sequence[str], None]]] = None,
              columns: Optional[Mapping[str, str]] = None, block_bytes: int = 0, code_bits: int = 0, degree: int = 0,
              build_beam: int = 0, threads: int = 0, seed: int = 0, memory_bytes: int = 0,
              build_memory_bytes: int = 0, list_rows: int = 0, replicas: float = 0.0, resume: bool = False,
              calibration_queries: int = 0, progress: Optional[Progress] = None) -> "Index":
        """Builds an index in the new folder `path` and opens it.

        vectors: rows x dim, float32, float16, int8 or uint8 (bfloat16: of ml_dtypes, or uint16 with type="bf16"): an
        array, or a file as read_vectors takes it. A C-contiguous array is read where it stands, also a memmap; of any
        other layout, and of anything else that has shape, dtype and slices (h5py), some rows at a time are copied.
        Other numbers (float64) are an error: convert them.

        keys, attributes (dict or JSON), tenants (names that may see the row): one per row. columns: declared fields of
        the attributes, such as {"year": "integer"}. progress(phase, done, total) is called now and then, by
        the calling thread; what it raises ends the build, as Ctrl-C does, and nothing is left behind (with resume=True
        the finished part is). Vectors that are copied are sliced in another thread."""
        kept: List[BaseException] = []  # what reading the vectors raised
        pieces = Pieces()
        if isinstance(vectors, (str, os.PathLike)):
            if os.path.splitext(os.fspath(vectors))[1] == ".bf16bin":
                type = type or "bf16"
            vectors = read_vectors(vectors)
        given, rows = _input(vectors, type, kept, pieces)
        o = _abi.quire_build_options()
        lib.quire_build_options_init(byref(o))
        o.metric = choice("quire_metric", "QUIRE_METRIC_", metric, "metric")
        o.index = choice("quire_index_kind", "QUIRE_INDEX_", index, "index")
        o.slot = choice("quire_slot", "QUIRE_SLOT_", slot, "slot")
        o.block_bytes, o.code_bits, o.degree, o.build_beam = block_bytes, code_bits, degree, build_beam
        o.threads, o.seed, o.memory_bytes = threads, seed, memory_bytes
        o.build_memory_bytes, o.list_rows, o.replicas, o.resume = build_memory_bytes, list_rows, replicas, resume
        o.calibration_queries = calibration_queries
        o.keys, o.key_bytes = _texts(None if keys is None else [key_bytes(k) for k in keys], rows, "keys", pieces, True)
        o.attributes, o.attribute_bytes = _texts(
            None if attributes is None else [_arrays.json_bytes(a) for a in attributes], rows, "attributes", pieces,
            True)
        o.tenants, _ = _texts(None if tenants is None else [_grants(t) for t in tenants], rows, "tenants", pieces,
                              False)
        o.columns, o.n_columns = pieces.columns(columns)
        name, err = path_bytes(path), _abi.quire_error()

        def work(report: Any) -> int:
            o.progress = report.value
            code: int = lib.quire_build_from(name, byref(given), byref(o), byref(err))
            return code

        code = run_long(work, progress)
        if kept:
            raise kept[0]
        if code < 0:
            raise_error(code, err)
        return cls(path)

    # ---- searching ----

    def search(self, query: Any, k: int = 10, *, recall: Optional[float] = None, effort: Optional[int] = None,
               exact: bool = False, filter: Optional[str] = None, tenants: Tenants = None, estimate: bool = False,
               farthest: Optional[float] = None, reads_max: Optional[int] = None,
               filter_effort: Optional[int] = None, stats: bool = False) -> Hits:
        """The k nearest rows to one query.

        query: dim numbers; a contiguous float32 array is not copied. recall: the share of the true neighbours to find
        (0.95 without recall and effort); effort: the width of the search instead. exact: compare all rows. filter: an
        expression over the attributes (docs/filters.md). tenants: only rows granted to one of them; an empty list sees
        nothing, None everything. estimate: distances may be estimates where the order is certain. farthest: no rows
        beyond that distance are looked for. reads_max: blocks that may be read. stats: fill Hits.stats."""
        owner = self._owner
        if owner is None:
            self._refuse()
        try:
            if tenants is not None:
                tenants = tenants_of(tenants)
            asked = (k, recall, effort, exact, filter, tenants, estimate, farthest, reads_max, filter_effort)
            latest, o = self._latest
            if asked != latest:
                o = self._options(self._dim, *asked)
                self._latest = asked, o
            figures = (_abi.quire_search_stats * 1)() if stats else None
            at = addressof(figures) if figures is not None else 0
            found = search_one(owner.pointer, query, o.address, o.room, self._dim, at)
            if found is None:  # not float32, or not as the library reads it
                q = _arrays.query(query)
                if len(q) != self._dim:
                    o = self._options(len(q), *asked)  # the library says that it is not the index's
                found = search_one(owner.pointer, q, o.address, o.room, len(q), at)
        finally:
            owner = None
        if type(found) is tuple:
            raise_error(found[0], _abi.quire_error.from_buffer_copy(found[1]))
        return Hits(found, None, figures)

    def _options(self, dim: int, k: int, recall: Optional[float], effort: Optional[int], exact: bool,
                 filter: Optional[str], tenants: Tenants, estimate: bool, farthest: Optional[float],
                 reads_max: Optional[int], filter_effort: Optional[int]) -> Options:
        return options(min(k, self._rows) if k <= _abi.QUIRE_K_MAX else k, dim, recall, effort, exact, filter, tenants,
                       estimate, farthest, reads_max, filter_effort)

    def search_batch(self, queries: Any, k: int = 10, *, lanes: int = 0, inflight: int = 0,
                     recall: Optional[float] = None, effort: Optional[int] = None, exact: bool = False,
                     filter: Optional[str] = None, tenants: Tenants = None, estimate: bool = False,
                     farthest: Optional[float] = None, reads_max: Optional[int] = None,
                     filter_effort: Optional[int] = None, stats: bool = False) -> Hits:
        """The k nearest rows to each of n queries (n x dim) with one call: `inflight` searches interleaved on each of
        `lanes` threads (0: 1 lane, 32 in flight). The rest as search()."""
        owner = self._owner
        if owner is None:
            self._refuse()
        try:
            q = _arrays.queries(queries)
            n = len(q)
            o = self._options(q.shape[1], k, recall, effort, exact, filter, tenants, estimate, farthest, reads_max,
                              filter_effort)
            hits = np.empty((n, min(o.k, self._rows)), HIT)
            counts = np.zeros(n, np.uint32)
            figures = (_abi.quire_search_stats * n)() if stats else None
            err = _abi.quire_error()
            code = 0
            if n > 0:
                code = _search_batch(owner.pointer, _arrays.address(q), n, o.reference, lanes, inflight,
                                     _arrays.address(hits), _arrays.address(counts), figures, byref(err))
        finally:
            owner = None
        if code < 0:
            raise_error(code, err)
        if n > 0 and counts.min() < hits.shape[1]:
            missing = np.arange(hits.shape[1])[None, :] >= counts[:, None]
            hits[missing] = (-1, 0, np.inf, 0)
        return Hits(hits, counts, figures)

    async def search_async(self, query: Any, k: int = 10, *, recall: Optional[float] = None,
                           effort: Optional[int] = None, exact: bool = False, filter: Optional[str] = None,
                           tenants: Tenants = None, estimate: bool = False, farthest: Optional[float] = None,
                           reads_max: Optional[int] = None, filter_effort: Optional[int] = None,
                           stats: bool = False) -> Hits:
        """search() for asyncio: the event loop waits for the disk, no thread does. Many at once are interleaved."""
        return await self._start(query, k, recall, effort, exact, filter, tenants, estimate, farthest, reads_max,
                                 filter_effort, stats)

    def _start(self, query: Any, k: int, recall: Optional[float], effort: Optional[int], exact: bool,
               filter: Optional[str], tenants: Tenants, estimate: bool, farthest: Optional[float],
               reads_max: Optional[int], filter_effort: Optional[int], stats: bool) -> "asyncio.Future[Hits]":
        searcher: Searcher = searcher_of(asyncio.get_running_loop())
        owner = self._owner
        if owner is None:
            self._refuse()
        try:
            q = _arrays.query(query)
            o = self._options(len(q), k, recall, effort, exact, filter, tenants, estimate, farthest, reads_max,
                              filter_effort)
            future, code, err = searcher.start(owner, q, o, stats)
        finally:
            owner = None
        if code < 0:
            raise error_of(code, err)
        return future

    def _let_go(self, owner: Owner) -> None:
        for searcher in searchers():
            searcher.finish(owner)

    # ---- keys, vectors, attributes ----

    def lookup(self, key: Key) -> int:
        """The row of a key; quire.NotFound."""
        data, row = key_bytes(key), ctypes.c_uint32()
        self._call(lib.quire_lookup, data, len(data), byref(row))
        return row.value

    def key(self, row: int) -> str:
        """The key of a row (of Hits.rows). Keys that are not UTF-8 come with surrogates, and are taken back so."""
        room, size = ctypes.create_string_buffer(_abi.QUIRE_KEY_BYTES_MAX), ctypes.c_size_t()
        self._call(lib.quire_key, _row(row), room, byref(size))
        return key_text(room.raw[:size.value])

    def keys(self, hits: Hits) -> List[Any]:
        """Keys of all rows of an answer: a list, or of a batch a list of lists. About one read each."""
        if hits.array.ndim == 1:
            return [self.key(int(row)) for row in hits.rows]
        return [[self.key(int(row)) for row in rows[:n]] for rows, n in zip(hits.rows, hits.counts)]

    def vector(self, row: int) -> npt.NDArray[np.float32]:
        """The stored vector of a row, an approximation where slots have less precision."""
        vector = np.empty(self._info.dim, np.float32)
        self._call(lib.quire_vector, _row(row), _arrays.address(vector))
        return vector

    def attributes(self, row: int) -> Any:
        """The attributes of a row as a dict; None where it has none."""
        size = ctypes.c_size_t(1024)
        for _ in range(2):
            room = ctypes.create_string_buffer(size.value)
            owner = self._owner
            if owner is None:
                self._refuse()
            err = _abi.quire_error()
            try:
                code = lib.quire_attributes(owner.pointer, _row(row), room, byref(size), byref(err))
            finally:
                owner = None
            if code == 0:
                return _arrays.json_of(room.raw[:size.value])
            if code != -_abi.ERRORS["LIMIT"][0] or size.value <= len(room):
                break
        if code == -_abi.ERRORS["NOTFOUND"][0] and row < self._rows:
            return None
        raise_error(code, err)

    # ---- about it ----

    @property
    def info(self) -> IndexInfo:
        """What it is: rows, dim, metric, memory and disk."""
        return self._info

    @property
    def dim(self) -> int:
        return self._info.dim

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return "<quire.Index of %d rows, %d dimensions, %s%s>" % (
            self._rows, self._info.dim, self._info.metric, ", closed" if self.closed else "")

    def calibration(self) -> List[Dict[str, Any]]:
        """Recall and reads by effort, as measured when it was built; empty: it is too small."""
        points = (_abi.quire_calibration_point * 4096)()
        owner = self._owner
        if owner is None:
            self._refuse()
        try:
            n = lib.quire_calibration(owner.pointer, points, len(points))
        finally:
            owner = None
        return [plain_of(p, {"distance": ("quire_distance", "QUIRE_DISTANCE_")}) for p in points[:min(n, len(points))]]

    @staticmethod
    def verify(path: Path, progress: Optional[Progress] = None) -> VerifyReport:
        """Reads every byte of an index and checks it. Damages are in the report, not an exception; an index that cannot
        be read at all is one."""
        sentences: List[str] = []
        name, report, err = path_bytes(path), _abi.quire_verify_report(), _abi.quire_error()
        finding = _FINDING(lambda context, sentence: sentences.append(sentence.decode("utf-8", "replace")))
        code = run_long(lambda told: int(lib.quire_verify(name, ctypes.cast(finding, ctypes.c_void_p), told, None,
                                                          byref(report), byref(err))), progress)
        if code < 0 and not (code == Corrupt.code and report.findings > 0):
            raise_error(code, err)
        return VerifyReport(**plain_of(report, {}), sentences=tuple(sentences))


def _row(row: Any) -> int:
    if not isinstance(row, (int, np.integer)) or not 0 <= row < 2**32:
        raise Invalid("row is %r: a whole number from 0" % (row,))
    return int(row)


def _grants(tenants: Union[str, Sequence[str], None]) -> Optional[bytes]:
    names = _arrays.tenants_of(tenants)
    if names is None:
        return None
    for name in names:
        if not name or " " in name:
            raise Invalid("the tenant %r of a row: names are not empty and have no blanks" % (name,))
    return " ".join(names).encode()


def _input(vectors: Any, type_name: Optional[str], kept: List[BaseException],
           pieces: Pieces) -> Tuple[_abi.quire_input, int]:
    """struct quire_input of what is to be built, and its rows: in place where it can be read so, otherwise through a callback."""
    if not all(hasattr(vectors, a) for a in ("shape", "dtype", "__getitem__")):
        vectors = np.asarray(vectors)
        if vectors.dtype.kind in "fiu":  # lists of Python's numbers
            vectors = np.asarray(vectors, dtype=_arrays.dtype_of(type_name) if type_name in ("f16", "i8", "u8")
                                 else np.float32)
    if len(vectors.shape) != 2:
        raise WrongDimension("the vectors have the shape %s: rows x dim is needed" % (tuple(vectors.shape),))
    kind = _arrays.type_of(vectors)
    if type_name == "bf16" and vectors.dtype == np.uint16:
        kind = "bf16"
    if kind is None or (type_name is not None and type_name != kind):
        raise WrongType("the vectors have elements of %s%s: float32, float16, int8 or uint8 are built as they are; "
                        "convert others, such as by vectors.astype(numpy.float32)"
                        % (vectors.dtype, " and type is %r" % type_name if type_name else ""))
    rows, dim = (int(n) for n in vectors.shape)
    given = _abi.quire_input(rows=rows, dim=dim, type=_arrays.TYPES[kind])
    if isinstance(vectors, np.ndarray) and _arrays.plain(vectors):
        given.vectors = pieces.address(vectors)
        return given, rows
    dtype = _arrays.dtype_of(kind)

    def read(context: Optional[int], row: int, n: int, out: int, err: int) -> int:
        try:
            target = np.ctypeslib.as_array(ctypes.cast(out, ctypes.POINTER(ctypes.c_uint8)),
                                           (n * dim * dtype.itemsize,))
            part = np.asarray(vectors[row:row + n])
            if part.shape != (n, dim):
                raise WrongDimension("rows %d to %d have the shape %s" % (row, row + n, part.shape))
            if part.dtype.name == "bfloat16":
                part = part.view(np.uint16)
            target.view(dtype).reshape(n, dim)[:] = part
            return 0
        except BaseException as e:  # noqa: B902 - goes on where the build returns
            kept.append(e)
            return -_abi.ERRORS["CANCELLED"][0]

    given.read = ctypes.cast(pieces.keep(_READ(read)), ctypes.c_void_p).value
    return given, rows
