"""``run_in_python``: a kernel's function executed by Python itself, item by item, on NumPy arrays.

The names ``K`` (``fb.kernel``), ``fb``, ``math`` and the built-in functions that kernels know stand for others, which
compute on NumPy numbers in the dtypes of the kernel language. Arrays check their indices.
"""

from __future__ import annotations

import builtins
import itertools
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
    """``fb.kernel`` for Python. The items of a group are threads.

    Attributes:
        size: Number of items of a group; 0 for none.
        own: Of the item: ``here``, its index or its group's; ``lane``; ``arrays``, the number of shared arrays that it made.
    """

    def __init__(self, size: int) -> None:
        self.size, self.own = size, threading.local()
        self._lock = threading.Lock()

    def begin(self, here: tuple[Any, ...]) -> None:
        """Begin an item, or the items of a group."""
        self.own.here = here
        self._arrays: list[Elements] = []
        self.together = threading.Barrier(max(self.size, 1))
        self._offered: list[Any] = [None] * self.size

    def group(self, axis: int | None = None) -> Any:
        found = self.own.here if axis is None else self.own.here[axis]
        return found[0] if isinstance(found, tuple) and len(found) == 1 else found

    def index(self, axis: int | None = None) -> Any:
        return self.group() * np.int64(self.size) + self.own.lane if self.size else self.group(axis)

    def lane(self) -> Any:
        return self.own.lane

    def shared(self, dtype: Any, shape: Any) -> Elements:
        self.own.arrays += 1
        with self._lock:
            if len(self._arrays) < self.own.arrays:
                self._arrays.append(Elements(np.zeros(shape, dtype.of)))
            return self._arrays[self.own.arrays - 1]

    def barrier(self) -> None:
        self.together.wait()

    def shuffle(self, value: Any, source: Any, width: int) -> Any:
        lane = int(self.own.lane)
        self._offered[lane] = value
        self.together.wait()
        found = self._offered[lane // width * width + int(source) % width]
        self.together.wait()
        return found

    def unrolled(self, *bounds: int) -> range:
        return range(*bounds)

    def registers(self, value: Any, shape: Any) -> Elements:
        return Elements(np.full(shape, value, np.asarray(value).dtype))

    def atomic_add(self, array: Elements, at: Any, v: Any) -> None:
        with self._lock:
            array[at] = array[at] + v

    def random_bits(self, key: Elements, position: Any) -> Any:
        return OPS["random_bits"].reference(key.array, shape=(), offset=int(position))[()]

    def random_uniform(self, key: Elements, position: Any, dtype: Any = fb.float32) -> Any:
        return OPS["random_uniform"].reference(key.array, shape=(), offset=int(position), dtype=dtype)[()]


class _Cast:
    """A dtype, which casts."""

    def __init__(self, of: Any) -> None:
        self.of = of

    def __call__(self, v: Any) -> Any:
        return in_dtype(v, self.of)


def _counters(*bounds: Any) -> Iterator[Any]:
    return map(np.int64, builtins.range(*map(int, bounds)))


class _Firebrick:
    """``fb`` for Python: dtypes are casts, functions those of the op table on scalars."""

    inf = np.inf

    def __getattr__(self, name: str) -> Any:
        dtype = getattr(fb, name)
        if isinstance(dtype, fb.DType):
            return _Cast(dtype.np)
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
    """The results of a kernel, by Python.

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
    size = given[kernel._group] if isinstance(kernel._group, str) else kernel._group
    language = _Language(size)
    body = _replaced(kernel.__wrapped__, language)
    for here in itertools.product(*(range(s.value(sizes)) for s in signature.grid)):
        language.begin(tuple(map(np.int64, here)))
        if size:
            _group_of_threads(language, body, values)
        else:
            with np.errstate(all="ignore"):
                body(**values)
    return tuple(values[n].array for n in signature.results)


def _group_of_threads(language: _Language, body: Any, values: dict[str, Any]) -> None:
    here = language.own.here

    def item(lane: int) -> None:
        language.own.here, language.own.lane, language.own.arrays = here, np.int64(lane), 0
        ended = False
        try:
            with np.errstate(all="ignore"):
                body(**values)
            ended = True
        finally:
            if not ended:
                language.together.abort()

    with ThreadPoolExecutor(language.size) as pool:
        list(pool.map(item, range(language.size)))


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
