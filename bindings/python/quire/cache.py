"""Cache: answers of an expensive model, found again by the same question or by one that means the same; docs/cache.md
has the meaning of all of it.

Threads: any number of threads may use one Cache for anything, and calls run outside of Python's lock. close() may be
called from any thread at any time: callers that wait for an answer get a miss. A folder belongs to one process at a
time (quire.Busy).
"""
from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from dataclasses import dataclass
from typing import Any, List, Mapping, Optional, Sequence, Tuple, Union

from . import _abi, _arrays
from ._arrays import Pieces, bytes_at, choice, key_bytes, name_of, text_at
from ._handle import Handle, Log, Owner, log_callback
from ._library import lib
from ._offload import offload
from .errors import Invalid, NotFound, error_of, raise_error
from .index import Path, path_bytes

byref = ctypes.byref
Text = Union[str, bytes]
_FOREVER = 2**64 - 1
_WAIT_ASIDE_MS = 100  # waits of the main thread beyond this leave it free for signals
_free = ctypes.CDLL(None).free
_free.argtypes, _free.restype = [ctypes.c_void_p], None


@dataclass(frozen=True)
class Candidate:
    """An entry that was near, and what became of it."""

    id: int
    similarity: float
    verdict: str
    why: str


@dataclass(frozen=True)
class CacheAnswer:
    """What came of a question, and why (struct quire_cache_answer). Similarities are cosines from 0 to 1."""

    #: "miss", "hit" (by nearness), "exact" (by hash), "stale", "negative", "bypass", "audit" or "vector"
    status: str
    #: one sentence
    reason: str
    id: int
    similarity: Optional[float]
    threshold: float
    guard: Optional[str]
    guard_why: str
    guards_skipped: bool
    age_ms: int
    ttl_ms: int
    #: whoever holds it computes the answer, and gives it to put(), or tells fail() or negative(); None: no lease
    lease: Optional[str]
    lease_ms: int
    #: to label the pair by, audit_put(); 0: none
    audit: int
    waited_ms: int
    candidates: Tuple[Candidate, ...]
    #: None: there is none
    value: Optional[bytes]
    chunks: Tuple[bytes, ...]
    #: the question that it was the answer to, and the model
    question: str
    model: str
    tokens_in: int
    tokens_out: int
    llm_ms: int
    cost: float

    @property
    def served(self) -> bool:
        """Whether value may be given to the user. (The value of an audit is for comparing only.)"""
        return self.value is not None and self.status != "audit"

    @property
    def text(self) -> Optional[str]:
        """value as text."""
        return None if self.value is None else self.value.decode("utf-8", "replace")


@dataclass(frozen=True)
class PutResult:
    """What became of an answer."""

    #: "stored", "replaced", "exists", "not_admitted", "outdated", "no_room" or "off"
    outcome: str
    id: int
    #: wall clock in ms since 1970; None: never
    expire_ms: Optional[int]
    evicted: int
    woken: int


@dataclass(frozen=True)
class Audit:
    """A pair that waits for a label: is the entry's value right for this text?"""

    number: int
    id: int
    similarity: float
    category: str
    text: str
    entry_text: str
    entry_value: bytes


@dataclass(frozen=True)
class CacheStats:
    """Figures of a cache or of one category (struct quire_cache_stats)."""

    entries: int
    memory_bytes: int
    disk_bytes: int
    document_bytes: int
    pinned: int
    requests: int
    hits: int
    exact: int
    stale: int
    audits: int
    misses: int
    negative: int
    bypassed: int
    waited: int
    puts: int
    stored: int
    not_admitted: int
    outdated: int
    no_room: int
    evicted_own: int
    evicted_cache: int
    expired: int
    invalidated: int
    replaced: int
    removed: int
    lost: int
    guarded: int
    vetoed: int
    labels: int
    false_hits: int
    feedback_good: int
    feedback_bad: int
    tokens_saved: int
    llm_ms_saved: int
    cost_saved: float
    cost_audits: float
    threshold: float
    lam: float
    get_p50_us: float
    get_p99_us: float
    get_p999_us: float
    put_p50_us: float
    put_p99_us: float
    put_p999_us: float
    sealed_entries: int
    sealed_segments: int
    sealed_disk_bytes: int
    sealed_memory_bytes: int


