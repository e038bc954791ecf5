"""Eager operations that run on compiled kernels instead of NumPy's, and the memory of large results of NumPy's.

Whether an operation has a compiled kernel depends on op, shapes and parameters alone, by a table of the times of NumPy's
kernels, never on the clock or the number of calls. So an operation gives the same bits in every process, also after a restart.
Each new shape is compiled once, in 10 to 60 ms, or loaded from the cache of objects in 5 ms; so only operations that take NumPy
``EXPENSIVE_US`` or more have a compiled kernel.

Not in the table: single ufuncs, which NumPy vectorises and which bypass ``execute``; matrix products, which BLAS computes as
fast; copies, which are memory-bound; gathers and scatters.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from firebrick.backends.cpu.runtime.results import RESULTS
from firebrick.compiler import Executable
from firebrick.compiler.fusion.fused import FUSED
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.dtypes import _BY_NP
from firebrick.core.locks import forkable
from firebrick.core.op import Op
from firebrick.ir import CONSTANT, Graph
from firebrick.ir.keys import key_of

EXPENSIVE_US = 50.0
"""Minimum estimated time of NumPy's kernel, in microseconds, for which an operation has a compiled kernel."""
LARGE = 1 << 25
"""Minimum bytes of an operand of a ufunc whose result is put in reused memory (``runtime.results``). glibc asks the system for
new memory for arrays of this size on; smaller ones it keeps, which is faster than to prepare a destination."""
KEPT = 1024
"""Maximum number of compiled operations in memory; the least recently used one is dropped first."""

Array = np.ndarray[Any, Any]


def destination(ufunc: np.ufunc, inputs: tuple[Array, ...]) -> Array | None:
    """Reused memory for the result of a ufunc; None if an operand is not row-major: the result has its order then."""
    for x in inputs:
        if not x.flags.c_contiguous:
            return None
    shape = inputs[0].shape if len(inputs) == 1 else np.broadcast(*inputs).shape
    dtype = ufunc.resolve_dtypes((*(x.dtype for x in inputs), None))[-1]
    return RESULTS.empty(shape, dtype, dtype.itemsize * prod(shape))


def _large(x: Any) -> bool:
    """Whether an operand is a large array; one that a failed program has taken is none, which its ufunc tells."""
    return type(x) is np.ndarray and x.nbytes >= LARGE


def into_reused_memory(ufunc: np.ufunc) -> Callable[..., Array]:
    """A ufunc of operands of equal shape, without floating-point warnings, whose large results are in reused memory."""

    def one(x: Array) -> Array:
        found: Array = ufunc(x, out=destination(ufunc, (x,))) if _large(x) else ufunc(x)
        return found

    def two(x: Array, y: Array) -> Array:
        found: Array = ufunc(x, y, out=destination(ufunc, (x, y))) if _large(x) and _large(y) else ufunc(x, y)
        return found

    return np.errstate(all="ignore")(one if ufunc.nin == 1 else two)


Estimate = Callable[[tuple[Any, ...], dict[str, Any]], float]
"""Of operands, arrays or their ``Aval``, and parameters."""


def _each(ns: float) -> Estimate:
    """An estimate of this number of nanoseconds for each element of the first operand."""
    us = ns / 1000
    return lambda inputs, params: inputs[0].size * us


# microseconds for one multiply-add of a contraction; for attention, for one multiply-add in each of its products
_CONV, _ATTENTION, _ATTENTION_GRADIENT = 6e-5, 1.6e-4, 3.2e-4
# microseconds of a call whatever its size
_CONV_CALL, _POOL_CALL, _ATTENTION_CALL = 40.0, 45.0, 40.0


def _conv(inputs: tuple[Array, ...], params: dict[str, Any]) -> float:
    x, weight = inputs
    return float(_CONV_CALL + _CONV * x.size / max(1, x.shape[1]) * weight.size / prod(params["stride"]))


def _conv_input(inputs: tuple[Array, ...], params: dict[str, Any]) -> float:
    g, weight = inputs
    return float(_CONV_CALL + _CONV * g.size * weight.size / max(1, weight.shape[0]))


