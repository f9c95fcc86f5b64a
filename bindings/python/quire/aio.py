"""Searches of an Index under asyncio, over the library's own loop (quire_loop_...) and its file descriptor.

Each event loop gets one quire_loop, driven from that event loop alone: its descriptor becomes readable when there is
something to do. A search that was cancelled runs to its end in the library, and its answer is dropped.
"""
from __future__ import annotations

import asyncio
import ctypes
import threading
import time
import weakref
from typing import Any, Dict, List, Optional, Tuple

import numpy as np

from . import _abi
from ._handle import Owner
from ._library import lib
from ._search import HIT, Hits, Options
from .errors import Unsupported, error_of, raise_error

byref = ctypes.byref
_INFLIGHT = 64


class Searcher:
    """A quire_loop that an event loop drives."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        o = _abi.quire_loop_options()
        lib.quire_loop_options_init(byref(o))
        o.inflight = _INFLIGHT
        out, err = ctypes.c_void_p(), _abi.quire_error()
        code = lib.quire_loop_create(byref(o), byref(out), byref(err))
        if code < 0:
            raise_error(code, err)
        self._pointer = out.value
        self._loop = weakref.ref(loop)
        self._waiting: Dict[int, Tuple["asyncio.Future[Hits]", Owner, bool]] = {}
        self._ended: List[object] = []
        self._next = 1
        self._asked = False  # a poll is on its way, to submit what was started
        self._driven = threading.Lock()  # a quire_loop belongs to one thread at a time
        self._callback = _abi.quire_search_callback(_reach(weakref.ref(self)))
        self._fd = lib.quire_loop_fd(self._pointer)
        if self._fd < 0:
            lib.quire_loop_destroy(self._pointer)
            self._pointer = None
            raise Unsupported("the library's loop has no descriptor here, so asyncio cannot wait for it: use "
                              "loop.run_in_executor with search()")
        loop.add_reader(self._fd, _poll, weakref.ref(self))

    def start(self, owner: Owner, query: Any, options: Options,
              stats: bool) -> Tuple["asyncio.Future[Hits]", int, _abi.quire_error]:
        loop = asyncio.get_running_loop()
        future: "asyncio.Future[Hits]" = loop.create_future()
        token, self._next = self._next, self._next + 1
        err = _abi.quire_error()
        self._waiting[token] = (future, owner, stats)
        with self._driven:
            code = lib.quire_loop_search(self._pointer, owner.pointer, query.__array_interface__["data"][0],
                                         options.reference, self._callback, token, byref(err))
        if code < 0:
            self._waiting.pop(token, None)
        elif not self._asked:
            self._asked = True
            loop.call_soon(_submit, weakref.ref(self))
        return future, code, err

    def on_answer(self, token: int, code: int, hits: int, n: int, stats: int, err: int) -> None:
        waiting = self._waiting.pop(token, None)
        if waiting is None:
            return
        self._ended.append(waiting)  # with its owner: an index is not closed inside of the library's poll
        future, wants_stats = waiting[0], waiting[2]
        loop = self._loop()
        if future.done() or loop is None or loop.is_closed():
            return
        if code < 0:
            future.set_exception(error_of(code, _abi.quire_error.from_address(err) if err else _abi.quire_error()))
            return
        array = np.frombuffer(ctypes.string_at(hits, n * HIT.itemsize), HIT) if n else np.empty(0, HIT)
        figures: Any = None
        if wants_stats and stats:
            figures = [_abi.quire_search_stats.from_buffer_copy(
                ctypes.string_at(stats, ctypes.sizeof(_abi.quire_search_stats)))]
        future.set_result(Hits(array, np.array([n], np.uint32), figures))

    def poll(self, wait_min: int = 0, timeout_us: int = 0) -> None:
        with self._driven:
            lib.quire_loop_poll(self._pointer, wait_min, timeout_us)
        self._ended.clear()

    def submit(self) -> None:
        self._asked = False
        self.poll()

    def finish(self, owner: Owner) -> None:
        """Before an index is closed: searches of it that are under way end. Where another thread runs the event loop,
        that thread ends them."""
        while any(w[1] is owner for w in list(self._waiting.values())):
            loop = self._loop()
            if loop is not None and loop.is_running() and _running() is not loop:
                time.sleep(0.001)
            else:
                self.poll(1, 100000)

    def __del__(self) -> None:
        pointer = getattr(self, "_pointer", None)
        if pointer is not None:
            self._pointer = None
            lib.quire_loop_destroy(pointer)  # what is under way ends with callbacks, which find nobody


def _running() -> Optional[asyncio.AbstractEventLoop]:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _reach(searcher: "weakref.ref[Searcher]") -> Any:
    def call(context: int, code: int, hits: int, n: int, stats: int, err: int) -> None:
        found = searcher()
        if found is not None:
            found.on_answer(context, code, hits, n, stats, err)

    return call


def _poll(searcher: "weakref.ref[Searcher]") -> None:
    found = searcher()
    if found is not None:
        found.poll()


def _submit(searcher: "weakref.ref[Searcher]") -> None:
    found = searcher()
    if found is not None:
        found.submit()


_searchers: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Searcher]" = weakref.WeakKeyDictionary()


def searcher_of(loop: asyncio.AbstractEventLoop) -> Searcher:
    found = _searchers.get(loop)
    if found is None:
        found = _searchers[loop] = Searcher(loop)
    return found


def searchers() -> List[Searcher]:
    return list(_searchers.values())
