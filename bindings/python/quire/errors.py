"""Exceptions: one class per error number of the library, with the library's sentence.

Every class is a quire.Error; where Python has a class of its own for the same thing, also that (WrongDimension is a
ValueError, NoFile a FileNotFoundError, and so on), so that callers who do not know Quire catch it.
"""
from __future__ import annotations

import ctypes
from typing import Dict, NoReturn, Optional, Type

from . import _abi


class Error(Exception):
    """Something that the library, or the binding in its place, refused or could not do. str() is one sentence: the
    value, the limit, the remedy."""

    #: the name of the error number, such as "QUIRE_EDIM"
    name: str = ""
    #: the error number as quire.h has it: negative
    code: int = 0

    def __init__(self, message: str, where: Optional[str] = None):
        # an OSError among the bases would make something of two arguments
        super().__init__(message)
        self.message = message
        #: the function of the library that saw it first, None: the binding
        self.where = where

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> "tuple[object, ...]":
        return (type(self), (self.message, self.where))


class FormatError(Error):
    """A file is not what it should be; the classes below say how."""


class Invalid(Error, ValueError):
    """An argument, or several together, make no sense."""


class OutOfRange(Error, ValueError):
    """A value is outside of its range."""


class WrongDimension(Error, ValueError):
    """A vector has another number of dimensions than the index, collection or cache."""


class WrongType(Error, TypeError):
    """Elements of another type than needed."""


class NotFinite(Error, ValueError):
    """A vector holds NaN or infinity."""


class ZeroVector(Error, ValueError):
    """A zero vector has no direction."""


class NotFound(Error, KeyError):
    """There is no such element, row, category, ..."""


class Exists(Error, FileExistsError):
    """It is there already."""


class LimitReached(Error):
    """A limit was reached; the sentence names it."""


class WrongFormat(FormatError):
    """Not a file of the expected format."""


class WrongVersion(FormatError):
    """A format version that this library does not read."""


class Truncated(FormatError):
    """A file is shorter than it says."""


class Oversized(FormatError):
    """A file is longer than it says."""


class Corrupt(FormatError):
    """A checksum or structure is wrong."""


class ParseError(Error, ValueError):
    """A filter could not be parsed; the sentence says where."""


class IOFailure(Error, OSError):
    """The device failed."""


class NoSpace(Error, OSError):
    """No space left on the device."""


class PermissionDenied(Error, PermissionError):
    """A file may not be read or written, or an element not be seen by the tenants given."""


class NoFile(Error, FileNotFoundError):
    """No such file or folder."""


class ShortRead(Error, OSError):
    """Fewer bytes were read than asked for."""


class AddressInUse(Error, OSError):
    """An address is in use."""


class NetworkError(Error, ConnectionError):
    """The network failed."""


class Unsupported(Error, NotImplementedError):
    """Not supported here."""


class Busy(Error):
    """Another process or handle has it."""


class Cancelled(Error):
    """It was stopped before its end."""


class Closed(Error, ValueError):
    """The handle is closed, or belongs to the process that this one was forked from."""


class Timeout(Error, TimeoutError):
    """It took too long."""


class Stale(Error):
    """What the call relied on has changed meanwhile; try again."""


class NoMemory(Error, MemoryError):
    """Out of memory."""


class Internal(Error):
    """An error of the library's own."""


_CLASSES: Dict[str, Type[Error]] = {
    "INVALID": Invalid, "RANGE": OutOfRange, "DIM": WrongDimension, "TYPE": WrongType, "NOTFINITE": NotFinite,
    "ZEROVEC": ZeroVector, "NOTFOUND": NotFound, "EXISTS": Exists, "LIMIT": LimitReached, "FORMAT": WrongFormat,
    "VERSION": WrongVersion, "TRUNCATED": Truncated, "OVERSIZED": Oversized, "CORRUPT": Corrupt, "PARSE": ParseError,
    "IO": IOFailure, "NOSPACE": NoSpace, "PERM": PermissionDenied, "NOFILE": NoFile, "SHORTREAD": ShortRead,
    "ADDRINUSE": AddressInUse, "NET": NetworkError, "UNSUPPORTED": Unsupported, "BUSY": Busy, "CANCELLED": Cancelled,
    "CLOSED": Closed, "TIMEOUT": Timeout, "STALE": Stale, "NOMEM": NoMemory, "INTERNAL": Internal,
}
_BY_CODE: Dict[int, Type[Error]] = {}
for _name, (_number, _text) in _abi.ERRORS.items():
    _class = _CLASSES.get(_name, Error)
    _class.name, _class.code = "QUIRE_E" + _name, -_number
    _BY_CODE[-_number] = _class


def error_of(code: int, err: _abi.quire_error) -> Error:
    """The exception for a negative answer of the library."""
    message = err.message.decode("utf-8", "replace")
    where = ctypes.string_at(err.where).decode() if err.where else None
    if not message:
        message = _abi.ERRORS.get(_BY_CODE.get(code, Internal).name[7:], (0, "error %d" % code))[1]
    error = _BY_CODE.get(code, Internal)(message, where)
    return error


def raise_error(code: int, err: _abi.quire_error) -> NoReturn:
    raise error_of(code, err)
