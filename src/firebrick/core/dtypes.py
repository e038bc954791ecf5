"""Data types and the promotion lattice of the Array API standard.

A ``DType`` is a singleton: compared and hashed by identity. ``result_type`` knows one rule: arrays promote within
their kind (and signed with unsigned integers); mixing kinds is an error with the cast to write, since the standard
leaves it undefined and every choice silently loses something. Python and NumPy scalars are weak: they take the array's dtype.

The 8-bit floats are a kind of their own, "storage": they can be kept, moved, compared bit by bit and cast, but have no
arithmetic and promote with nothing, so that a computation in them is always written as a cast.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from firebrick.core.errors import DTypeError
from firebrick.core.other_names import OF_DTYPES, UnknownNameError

Scalar = bool | int | float | complex


class DType:
    """An element type. Use the constants such as ``fb.float32``; instances are unique by name.

    Args:
        name: Name.
        kind: "bool", "int", "uint", "float", "complex" or "storage".
        np_dtype: NumPy's dtype.

    Attributes:
        name: Name.
        kind: Kind.
        itemsize: Bytes of an element.
        np: NumPy's dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.float32.name, fb.float32.kind, fb.float32.itemsize
        ('float32', 'float', 4)
        >>> fb.zeros(2).dtype is fb.float32
        True
    """

    __slots__ = ("itemsize", "kind", "name", "np")

    def __init__(self, name: str, kind: str, np_dtype: Any) -> None:
        self.name, self.kind, self.np = name, kind, np.dtype(np_dtype)
        self.itemsize: int = int(self.np.itemsize)

    def __repr__(self) -> str:
        return f"firebrick.{self.name}"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return dtype, (self.name,)

    if not TYPE_CHECKING:  # for which an unknown attribute is an error by itself

        def __getattr__(self, name: str) -> Any:
            """Raise the error for an attribute that dtypes have not; it names what to write."""
            raise UnknownNameError("'DType' object", name, OF_DTYPES, lambda: dir(DType), "x.dtype.{}")

    @property
    def is_floating(self) -> bool:
        """Whether the elements are floats, without those for storage alone."""
        return self.kind == "float"

    @property
    def is_inexact(self) -> bool:
        """Whether the elements are floats or complex numbers."""
        return self.kind in ("float", "complex")

    @property
    def is_integer(self) -> bool:
        """Whether the elements are signed or unsigned integers."""
        return self.kind in ("int", "uint")

    @property
    def eps(self) -> float:
        """Distance from 1 to the next larger value (of the real part); 0 for exact dtypes."""
        return float(limits(self).eps) if self.is_inexact else 0.0


bool_ = DType("bool", "bool", np.bool_)
int8, int16, int32, int64 = (DType(f"int{n}", "int", f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (DType(f"uint{n}", "uint", f"uint{n}") for n in (8, 16, 32, 64))
bfloat16 = DType("bfloat16", "float", ml_dtypes.bfloat16)
float16, float32, float64 = (DType(f"float{n}", "float", f"float{n}") for n in (16, 32, 64))
complex64, complex128 = (DType(f"complex{n}", "complex", f"complex{n}") for n in (64, 128))
# 4 bits of exponent and no infinity: overflow gives NaN; and 5 bits of exponent with infinities
float8_e4m3fn = DType("float8_e4m3fn", "storage", ml_dtypes.float8_e4m3fn)
float8_e5m2 = DType("float8_e5m2", "storage", ml_dtypes.float8_e5m2)

ALL: tuple[DType, ...] = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64,
    bfloat16, float16, float32, float64, complex64, complex128, float8_e4m3fn, float8_e5m2,
)  # fmt: skip
_BY_NAME = {d.name: d for d in ALL}
_BY_NP = {d.np: d for d in ALL}


_PARTS = {complex64: float32, complex128: float64}
_WHOLES = {float64: complex128}


def real_of(dt: DType) -> DType:
    """The dtype of a complex dtype's parts; any other dtype itself."""
    return _PARTS.get(dt, dt)


def complex_of(dt: DType) -> DType:
    """The complex dtype that holds a floating dtype; a complex dtype itself."""
    return dt if dt.kind == "complex" else _WHOLES.get(dt, complex64)


@cache
def limits(dt: DType) -> Any:
    """NumPy's (or ml_dtypes') ``finfo`` of a floating or complex dtype: eps, max, min, smallest_normal."""
    return ml_dtypes.finfo(dt.np)  # type: ignore[no-untyped-call]