def _conv_weight(inputs: tuple[Array, ...], params: dict[str, Any]) -> float:
    x, g = inputs
    return float(_CONV_CALL + _CONV * g.size * (x.shape[1] // params["groups"]) * prod(params["kernel"]))


def _pooling(ns: float) -> Estimate:
    """An estimate for pooling that takes this number of nanoseconds for each element of the first operand."""
    each = _each(ns)
    return lambda inputs, params: _POOL_CALL + each(inputs, params)


ESTIMATES: dict[str, Estimate] = {
    "sigmoid": _each(10.0), "erf": _each(5.0), "gelu": _each(4.8), "gelu_gradient": _each(9.6),
    "lgamma": _each(300.0), "digamma": _each(300.0), "polygamma": _each(300.0), "erfinv": _each(100.0),
    "i0": _each(100.0), "i1": _each(100.0),
    "softmax": _each(1.6), "log_softmax": _each(1.4), "layer_norm": _each(1.5), "rms_norm": _each(0.9),
    "standardize": _each(1.0), "standardize_gradient": _each(1.4), "sum": _each(0.5), "mean": _each(0.5),
    "max_pool": _pooling(4.2), "max_pool_gradient": _pooling(15.0), "avg_pool_input": _pooling(3.9),
    "conv": _conv, "conv_input": _conv_input, "conv_weight": _conv_weight,
    "attention": lambda xs, params: _ATTENTION_CALL + _ATTENTION * xs[0].size * xs[1].shape[-2],
    "attention_gradient": lambda xs, params: _ATTENTION_CALL + _ATTENTION_GRADIENT * xs[1].size * xs[2].shape[-2],
    "cumulative_logsumexp": _each(10.0), "linear_recurrence": _each(2.5),
    "random_uniform": lambda xs, params: prod(params["shape"]) * 0.006,
}  # fmt: skip
"""Name of an op → estimated microseconds of NumPy's kernel, for float32 on one core of 2024."""


def is_expensive(name: str, inputs: tuple[Any, ...], params: dict[str, Any]) -> bool:
    """Whether an operation of the table has a compiled kernel for operands of these shapes."""
    return ESTIMATES[name](inputs, params) >= EXPENSIVE_US


SMALLEST_SYSTEM, LARGEST_SYSTEM = 32, 64
"""Sizes of the systems of equations that the kernel of ``linear_systems`` solves faster than LAPACK."""
_SYSTEMS = 32
"""Minimum number of systems for which that kernel is compiled."""


def are_many_systems(x1: Any, x2: Any) -> bool:
    """Whether operands of ``solve``, arrays or their ``Aval``, are for the kernel of ``linear_systems``: by shapes and dtypes
    alone."""
    *stack, n = x1.shape[:-1]
    return (
        SMALLEST_SYSTEM <= n <= LARGEST_SYSTEM
        and prod(stack) >= _SYSTEMS
        and x2.shape == (*stack, n, 1)
        and np.dtype(getattr(x1.dtype, "np", x1.dtype)).char in "fd"
    )


_CALL_US, _ELEMENT_US = 2.5, 4e-4  # microseconds of NumPy for an operation that is not in the table, and for an element of it


def is_expensive_graph(graph: Graph) -> bool:
    """Whether kernels are compiled for a small graph: one without products, of which NumPy takes ``EXPENSIVE_US`` or more."""
    avals, total = graph.avals, 0.0
    for n in graph.nodes:
        if n.op.fusion == "contract" or n.op.control is not None:
            return False
        if n.op is CONSTANT or n.op.view is not None:
            continue
        operands = tuple(avals[i] for i in n.inputs)
        estimate = ESTIMATES.get(n.op.name)
        size = max(a.size for a in (*operands, *n.avals))
        total += estimate(operands, n.params) if estimate is not None else _CALL_US + size * _ELEMENT_US
    return total >= EXPENSIVE_US


class EagerKernels:
    """The compiled kernels of eager operations; each is compiled at its first call. Thread-safe.

    Args:
        compile: Compiles a graph.
    """

    def __init__(self, compile: Callable[[Graph], Executable]) -> None:
        self._compile = compile
        self._lock = forkable(threading.Lock())
        self._made: OrderedDict[Any, Executable | None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._made)

    def run(self, op: Op, inputs: tuple[Array, ...], params: dict[str, Any]) -> Any:
        """The op's result, or a tuple of its results; None if it has no compiled kernel."""
        key = (op.name, config.compiled_with, *((x.shape, x.dtype) for x in inputs), key_of(params))
        return self._run(key, op, inputs, params)

    def kernel(self, op: Op, operands: tuple[Aval, ...], params: dict[str, Any]) -> Callable[..., Any]:
        """``run`` for operands of these shapes and dtypes, under the settings of now, as a function of the operands."""
        key = (op.name, config.compiled_with, *((a.shape, a.dtype.np) for a in operands), key_of(params))
        return lambda *inputs: self._run(key, op, inputs, params)

    def _run(self, key: Any, op: Op, inputs: tuple[Array, ...], params: dict[str, Any]) -> Any:
        with self._lock:
            known = key in self._made
            program = self._made.get(key)
            if known:
                self._made.move_to_end(key)
        if not known:
            program = self._program(op, inputs, params)
            with self._lock:
                program = self._made.setdefault(key, program)
                while len(self._made) > KEPT:
                    self._made.popitem(last=False)
        if program is None:
            return None
        results = program(inputs)
        return results if len(results) > 1 else results[0]

    def _program(self, op: Op, inputs: tuple[Array, ...], params: dict[str, Any]) -> Executable | None:
        """An op as a program of native kernels only; None if some node has no native kernel."""
        graph = Graph([Aval(x.shape, _BY_NP[x.dtype]) for x in inputs])
        graph.outputs = graph.add(op, *range(len(inputs)), **params)
        program = self._compile(graph)
        nodes = program.graph.nodes
        return program if all(n.op in (FUSED, CONSTANT) or n.op.fusion == "move" for n in nodes) else None

    def clear(self) -> None:
        """Drop all kernels."""
        with self._lock:
            self._made.clear()
