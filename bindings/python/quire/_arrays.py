"""numpy arrays, keys and texts as the library takes them.

Arrays whose layout the library can read are passed as they are: C-contiguous, aligned, of the machine's byte order.
Queries of other layouts or numbers are copied to float32, as they are small. Vectors that are stored are converted
where nothing can be lost but precision (float64 to float32); otherwise it is an error that names the remedy.
"""
from __future__ import annotations

import ctypes
import json
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

import numpy as np
import numpy.typing as npt

from . import _abi
from .errors import Invalid, OutOfRange, ParseError, WrongDimension, WrongType

Key = Union[str, bytes]
Attributes = Union[Mapping[str, Any], str, None]
Array = npt.NDArray[Any]

F32 = np.dtype(np.float32)
_NOTHING = ctypes.c_char * 0
# what an element type is called here, and how numpy holds it; bfloat16 is the upper half of a float32 in a uint16
_DTYPES: "Dict[str, np.dtype[Any]]" = {
    "f32": F32, "f16": np.dtype(np.float16), "i8": np.dtype(np.int8), "u8": np.dtype(np.uint8),
    "bf16": np.dtype(np.uint16),
}
TYPES = {name[len("QUIRE_TYPE_"):].lower(): number for name, number in _abi.ENUMS["quire_type"].items()}


def choice(enum: str, prefix: str, value: object, what: str) -> int:
    """The number of a name of an enum of the library, such as "cosine"."""
    values = _abi.ENUMS[enum]
    number = values.get(prefix + str(value).upper()) if isinstance(value, str) else None
    if number is None:
        names = ", ".join('"%s"' % n[len(prefix):].lower() for n in values)
        raise Invalid("%s is %r: one of %s" % (what, value, names))
    return number


def name_of(enum: str, prefix: str, number: int) -> str:
    for name, value in _abi.ENUMS[enum].items():
        if value == number:
            return name[len(prefix):].lower()
    return str(number)


def dtype_of(type_name: str) -> "np.dtype[Any]":
    return _DTYPES[type_name]


def type_of(array: Array) -> Optional[str]:
    """The library's name for an array's elements; None: it has none."""
    if array.dtype.name == "bfloat16":  # of the package ml_dtypes
        return "bf16"
    for name in ("f32", "f16", "i8", "u8"):
        if array.dtype == _DTYPES[name]:
            return name
    return None


def plain(array: Array) -> bool:
    """Whether the library can read it where it stands."""
    flags = array.flags
    return bool(flags.c_contiguous and flags.aligned and array.dtype.isnative)


def address(array: Array) -> Any:
    """Where an array's elements stand, for an argument that is a pointer. Keeps the array's memory in its place for as
    long as the result lives."""
    try:
        return _NOTHING.from_buffer(array)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):  # read-only, empty, or of a type that has no buffer
        return array.__array_interface__["data"][0]


def numbers(value: object, what: str) -> Array:
    """Whatever can be seen as an array of real numbers."""
    array: Array
    try:
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
    except ValueError as e:  # rows of different lengths
        raise WrongDimension("%s cannot be seen as an array: %s" % (what, e)) from None
    if array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16":
        raise WrongType("%s has elements of %s: real numbers are needed" % (what, array.dtype))
    return array


def query(value: object) -> Array:
    """One query: float32, contiguous. A copy only where it is not that already."""
    if type(value) is np.ndarray and value.dtype is F32:
        array = value
    else:
        with np.errstate(over="ignore"):  # infinity is refused by the library
            array = np.asarray(numbers(value, "the query"), dtype=F32)
    if array.ndim != 1:
        raise WrongDimension("the query has the shape %s: one query has one axis (search_batch takes several)"
                             % (array.shape,))
    if not len(array):  # to the library 0 dimensions mean "not checked"
        raise WrongDimension("the query has no dimensions")
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        array = np.array(array, dtype=F32, order="C")
    return array


def queries(value: object) -> Array:
    """Several queries, n x dim: float32, contiguous. A copy only where they are not that already."""
    if type(value) is np.ndarray and value.dtype is F32:
        array = value
    else:
        with np.errstate(over="ignore"):
            array = np.asarray(numbers(value, "the queries"), dtype=F32)
    if array.ndim != 2:
        raise WrongDimension("the queries have the shape %s: n queries have two axes, n x dim" % (array.shape,))
    if not array.shape[1]:
        raise WrongDimension("the queries have no dimensions")
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned):
        array = np.array(array, dtype=F32, order="C")
    return array


def rows(value: object, what: str, type_name: str, dim: int, axes: int) -> Array:
    """Vectors to be stored as elements of type_name; axes: 1 for one, 2 for several. Without a copy where they are that
    already."""
    array = numbers(value, what)
    if array.ndim != axes or array.shape[-1] != dim:
        wanted = "(%d,)" % dim if axes == 1 else "(n, %d)" % dim
        raise WrongDimension("%s has the shape %s: %s is needed" % (what, array.shape, wanted))
    wanted_type = _DTYPES[type_name]
    if type_name == "bf16":
        if array.dtype.name == "bfloat16":
            array = array.view(np.uint16)
        elif array.dtype != wanted_type:  # uint16 is taken to be bfloat16 already
            array = _bf16(array)
    elif array.dtype != wanted_type:
        if wanted_type.kind in "iu":
            if array.dtype.kind not in "iu":
                raise WrongType("%s has elements of %s, %s is needed: round and scale them with numpy, as you mean it"
                                % (what, array.dtype, wanted_type))
            limits = np.iinfo(wanted_type)
            if array.size and (array.min() < limits.min or array.max() > limits.max):
                raise OutOfRange("%s has elements from %d to %d: %s holds %d to %d"
                                 % (what, array.min(), array.max(), wanted_type, limits.min, limits.max))
        with np.errstate(over="ignore"):
            array = array.astype(wanted_type)
    if not plain(array):
        array = np.array(array, dtype=wanted_type, order="C")
    return array