def dtype(of: Any) -> DType:
    """The ``DType`` of a name, a NumPy dtype or a ``DType``.

    Args:
        of: ``DType``, name such as "float32", NumPy dtype, or Python's ``bool``; not its ``int``, ``float`` and ``complex``,
            which have no width.

    Raises:
        DTypeError: Nothing by that name; the message lists what there is.

    Example:
        >>> import firebrick as fb
        >>> fb.dtype("float32") is fb.float32
        True
    """
    if isinstance(of, DType):
        return of
    if isinstance(of, str) and of in _BY_NAME:
        return _BY_NAME[of]
    if of is bool:
        return bool_
    python = {int: int64, float: float64, complex: complex128}
    if isinstance(of, type) and of in python:
        raise DTypeError(
            "a dtype must be named with its width",
            f"the Python type {of.__name__}",
            f"write fb.{python[of].name} or another width",
        )
    try:
        if of is None:  # which NumPy takes for float64
            raise TypeError
        return _BY_NP[np.dtype(of).newbyteorder("=")]
    except (TypeError, KeyError):
        known = ", ".join(_BY_NAME)
        raise DTypeError(f"a dtype must be one of {known}", repr(of), "use one of these") from None


as_dtype = dtype  # for functions with an argument of that name


def dtype_argument(where: str, of: Any) -> DType:
    """The ``dtype=`` that a public function was given; an error names the function."""
    try:
        return as_dtype(of)
    except DTypeError as e:
        raise DTypeError(f"{where}: dtype: {e.expected}", f"dtype={of!r:.60}", e.remedy, op=where) from None


@cache
def promote(a: DType, b: DType) -> DType | None:
    """The common dtype of two arrays by the Array API lattice, or None where the standard defines none."""
    if a is b:
        return a
    if "storage" in (a.kind, b.kind):
        return None
    if a.kind == b.kind:
        if a.itemsize == b.itemsize:  # float16 with bfloat16: neither holds the other
            return float32
        return a if a.itemsize > b.itemsize else b
    if {a.kind, b.kind} == {"int", "uint"}:
        signed, unsigned = (a, b) if a.kind == "int" else (b, a)
        size = max(signed.itemsize, 2 * unsigned.itemsize)
        return _BY_NAME.get(f"int{8 * size}")  # none beyond int64
    if {a.kind, b.kind} == {"float", "complex"}:
        real, cplx = (a, b) if a.kind == "float" else (b, a)
        return complex128 if real is float64 or cplx is complex128 else complex64
    return None


_SCALAR_KINDS = {
    bool: ("bool",),
    int: ("int", "uint", "float", "complex", "storage"),
    float: ("float", "complex", "storage"),
    complex: ("complex",),
}


def python_kind(scalar: type) -> type | None:
    """The Python type that a type of NumPy scalars is treated as when combined with a tensor; None for dates, text and
    records."""
    if issubclass(scalar, np.timedelta64):  # a signed integer to NumPy
        return None
    kinds = {np.bool_: bool, np.integer: int, np.floating: float, np.complexfloating: complex}
    for numpy, python in kinds.items():
        if issubclass(scalar, numpy):
            return python
    known = _BY_NP.get(np.dtype(scalar)) if scalar.__module__ == "ml_dtypes" else None
    return float if known is not None else None


def python_scalar(value: Any) -> Any:
    """A NumPy scalar as the Python number that it is treated as when combined with a tensor; anything else as it is."""
    if not isinstance(value, np.generic):
        return value
    kind = python_kind(type(value))
    return value if kind is None else kind(value)


def scalar_fits(value: Scalar, dt: DType) -> bool:
    """Whether a Python scalar may take dtype ``dt`` when combined with an array of it (weak promotion)."""
    kinds = _SCALAR_KINDS.get(type(value))
    if kinds is None:
        kinds = next((k for t, k in _SCALAR_KINDS.items() if isinstance(value, t)), ())
    return dt.kind in kinds


def zero_of(dt: DType) -> bool | int:
    """The Python scalar that is zero in ``dt``: False for bool, which takes no int."""
    return False if dt.kind == "bool" else 0


@dataclass(frozen=True)
class FInfo:
    """Limits of a floating or complex dtype, as the Array API's ``finfo``."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IInfo:
    """Limits of an integer dtype, as the Array API's ``iinfo``."""

    bits: int
    max: int
    min: int
    dtype: DType


def _of(type_: Any) -> DType:
    return dtype(type_.dtype if hasattr(type_, "dtype") and not isinstance(type_, np.dtype) else type_)


def finfo(type: Any, /) -> FInfo:
    """Machine limits of a floating or complex dtype (or of a tensor's dtype).

    Args:
        type: Floating, complex or 8-bit float dtype, its name, or a tensor.

    Returns:
        ``bits``, ``eps``, ``max``, ``min``, ``smallest_normal`` and ``dtype``; of a complex dtype those of its parts.

    Raises:
        DTypeError: The dtype is an integer dtype or bool.

    Example:
        >>> import firebrick as fb
        >>> fb.finfo(fb.float32).bits
        32
    """
    dt = _of(type)
    if not dt.is_inexact and dt.kind != "storage":
        raise DTypeError("finfo needs a floating or complex dtype", dt.name, "use iinfo for integers")
    real = real_of(dt)
    info = limits(real)
    return FInfo(
        8 * real.itemsize,
        float(info.eps),
        float(info.max),
        float(info.min),
        float(info.smallest_normal),
        real,
    )


