"""Handles of the library whose lifetime Python cannot get wrong.

A handle of the library may not be closed while another call on it is under way. Here every call holds a reference to
the handle's _Owner for as long as it is in the library, and the library's close is the end of that object: it runs
when the last call that was under way has let go of it, whichever thread that is, and cannot run earlier. No lock is
taken, so there is none that a signal, a fork or a collection of garbage could find held.

close() gives up the handle's own reference, so that later calls find it closed, and waits for those under way. Where
the wait could not end it does not wait: in a signal handler that has interrupted a call of this very thread, and in a
child of fork(), to which other threads' calls did not come along.

Methods must drop their local `owner` before they raise: an exception that somebody keeps holds its frames.
"""
from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
import warnings
import weakref
from types import FrameType, TracebackType
from typing import Any, Callable, List, NoReturn, Optional, Type, TypeVar

from . import _abi
from .errors import Closed, Error, raise_error

Self = TypeVar("Self", bound="Handle")
byref = ctypes.byref


class _Fate:
    """What becomes of an owner; outlives it."""

    __slots__ = ("over", "error", "asked", "pid", "what")

    def __init__(self, what: str) -> None:
        self.over = threading.Lock()  # held until the library has closed the handle
        self.over.acquire()
        self.error: Optional[BaseException] = None
        self.asked = False
        self.pid = os.getpid()
        self.what = what


class Owner:
    """The pointer, and whatever the library may use as long as that is open. See above."""

    __slots__ = ("pointer", "fate", "_end", "keep", "__weakref__")

    def __init__(self, pointer: int, end: Callable[[int], None], what: str, keep: object = None) -> None:
        self.pointer = pointer
        self.fate = _Fate(what)
        self._end = end
        self.keep = keep

    def __del__(self) -> None:
        fate = self.fate
        try:
            self._end(self.pointer)
        except Error as e:
            fate.error = e
            if not fate.asked:
                raise  # nobody will look at it: Python's hook for that prints it
        finally:
            fate.over.release()
            if not fate.asked and fate.pid == os.getpid():
                warnings.warn("%s was not closed" % fate.what, ResourceWarning, stacklevel=2)


_handles: "weakref.WeakSet[Handle]" = weakref.WeakSet()


def _holds(frame: Optional[FrameType], fate: _Fate) -> bool:
    """Whether a frame of this thread is inside a call that holds the owner."""
    while frame is not None:
        if frame.f_globals.get("__package__") == __package__:
            names: Any = frame.f_locals
            owner = names.get("owner")
            if type(names) is dict:
                names.pop("owner", None)  # before Python 3.13 this is a copy, which lives as long as the frame
            if isinstance(owner, Owner) and owner.fate is fate:
                return True
        frame = frame.f_back
    return False


class Handle:
    """What is opened and closed. May be used in a `with` statement."""

    __slots__ = ("_owner", "_what", "__weakref__")
    _owner: Optional[Owner]

    def _begin(self, owner: Owner) -> None:
        self._owner = owner
        self._what = owner.fate.what
        _handles.add(self)

    @property
    def closed(self) -> bool:
        """Whether close() has been called."""
        return self._owner is None

    def _refuse(self) -> NoReturn:
        raise Closed("%s is closed" % getattr(self, "_what", "the handle"))

    def _call(self, function: Any, *arguments: Any) -> int:
        """One call on the handle: (pointer, arguments..., error)."""
        owner = self._owner
        if owner is None:
            self._refuse()
        err = _abi.quire_error()
        try:
            code: int = function(owner.pointer, *arguments, byref(err))
        finally:
            owner = None
        if code < 0:
            raise_error(code, err)
        return code

    def _let_go(self, owner: Owner) -> None:
        """Before the owner is dropped: ends what holds it and would not end by itself."""

    def close(self) -> None:
        """Closes; calls of other threads that are under way are waited for, later ones get quire.Closed. A second time
        does nothing."""
        owner, self._owner = self._owner, None
        if owner is None:
            return
        fate = owner.fate
        fate.asked = True
        if fate.pid == os.getpid():
            self._let_go(owner)
        owner = None
        if fate.pid != os.getpid() or (fate.over.locked() and _holds(sys._getframe(1), fate)):
            return
        fate.over.acquire()
        fate.over.release()
        if fate.error is not None:
            raise fate.error

    def __enter__(self: Self) -> Self:
        if self._owner is None:
            self._refuse()
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.close()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("%s belongs to the process that opened it and is neither copied nor pickled: open its folder "
                        "where it is used" % getattr(self, "_what", "a handle"))


Progress = Callable[[str, int, int], object]
_PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint64)
_LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_bool, ctypes.c_char_p)
Log = Callable[[bool, str], object]
_REPORT_SECONDS = 0.1


def run_long(call: Callable[[Any], int], progress: Optional[Progress]) -> int:
    """call(address of a progress function), in a thread of its own, while this one reports and lets signals in. What
    progress raises, or Ctrl-C, ends the work and is raised when it has ended. (An exception of a signal that came
    inside of a callback of the library would be lost.)"""
    latest: List[Any] = [None]
    stop = False
    answer: List[int] = []
    failed: List[BaseException] = []
    over = threading.Event()

    def report(context: Optional[int], phase: bytes, done: int, total: int) -> int:
        latest[0] = (phase, done, total)
        return int(stop)

    function = _PROGRESS(report)

    def work() -> None:
        try:
            answer.append(call(ctypes.cast(function, ctypes.c_void_p)))
        except BaseException as e:  # noqa: B902 - raised below
            failed.append(e)
        finally:
            over.set()

    def tell() -> None:
        report_now, latest[0] = latest[0], None
        if report_now is not None and progress is not None:
            progress(report_now[0].decode(), report_now[1], report_now[2])

    thread = threading.Thread(target=work, name="quire")
    thread.start()
    try:
        while not over.wait(_REPORT_SECONDS):
            tell()
        tell()
    except BaseException:
        stop = True
        thread.join()
        raise
    thread.join()
    if failed:
        raise failed[0]
    return answer[0]


def log_callback(log: Log) -> Any:
    """log(warning, line), from any thread; what it raises goes to sys.unraisablehook."""

    def call(context: Optional[int], warning: bool, line: bytes) -> None:
        log(bool(warning), line.decode("utf-8", "replace"))

    return _LOG(call)


def _close_all() -> None:
    """At the end of the interpreter: the library's threads may not call back into what is gone."""
    waiting: List[Handle] = list(_handles)
    for handle in waiting:
        owner = handle._owner
        if owner is None:
            continue
        fate, handle._owner = owner.fate, None
        fate.asked = True
        owner = None  # a daemon thread's call that is still under way keeps it


atexit.register(_close_all)