def _bf16(array: Array) -> Array:
    """Rounded to the nearest bfloat16, ties to even; NaN and infinity stay what they are."""
    with np.errstate(over="ignore"):
        bits = np.ascontiguousarray(array, dtype=np.float32).view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    result: Array = np.where((bits & 0x7F800000) == 0x7F800000, (bits >> 16) | ((bits & 0xFFFF) != 0), rounded)
    return result.astype(np.uint16)


# ---- keys, attributes, pieces of bytes -------------------------------------------------------------------------------

def key_bytes(key: Key) -> bytes:
    """Text is UTF-8; what came from a key that is not UTF-8 goes back to the bytes that it was."""
    if isinstance(key, str):
        return key.encode("utf-8", "surrogateescape")
    if isinstance(key, (bytes, bytearray, memoryview)):
        return bytes(key)
    raise WrongType("a key is %r: str or bytes are needed" % type(key).__name__)


def key_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def json_bytes(attributes: Attributes) -> Optional[bytes]:
    """Attributes as JSON text; a text is checked to be that already."""
    if attributes is None:
        return None
    try:
        if isinstance(attributes, str):
            json.loads(attributes)
            return attributes.encode()
        if isinstance(attributes, Mapping):
            return json.dumps(attributes, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as e:
        raise Invalid("attributes are not JSON, or cannot be written so: %s" % e) from None
    raise WrongType("attributes are %r: a dict or JSON text is needed" % type(attributes).__name__)


def json_of(text: bytes) -> Any:
    """Stored attributes; other programs may have stored what is no JSON."""
    try:
        return json.loads(text)
    except ValueError as e:
        raise ParseError("stored attributes are not JSON: %s" % e) from None


def text_at(pointer: Optional[int]) -> str:
    """A text of the library's, up to its end."""
    return ctypes.string_at(pointer).decode("utf-8", "replace") if pointer else ""


def bytes_at(piece: _abi.quire_bytes) -> bytes:
    return ctypes.string_at(piece.data, piece.n_bytes) if piece.n_bytes else b""


class Pieces:
    """Texts and bytes for the library, with what keeps them alive. An empty piece is not NULL."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: List[object] = []

    def keep(self, value: Any) -> Any:
        self._kept.append(value)
        return value

    def pointer(self, data: bytes) -> int:
        text = ctypes.c_char_p(self.keep(data))
        return ctypes.cast(text, ctypes.c_void_p).value or 0

    def piece(self, value: Union[str, bytes, None]) -> _abi.quire_bytes:
        if value is None:
            return _abi.quire_bytes(None, 0)
        data = key_bytes(value)
        return _abi.quire_bytes(self.pointer(data), len(data))

    def array(self, values: Iterable[Union[str, bytes]]) -> Tuple[int, int]:
        """(address, how many)"""
        pieces = [self.piece(v) for v in values]
        array = self.keep((_abi.quire_bytes * max(len(pieces), 1))(*pieces))
        return ctypes.addressof(array), len(pieces)

    def pairs(self, values: Mapping[str, str]) -> Tuple[Optional[int], int]:
        if not values:
            return None, 0
        pairs = [_abi.quire_pair(self.piece(k), self.piece(v)) for k, v in values.items()]
        array = self.keep((_abi.quire_pair * len(pairs))(*pairs))
        return ctypes.addressof(array), len(pairs)

    def address(self, array: Array) -> int:
        self.keep(array)
        return int(array.__array_interface__["data"][0])

    def columns(self, columns: Optional[Mapping[str, str]]) -> Tuple[Optional[int], int]:
        """Declared columns: {"year": "integer", "note": "string unindexed"}."""
        if not columns:
            return None, 0
        made = []
        for name, kind in columns.items():
            word, _, rest = kind.partition(" ")
            if rest not in ("", "unindexed"):
                raise Invalid('the column %r is %r: a type, or a type and "unindexed"' % (name, kind))
            made.append(_abi.quire_column(self.pointer(name.encode() + b"\0"),
                                          choice("quire_column_type", "QUIRE_COLUMN_", word, "a column's type"),
                                          not rest))
        array = self.keep((_abi.quire_column * len(made))(*made))
        return ctypes.addressof(array), len(made)


def tenants_of(tenants: Union[str, Sequence[str], None]) -> Optional[Tuple[str, ...]]:
    """One name, or several; an empty sequence sees nothing, None everything."""
    if tenants is None:
        return None
    return (tenants,) if isinstance(tenants, (str, bytes)) else tuple(tenants)