def iinfo(type: Any, /) -> IInfo:
    """Limits of an integer dtype (or of a tensor's dtype).

    Args:
        type: Signed or unsigned integer dtype, its name, or a tensor.

    Returns:
        ``bits``, ``max``, ``min`` and ``dtype``.

    Raises:
        DTypeError: The dtype is not an integer dtype.

    Example:
        >>> import firebrick as fb
        >>> fb.iinfo(fb.int8).max
        127
    """
    dt = _of(type)
    if not dt.is_integer:
        raise DTypeError("iinfo needs an integer dtype", dt.name, "use finfo for floating dtypes")
    info = np.iinfo(dt.np)
    return IInfo(int(info.bits), int(info.max), int(info.min), dt)


_KINDS: dict[str, tuple[str, ...]] = {
    "bool": ("bool",),
    "signed integer": ("int",),
    "unsigned integer": ("uint",),
    "integral": ("int", "uint"),
    "real floating": ("float",),
    "complex floating": ("complex",),
    "numeric": ("int", "uint", "float", "complex"),
}


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a name of the standard ("real floating", …), a dtype, or a tuple of those.

    Args:
        dtype: Dtype or its name.
        kind: "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating" or "numeric"; a
            ``DType``; or a tuple of those, of which one must hold. The 8-bit floats are of none of the named kinds.

    Raises:
        DTypeError: There is no such kind.

    Example:
        >>> import firebrick as fb
        >>> fb.isdtype(fb.int8, "integral")
        True
    """
    dt = as_dtype(dtype)
    if isinstance(kind, tuple):
        return any(isdtype(dt, k) for k in kind)
    if isinstance(kind, str) and kind in _KINDS:
        return dt.kind in _KINDS[kind]
    if isinstance(kind, DType):
        return dt is kind
    raise DTypeError(f"kind must be a dtype or one of {', '.join(_KINDS)}", repr(kind), "use one of these")


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether the lattice promotes ``from_`` (dtype or tensor) to ``to`` without loss of kind.

    Args:
        from_: Dtype, its name, or a tensor.
        to: Dtype or its name.

    Example:
        >>> import firebrick as fb
        >>> fb.can_cast(fb.int8, fb.int16), fb.can_cast(fb.float32, fb.int32)
        (True, False)
    """
    return promote(_of(from_), dtype(to)) is dtype(to)


def result_type(*arrays_and_dtypes: Any) -> DType:
    """The dtype that an operation on these operands has; Python and NumPy scalars are weak.

    Args:
        arrays_and_dtypes: Tensors, dtypes and scalars, in any order; at least one that is no scalar.

    Raises:
        DTypeError: No common dtype; the message names the cast to write.

    Example:
        >>> import firebrick as fb
        >>> fb.result_type(fb.int8, fb.uint8)
        firebrick.int16
    """
    found: DType | None = None
    scalars = []
    for v in arrays_and_dtypes:
        if isinstance(v, np.generic):  # also a number of a traced call, which is none yet
            kind = python_kind(v.__class__)
            v = v if kind is None else kind(1)
        if isinstance(v, (bool, int, float, complex)):
            scalars.append(v)
            continue
        dt = _of(v)
        common = dt if found is None else promote(found, dt)
        if common is None:
            raise no_common_dtype("result_type", [(str(found), found or dt), (str(dt), dt)])
        found = common
    if found is None:
        raise DTypeError("result_type needs at least one tensor or dtype", "only scalars", "add a dtype")
    for s in scalars:
        if not scalar_fits(s, found):
            raise scalar_misfit("result_type", s, found)
    return found


def no_common_dtype(op: str, operands: list[tuple[str, DType]]) -> DTypeError:
    (left, first), (right, second) = operands[0], operands[-1]
    goal, name = (first, right) if first.is_inexact or not second.is_inexact else (second, left)
    if first.kind == second.kind == "storage":
        goal = float32
    return DTypeError(
        f"{op}: operands need a common dtype, and the Array API standard has none for {first.name} and {second.name}",
        " and ".join(text for text, _ in operands),
        f"cast one, for example fb.astype({name.split(':')[0]}, fb.{goal.name})",
    )


def scalar_misfit(op: str, value: Scalar, dt: DType, shown: str = "") -> DTypeError:
    """The error for a scalar that may not take dtype ``dt``; ``shown`` describes it where its value is not known yet."""
    if isinstance(value, bool):
        remedy = f"write {int(value)} for {value}"
        if dt.kind == "storage":
            remedy += ", and cast the tensor first: fb.astype(x, fb.float32)"
    else:
        goal = "int64" if isinstance(value, int) and dt.kind == "bool" else "float32"
        if isinstance(value, complex):
            goal = "complex128" if dt is float64 else "complex64"
        remedy = f"cast the tensor first, for example fb.astype(x, fb.{goal})"
    return DTypeError(
        f"{op}: a Python scalar takes the dtype of the tensor it is combined with",
        f"{shown or f'{type(value).__name__} {value!r}'} with {dt.name}",
        remedy,
    )