@dataclass(frozen=True)
class TunePoint:
    """At this threshold: the share that is served, and how much of it is wrong."""

    similarity: float
    served: float
    wrong: float
    bound: float


@dataclass(frozen=True)
class Tune:
    """The curve of a category, and what the rule would choose."""

    threshold: float
    delta: float
    requests: int
    labels: int
    points: Tuple[TunePoint, ...]


def _words(settings: Mapping[str, Any]) -> List[str]:
    """risk=0.02, guard=["number"], sliding=True: RISK 0.02 GUARD number SLIDING yes."""
    words: List[str] = []
    for name, value in settings.items():
        if value is None:
            continue
        several = value if isinstance(value, (list, tuple)) else [value]
        words.append(name.upper())
        words += [("yes" if v else "no") if isinstance(v, bool) else str(v) for v in several]
    return words


class Cache(Handle):
    """A semantic cache in a folder."""

    __slots__ = ("_dim", "_type", "_path")

    def __init__(self, path: Path, *, dim: int, type: str = "f32", create: bool = False, encoder: Optional[str] = None,
                 memory_bytes: int = 0, disk_bytes: int = 0, scope_keys: Sequence[str] = (),
                 require_scope: bool = False, durability: str = "everysec", guard_folder: Optional[Path] = None,
                 engine: str = "auto", seed: int = 0, seal_rows: int = 0, log: Optional[Log] = None) -> None:
        """Opens the cache in the folder `path`; create: makes it where there is none. What is given of a cache that is
        there must be so (quire.WrongDimension, WrongType, Invalid).

        dim, type ("f32", "f16" or "i8"): of the vectors. encoder: name@revision of what makes them. scope_keys: keys
        that scopes may have; require_scope: no request may leave one out. memory_bytes, disk_bytes: limits, fixed when
        it is made. The rest is described at struct quire_cache_options in quire.h."""
        if not isinstance(dim, int) or not 1 <= dim <= _abi.QUIRE_DIM_MAX:
            raise Invalid("dim is %r: 1 to %d, the dimensions of the vectors" % (dim, _abi.QUIRE_DIM_MAX))
        o, pieces = _abi.quire_cache_options(), Pieces()
        lib.quire_cache_options_init(byref(o))
        o.create, o.dim, o.require_scope = create, dim, require_scope
        o.type = choice("quire_type", "QUIRE_TYPE_", type, "type")
        o.durability = choice("quire_durability", "QUIRE_DURABLE_", durability, "durability")
        o.engine = choice("quire_engine_kind", "QUIRE_ENGINE_", engine, "engine")
        o.memory_bytes, o.disk_bytes, o.seed, o.seal_rows = memory_bytes, disk_bytes, seed, seal_rows
        if encoder is not None:
            o.encoder = pieces.pointer(encoder.encode() + b"\0")
        if guard_folder is not None:
            o.guard_folder = pieces.pointer(path_bytes(guard_folder) + b"\0")
        if scope_keys:
            o.scope_keys, o.n_scope_keys = pieces.array(scope_keys)
        callback = log_callback(log) if log is not None else None
        if callback is not None:
            o.log = ctypes.cast(callback, ctypes.c_void_p).value
        out, err = ctypes.c_void_p(), _abi.quire_error()
        code = lib.quire_cache_open(path_bytes(path), byref(o), byref(out), byref(err))
        if code < 0:
            raise_error(code, err)
        self._dim, self._type, self._path = dim, type, os.fspath(path)
        self._begin(Owner(out.value or 0, _close, "the cache %s" % self._path, callback))

    def _let_go(self, owner: Owner) -> None:
        lib.quire_cache_stop(owner.pointer, None)  # who waits gets a miss

    # ---- categories ----

    def set_category(self, name: str, **settings: Any) -> None:
        """Makes a category, or changes one: set_category("faq", risk=0.02, ttl=3600000). docs/cache-settings.md has
        the settings; lists are several words, True and False are yes and no, None is not given."""
        pieces = Pieces()
        words, n = pieces.array(_words(settings))
        self._call(lib.quire_cache_set_category, pieces.piece(name), words, n)

    def drop_category(self, name: str) -> None:
        """Removes a category with its entries. quire.NotFound."""
        pieces = Pieces()
        self._call(lib.quire_cache_drop_category, pieces.piece(name))

    # ---- questions and answers ----

    def _query(self, pieces: Pieces, category: str, text: Optional[Text], vector: Any,
               scope: Optional[Mapping[str, str]], hash: Optional[Text], compat: Optional[Text],
               encoder: Optional[str]) -> Any:
        q = _abi.quire_cache_query()
        q.category = pieces.piece(category)
        q.scope, q.n_scope = pieces.pairs(scope or {})
        q.text, q.hash, q.compat, q.encoder = (pieces.piece(v) for v in (text, hash, compat, encoder))
        if vector is not None:
            q.vector = pieces.address(_arrays.rows(vector, "the vector", self._type, self._dim, 1))
        return q

    def get(self, category: str, *, text: Optional[Text] = None, vector: Any = None,
            scope: Optional[Mapping[str, str]] = None, hash: Optional[Text] = None, compat: Optional[Text] = None,
            encoder: Optional[str] = None, similarity: float = 0.0, max_age_ms: int = 0, need: Sequence[str] = (),
            wait_ms: int = 0, lease: bool = True, stale_ok: bool = False, explain: bool = False, probe: bool = False,
            on_error: bool = False) -> CacheAnswer:
        """Asks for an answer; see CacheAnswer for what may come of it. A miss is an answer, not an exception.

        text: of the question, guards need it; vector: of the text (None: only the hash counts). scope: whose it is
        ({"tenant": "acme"}), never crossed. hash: the canonical request, or a hash of it; the text stands for it.
        compat: what else must be equal (system prompt, parameters). similarity: a threshold that may only tighten.
        need: tags that an answer must have. wait_ms: for the answer to a question that another caller is computing.
        lease=False: a miss gives none. probe: without a vector, says "vector" if one is worth making. on_error: the
        model has failed, what ended a while ago will do."""
        pieces = Pieces()
        q = self._query(pieces, category, text, vector, scope, hash, compat, encoder)
        q.similarity, q.max_age_ms, q.wait_ms = similarity, max_age_ms, wait_ms
        q.no_lease, q.stale_ok, q.explain, q.probe, q.on_error = not lease, stale_ok, explain, probe, on_error
        if need:
            q.need, q.n_need = pieces.array(need)
        if wait_ms > _WAIT_ASIDE_MS and threading.current_thread() is threading.main_thread():
            return self._get_aside(q, pieces)
        return self._get(q, pieces)

    def _get(self, q: Any, pieces: Pieces) -> CacheAnswer:
        answer = _abi.quire_cache_answer()
        self._call(lib.quire_cache_get, byref(q), byref(answer))
        try:
            return _answer_of(answer)
        finally:
            lib.quire_cache_answer_free(byref(answer))

    def _get_aside(self, q: Any, pieces: Pieces) -> CacheAnswer:
        """A long wait in a thread, so that this one, the main thread, sees Ctrl-C. After that nobody wants the answer:
        a lease that comes of it goes to the next caller."""
        lock = threading.Lock()
        answers: List[CacheAnswer] = []
        failed: List[BaseException] = []
        given_up = False

        def work() -> None:
            try:
                answer = self._get(q, pieces)
                with lock:
                    answers.append(answer)
                    unwanted = given_up
                if unwanted and answer.lease:
                    self.fail(answer.lease)
            except BaseException as e:  # noqa: B902 - raised below, if anybody is there
                failed.append(e)

        thread = threading.Thread(target=work, name="quire", daemon=True)
        thread.start()
        try:
            thread.join()
        except BaseException:
            with lock:
                given_up = True
            if answers and answers[0].lease:
                self.fail(answers[0].lease)
            raise
        if failed:
            raise failed[0]
        return answers[0]

    def put(self, category: str, value: Union[Text, Sequence[Text]], *, lease: Optional[str] = None,
            text: Optional[Text] = None, vector: Any = None, scope: Optional[Mapping[str, str]] = None,
            hash: Optional[Text] = None, compat: Optional[Text] = None, encoder: Optional[str] = None, ttl_ms: int = 0,
            tags: Sequence[str] = (), model: Optional[str] = None, tokens_in: int = 0, tokens_out: int = 0,
            llm_ms: int = 0, cost: float = 0.0, pin: bool = False, if_new: bool = False) -> PutResult:
        """Stores an answer, and gives it to those who wait for it. value: text or bytes, or several pieces whose borders
        are kept. lease: of the miss. ttl_ms: 0 is the category's. The rest as in get()."""
        pieces, e = Pieces(), _abi.quire_cache_entry()
        q = self._query(pieces, category, text, vector, scope, hash, compat, encoder)
        for name in ("category", "scope", "n_scope", "hash", "compat", "encoder", "vector", "text"):
            setattr(e, name, getattr(q, name))
        e.lease, e.model = pieces.piece(lease), pieces.piece(model)
        chunks: Sequence[Text] = [value] if isinstance(value, (str, bytes)) else value
        e.chunks, e.n_chunks = pieces.array(chunks)
        e.ttl_ms, e.tokens_in, e.tokens_out, e.llm_ms = ttl_ms, tokens_in, tokens_out, llm_ms
        e.cost, e.pin, e.if_new = cost, pin, if_new
        if tags:
            e.tags, e.n_tags = pieces.array(tags)
        result = _abi.quire_cache_put_result()
        self._call(lib.quire_cache_put, byref(e), byref(result))
        return PutResult(name_of("quire_cache_put_outcome", "QUIRE_CACHE_", result.outcome), result.id,
                         None if result.expire_ms == _FOREVER else result.expire_ms, result.evicted, result.woken)

    async def get_async(self, category: str, **named: Any) -> CacheAnswer:
        """get() for asyncio. Waits have threads of their own, 256 at most at a time."""
        if named.get("vector") is not None:  # of the caller's, who may go on writing into it
            named["vector"] = _arrays.rows(named["vector"], "the vector", self._type, self._dim, 1).copy()
        call = offload(self.get, category, waits=named.get("wait_ms", 0) > 0, **named)
        task = asyncio.ensure_future(call)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._give_back)
            raise

    def _give_back(self, task: "asyncio.Future[CacheAnswer]") -> None:
        """Nobody wants the answer any more: a lease that came of it goes to the next caller."""
        if task.cancelled() or task.exception() is not None:
            return
        lease = task.result().lease
        if lease and not self.closed:
            try:
                self.fail(lease)
            except NotFound:
                pass  # it is over already

    async def put_async(self, category: str, value: Union[Text, Sequence[Text]], **named: Any) -> PutResult:
        """put() for asyncio, in a thread."""
        if named.get("vector") is not None:
            named["vector"] = _arrays.rows(named["vector"], "the vector", self._type, self._dim, 1).copy()
        return await offload(self.put, category, value, **named)

    def negative(self, category: str, *, lease: Optional[str] = None, ttl_ms: int = 0, text: Optional[Text] = None,
                 vector: Any = None, scope: Optional[Mapping[str, str]] = None, hash: Optional[Text] = None,
                 compat: Optional[Text] = None) -> None:
        """This question has no answer that may be kept: status "negative" for ttl_ms (0: a minute)."""
        pieces = Pieces()
        q = self._query(pieces, category, text, vector, scope, hash, compat, None)
        self._call(lib.quire_cache_negative, byref(q), ttl_ms, pieces.piece(lease))

    def fail(self, lease: str) -> None:
        """The holder of the lease has no answer: the next one that waits gets the lease. quire.NotFound."""
        pieces = Pieces()
        self._call(lib.quire_cache_fail, pieces.piece(lease))

    def renew(self, lease: str, ms: int = 0) -> int:
        """The answer takes longer; ms until the lease's new deadline. quire.NotFound: it is over."""
        pieces, left = Pieces(), ctypes.c_uint64()
        self._call(lib.quire_cache_renew, pieces.piece(lease), ms, byref(left))
        return left.value

    # ---- labels ----

    def feedback(self, id: int, good: bool, similarity: Optional[float] = None) -> None:
        """An answer that was served was right or wrong. similarity: what the answer said. quire.NotFound."""
        self._call(lib.quire_cache_feedback, id, good, -1.0 if similarity is None else similarity)

    def audit_get(self, number: int) -> Optional[Audit]:
        """The pair of an answer's `audit`, which waits on; None: it has a label, or was too long ago. entry_value is what
        the model's answer is compared with where the status was a miss."""
        return self._audit(lib.quire_cache_audit_get, number)

    def audit_pop(self) -> Optional[Audit]:
        """The oldest pair that waits for a label; None: there is none."""
        return self._audit(lib.quire_cache_audit_pop)

    def _audit(self, function: Any, *which: int) -> Optional[Audit]:
        audit = _abi.quire_cache_audit()
        try:
            self._call(function, *which, byref(audit))
        except NotFound:
            return None
        try:
            category, text, entry_text = (bytes_at(b).decode("utf-8", "replace")
                                          for b in (audit.category, audit.text, audit.entry_text))
            return Audit(audit.number, audit.id, audit.similarity, category, text, entry_text,
                         bytes_at(audit.entry_value))
        finally:
            lib.quire_cache_audit_free(byref(audit))

    def audit_put(self, number: int, right: bool) -> None:
        """The label of a pair, popped or not. quire.NotFound: it has one already, or is too old."""
        self._call(lib.quire_cache_audit_put, number, right)

    # ---- upkeep ----

    def invalidate(self, *, ids: Optional[Sequence[int]] = None, tags: Optional[Sequence[str]] = None,
                   category: Optional[str] = None, scope: Optional[Tuple[str, str]] = None,
                   model: Optional[str] = None, encoder: Optional[str] = None, near: Optional[Tuple[Any, float]] = None,
                   older_than_ms: Optional[int] = None, everything: bool = False, dry_run: bool = False) -> int:
        """Removes entries by exactly one selector; how many went, or with dry_run would go. A lease that was granted
        before cannot bring one back. scope: a key and its value. near: a vector and a similarity, in all scopes and
        categories."""
        given = [name for name, value in (("id", ids), ("tag", tags), ("category", category), ("scope", scope),
                                          ("model", model), ("encoder", encoder), ("near", near),
                                          ("before", older_than_ms), ("all", everything or None)) if value is not None]
        if len(given) != 1:
            raise Invalid("%d selectors are given: exactly one of ids, tags, category, scope, model, encoder, near, "
                          "older_than_ms and everything" % len(given))
        pieces, s = Pieces(), _abi.quire_cache_selector()
        s.by = choice("quire_cache_by", "QUIRE_CACHE_BY_", given[0], "the selector")
        if ids is not None:
            numbers = pieces.keep((ctypes.c_uint64 * max(len(ids), 1))(*ids))
            s.ids, s.n = ctypes.addressof(numbers), len(ids)
        elif near is not None:
            s.vector = pieces.address(_arrays.rows(near[0], "the vector", self._type, self._dim, 1))
            s.similarity = near[1]
        elif older_than_ms is not None:
            s.age_ms = older_than_ms
        else:
            one = category or model or encoder
            names: Sequence[str] = tags if tags is not None else scope if scope is not None else [one] if one else []
            if scope is not None and len(scope) != 2:
                raise Invalid("scope is %r: a key and its value" % (scope,))
            s.names, s.n = pieces.array(names)
        n = ctypes.c_uint64()
        self._call(lib.quire_cache_invalidate, byref(s), dry_run, byref(n))
        return n.value

    def remove(self, id: int) -> None:
        """Removes one entry. quire.NotFound."""
        self._call(lib.quire_cache_remove, id)

    def touch(self, id: int, ttl_ms: int = 0) -> None:
        """Counts an entry as used; ttl_ms: 0 leaves its end. quire.NotFound."""
        self._call(lib.quire_cache_touch, id, ttl_ms)

    def pin(self, id: int, pinned: bool = True) -> None:
        """Keeps an entry from eviction and expiry, or no longer. quire.NotFound."""
        self._call(lib.quire_cache_pin, id, pinned)

    def load(self, model: str, x: float, ex_ms: int = 0) -> None:
        """How full a model is, 0 to 1, for ex_ms (0: a minute)."""
        pieces = Pieces()
        self._call(lib.quire_cache_load, pieces.piece(model), x, ex_ms)

    def stats(self, category: Optional[str] = None) -> CacheStats:
        """Figures of the cache, or of one category."""
        pieces, s = Pieces(), _abi.quire_cache_stats()
        self._call(lib.quire_cache_get_stats, pieces.piece(category), byref(s))
        return CacheStats(*(getattr(s, name) for name, _ in s._fields_))

    def tune(self, category: str, delta: Optional[float] = None) -> Tune:
        """What the rule would choose for a budget of delta; None: for the one in force."""
        pieces, t = Pieces(), _abi.quire_cache_tune()
        self._call(lib.quire_cache_tune, pieces.piece(category), -1.0 if delta is None else delta, byref(t))
        return Tune(t.threshold, t.delta, t.requests, t.labels,
                    tuple(TunePoint(p.similarity, p.served, p.wrong, p.bound) for p in t.points[:t.n]))

    def export_curves(self) -> bytes:
        """What all categories have learnt, for import_curves() of another cache."""
        memory, n = ctypes.c_void_p(), ctypes.c_size_t()
        self._call(lib.quire_cache_export, byref(memory), byref(n))
        try:
            return ctypes.string_at(memory, n.value)
        finally:
            _free(memory)

    def import_curves(self, curves: bytes) -> int:
        """Takes curves as experience, for categories that are there; for how many."""
        return self._call(lib.quire_cache_import, key_bytes(curves), len(curves))

    @property
    def dim(self) -> int:
        return self._dim

    def __repr__(self) -> str:
        return "<quire.Cache %s of %d dimensions%s>" % (self._path, self._dim, ", closed" if self.closed else "")


