"""``run_in_python``: a kernel's function executed by Python itself, item by item, on NumPy arrays.

The names ``K`` (``fb.kernel``), ``fb``, ``math`` and the built-in functions that kernels know stand for others, which
compute on NumPy numbers in the dtypes of the kernel language. Arrays check their indices. Groups are not executed.
"""

from __future__ import annotations

import builtins
import itertools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import firebrick as fb
from firebrick.compiler.kernel.language.annotations import ArrayType, ConstantType, NumberType, Signature, floating_of
from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.ops.table import OPS

Array = np.ndarray[Any, Any]


def in_dtype(v: Any, dtype: Any) -> Any:
    """A number in a dtype, as a NumPy scalar; integers wrap around."""
    return np.asarray(v).astype(dtype)[()]


class Elements:
    """An array of a kernel: its elements are computed with in float32 if they are stored in half precision."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.computed = np.dtype(np.float32) if array.dtype == np.float16 else array.dtype
        self.shape = tuple(np.int64(n) for n in array.shape)
        self.size, self.ndim = np.int64(array.size), array.ndim

    def __len__(self) -> int:
        return len(self.array)

    def _place(self, at: Any) -> tuple[int, ...]:
        place = tuple(int(i) for part in (at if isinstance(at, tuple) else (at,)) for i in np.ravel(part))
        if len(place) != self.ndim or not all(0 <= i < n for i, n in zip(place, self.array.shape, strict=True)):
            raise IndexError(f"{place} of {self.array.shape}")
        return place

    def __getitem__(self, at: Any) -> Any:
        return self.array[self._place(at)].astype(self.computed)

    def __setitem__(self, at: Any, v: Any) -> None:
        self.array[self._place(at)] = in_dtype(v, self.array.dtype)


class _Language:
    """``fb.kernel`` for Python: ``here`` is the index of the item."""

    here: tuple[Any, ...] = ()

    def index(self, axis: int | None = None) -> Any:
        found = self.here if axis is None else self.here[axis]
        return found[0] if isinstance(found, tuple) and len(found) == 1 else found

    def unrolled(self, *bounds: int) -> range:
        return range(*bounds)

    def registers(self, value: Any, shape: Any) -> Elements:
        return Elements(np.full(shape, value, np.asarray(value).dtype))

    def atomic_add(self, array: Elements, at: Any, v: Any) -> None:
        array[at] = array[at] + v

    def random_bits(self, key: Elements, position: Any) -> Any:
        return OPS["random_bits"].reference(key.array, shape=(), offset=int(position))[()]

    def random_uniform(self, key: Elements, position: Any, dtype: Any = fb.float32) -> Any:
        return OPS["random_uniform"].reference(key.array, shape=(), offset=int(position), dtype=dtype)[()]


def _counters(*bounds: Any) -> Iterator[Any]:
    return map(np.int64, builtins.range(*map(int, bounds)))


class _Firebrick:
    """``fb`` for Python: dtypes are casts, functions those of the op table on scalars."""

    inf = np.inf

    def __getattr__(self, name: str) -> Any:
        dtype = getattr(fb, name)
        if isinstance(dtype, fb.DType):
            return lambda v: in_dtype(v, dtype.np)
        if name == "erf":
            return lambda v: OPS["erf"].reference(np.asarray(v))[()]
        return getattr(np, name)


def _fold(f: Callable[..., Any]) -> Callable[..., Any]:
    def folded(*operands: Any) -> Any:
        out = operands[0]
        for v in operands[1:]:
            out = f(out, v)
        return out

    return folded


_REPLACED: dict[str, Any] = {
    "range": _counters, "min": _fold(np.minimum), "max": _fold(np.maximum), "abs": np.abs, "math": np, "fb": _Firebrick(),
    "int": lambda v: in_dtype(v, np.int64), "float": lambda v: in_dtype(v, np.float32),
    "len": lambda x: np.int64(builtins.len(x)),
}  # fmt: skip


def run_in_python(kernel: Any, arguments: Sequence[Any]) -> tuple[Array, ...]:
    """The results of a kernel without groups, by Python.

    Args:
        kernel: Made by ``@fb.kernel``.
        arguments: NumPy arrays and numbers.
    """
    signature: Signature = kernel.signature
    given = dict(zip(signature.given, arguments, strict=False))
    for name, default in signature.defaults.items():
        given.setdefault(name, default)
    sizes: dict[str, int] = {n: v for n, v in given.items() if isinstance(v, int)}
    values: dict[str, Any] = {}
    dtypes: dict[str, Any] = {}
    for name, p in signature.parameters.items():
        if isinstance(p, ArrayType) and p.role != "Out":
            array = np.array(given[name])
            dtypes[name] = fb.asarray(array).dtype
            values[name] = Elements(array)
            for axis, s in enumerate(p.sizes):
                if s is not None and s.simple:
                    sizes.setdefault(s.text, array.shape[axis])
        elif isinstance(p, ConstantType):
            values[name] = given[name]
    for name, p in signature.arrays.items():
        dtypes[name] = p.dtype if isinstance(p.dtype, fb.DType) else dtypes[p.dtype or name]
        if p.role == "Out":
            shape = tuple(s.value(sizes) for s in p.sizes if s is not None)
            values[name] = Elements(np.full(shape, p.initial or 0, dtypes[name].np))
    floating = floating_of({n: dtypes[n] for n in signature.arrays})
    for name, p in signature.parameters.items():
        if isinstance(p, NumberType):
            values[name] = in_dtype(given[name], (p.dtype or floating).np)
    language = _Language()
    body = _replaced(kernel.__wrapped__, language)
    with np.errstate(all="ignore"):
        for here in itertools.product(*(range(s.value(sizes)) for s in signature.grid)):
            language.here = tuple(map(np.int64, here))
            body(**values)
    return tuple(values[n].array for n in signature.results)


def _replaced(f: Any, language: _Language) -> Any:
    """A function whose names, and those of the functions that it calls, stand for NumPy's."""
    names: dict[str, Any] = {**f.__globals__, "K": language, **_REPLACED}
    for name, held in list(names.items()):
        if isinstance(held, HelperFunction):
            names[name] = _with_names(held.function, names)
    return _with_names(f, names)


def _with_names(f: Any, names: dict[str, Any]) -> Any:
    made = types.FunctionType(f.__code__, names, f.__name__, f.__defaults__, f.__closure__)
    made.__kwdefaults__ = f.__kwdefaults__
    return made
