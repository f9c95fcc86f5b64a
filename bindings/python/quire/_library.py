"""Finds libquire, checks that it is the one that these declarations describe, and declares its functions.

Looked for, in this order: the file that the environment's QUIRE_LIBRARY names; the copy that a wheel built with
QUIRE_BUNDLE brings (quire/_bundled); the system's libquire.so.1 (ldconfig, LD_LIBRARY_PATH).
"""
from __future__ import annotations

import ctypes
import os
from typing import Any, List

from . import _abi

_HERE = os.path.dirname(os.path.abspath(__file__))
SONAME = "libquire.so.1"


def _open() -> ctypes.CDLL:
    named = os.environ.get("QUIRE_LIBRARY")
    bundled = os.path.join(_HERE, "_bundled", SONAME)
    path = named or (bundled if os.path.exists(bundled) else SONAME)
    try:
        return ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(
            "the shared library of Quire cannot be loaded (%s): install it with `cmake --install BUILD && ldconfig`, "
            "or name its file in the environment: QUIRE_LIBRARY=/path/to/%s" % (e, SONAME), path=path) from None


def _refuse(why: str) -> ImportError:
    return ImportError("%s: %s; these bindings are of quire %s, install both from one tree"
                       % (os.environ.get("QUIRE_LIBRARY") or SONAME, why, _abi.QUIRE_VERSION_STRING))


def _declare(library: ctypes.CDLL) -> None:
    missing: List[str] = []
    for name, (returned, parameters) in _abi.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            missing.append(name)
            continue
        function.restype, function.argtypes = returned, parameters
    if missing:
        raise _refuse("it has no " + ", ".join(missing[:3]))
    version = library.quire_version().decode()
    if version != _abi.QUIRE_VERSION_STRING:
        raise _refuse("it is version " + version)
    # option structs carry their size: a library of the same version from another tree says so here, not by misreading
    for struct in _abi.STRUCTS:
        init = getattr(library, struct.__name__ + "_init", None)
        if init is None:
            continue
        room = ctypes.create_string_buffer(ctypes.sizeof(struct) + 4096)
        init(room)
        size = ctypes.c_size_t.from_buffer(room).value
        if size != ctypes.sizeof(struct):
            raise _refuse("its struct %s has %d bytes, %d are known" % (struct.__name__, size, ctypes.sizeof(struct)))


lib: Any = _open()
_declare(lib)


def version() -> str:
    """The version of the library that is running."""
    text: bytes = lib.quire_version()
    return text.decode()