def _answer_of(a: Any) -> CacheAnswer:
    """Copies an answer of the library."""
    chunks = tuple(bytes_at(c) for c in (_abi.quire_bytes * a.n_chunks).from_address(a.chunks)) if a.chunks else ()
    served = a.n_chunks > 0 or a.value.n_bytes > 0
    return CacheAnswer(
        status=name_of("quire_cache_status", "QUIRE_CACHE_", a.status), reason=text_at(a.reason), id=a.id,
        similarity=a.similarity if a.similarity >= 0 else None, threshold=a.threshold,
        guard=text_at(a.guard) if a.guard else None, guard_why=a.guard_why.decode("utf-8", "replace"),
        guards_skipped=a.guards_skipped, age_ms=a.age_ms, ttl_ms=a.ttl_ms, lease=a.lease.decode() or None,
        lease_ms=a.lease_ms, audit=a.audit, waited_ms=a.waited_ms,
        candidates=tuple(Candidate(c.id, c.similarity, text_at(c.verdict), c.why.decode("utf-8", "replace"))
                         for c in a.candidates[:a.n_candidates]),
        value=bytes_at(a.value) if served else None, chunks=chunks,
        question=bytes_at(a.text).decode("utf-8", "replace"), model=bytes_at(a.model).decode("utf-8", "replace"),
        tokens_in=a.tokens_in, tokens_out=a.tokens_out, llm_ms=a.llm_ms, cost=a.cost)


def _close(pointer: int) -> None:
    err = _abi.quire_error()
    code = lib.quire_cache_close(pointer, byref(err))
    if code < 0 and code != -_abi.ERRORS["CLOSED"][0]:
        raise error_of(code, err)
