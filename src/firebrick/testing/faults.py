"""Engines with a planted fault: each is one of the ways in which engines have gone wrong without notice.

A check counts only if it can fail. Each context manager registers a faulty engine of its own, gives a device of it, and
takes it away again; the conformance suite must name the op at fault, and pass on ``sound()``, the same engine without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np

from firebrick.backends.numpy.engine import HostBackend
from firebrick.backends.registry import find_device, register_backend, unregister_backend
from firebrick.compiler import Executable, Kernel, call, choose, plan_memory, write
from firebrick.core.aval import Aval
from firebrick.core.device import Device
from firebrick.core.op import Op
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.ops.declare import Array

ENGINE = "faulty"

Fault = Callable[[Callable[..., Any], Op, tuple[Any, ...], dict[str, Any], Any], Any]
"""``(right, op, inputs, params, out) -> result``, where ``right`` runs any op as it should be."""


class FaultyBackend(HostBackend):
    """A host engine whose ``execute`` goes through a fault; it offers no fast or kept kernels, so nothing escapes the fault."""

    engine = ENGINE
    platforms = (ENGINE,)

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.fault = fault

    def execute(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any], out: Any = None) -> Any:
        return self.fault(super().execute, op, inputs, params, out)

    def fast_kernel(self, op: Op, dtypes: tuple[Any, ...]) -> None:
        return None

    def kept_kernel(self, *operation: Any) -> None:
        return None


class CarelessBackend(HostBackend):
    """A host engine whose plans write an elementwise result over its first operand though that is used again later."""

    engine = ENGINE
    platforms = (ENGINE,)

    def compile(
        self, graph: Graph, device: Device | None = None, donate: Iterable[int] = (), ready: Iterable[int] = ()
    ) -> Executable:
        kernels = choose(self, graph, device)
        plan = plan_memory(graph, kernels, donate, ready)
        avals = graph.avals
        for p, k in enumerate(plan.order):
            n, kernel = graph.nodes[k], kernels[k]
            if kernel is None or kernel.into is None or n.inputs[0] < len(graph.inputs) or avals[n.inputs[0]] != n.avals[0]:
                continue
            if any(n.inputs[0] in graph.nodes[later].inputs for later in plan.order[p + 1 :]):
                plan.into, plan.dies = {k: n.inputs[0]}, {}
                break
        return write(self, graph, kernels, plan, device)


@contextmanager
def careless() -> Iterator[Device]:
    """A device of an engine whose compiled programs reuse memory that is still needed.

    Example:
        >>> from firebrick.testing import faults
        >>> with faults.careless() as device:
        ...     device.name
        'faulty:0'
    """
    register_backend(CarelessBackend())
    try:
        yield find_device(ENGINE)
    finally:
        unregister_backend(ENGINE)


class FaultyPrograms(FaultyBackend):
    """A host engine that is sound when it runs operations one by one, and whose compiled programs go through a fault."""

    def execute(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any], out: Any = None) -> Any:
        return HostBackend.execute(self, op, inputs, params, out)

    def kernel(
        self, op: Op, operands: tuple[Aval, ...], params: dict[str, Any], results: tuple[Aval, ...], device: Device | None,
        known: tuple[Array | None, ...],
    ) -> Kernel:  # fmt: skip
        return call(lambda *natives: self.fault(self.execute, op, natives, params, None), len(operands), {})


class FaultyRepeats(HostBackend):
    """A host engine that is sound when it runs an operation for the first times, and whose kernels that are kept for later
    calls, in plans and on the fast path, go through a fault."""

    engine = ENGINE
    platforms = (ENGINE,)

    def __init__(self, fault: Fault) -> None:
        super().__init__()
        self.fault = fault

    def _faulty(self, kernel: Callable[..., Any] | None, op: Op, params: dict[str, Any]) -> Callable[..., Any] | None:
        if kernel is None:
            return None
        return lambda *natives: self.fault(lambda op, inputs, params, out: kernel(*inputs), op, natives, params, None)

    def fast_kernel(self, op: Op, dtypes: tuple[Any, ...]) -> Callable[..., Any] | None:
        return self._faulty(super().fast_kernel(op, dtypes), op, {})

    def kept_kernel(
        self, op: Op, operands: tuple[Aval, ...], params: dict[str, Any], results: tuple[Aval, ...], device: Device
    ) -> Callable[..., Any] | None:  # fmt: skip
        return self._faulty(super().kept_kernel(op, operands, params, results, device), op, params)


class StaleReplays(HostBackend):
    """A host engine whose programs of gradient rules give their first results again, whatever they are called with."""

    engine = ENGINE
    platforms = (ENGINE,)

    def replay(self, graph: Graph, device: Device, large: bool) -> Executable:
        right, first = super().replay(graph, device, large), list[Any]()

        def stale(operands: Any) -> Any:
            first[:] = first or [right(operands)]
            return [np.array(r) for r in first[0]]

        return cast(Executable, stale)


@contextmanager
def stale_replays() -> Iterator[Device]:
    """A device of an engine whose repeated gradients are those of the first operands.

    Example:
        >>> from firebrick.testing import faults
        >>> with faults.stale_replays() as device:
        ...     device.name
        'faulty:0'
    """
    register_backend(StaleReplays())
    try:
        yield find_device(ENGINE)
    finally:
        unregister_backend(ENGINE)


@contextmanager
def planted(fault: Fault, *, programs: bool = False, repeats: bool = False) -> Iterator[Device]:
    """A device of an engine with any fault, in all that it runs, in compiled programs only, or in kernels that are kept for
    repeated operations only.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.testing import faults
        >>> with faults.planted(faults.reads_zero("add")) as device:
        ...     x = fb.ones(2, device=device)
        ...     (x + x).tolist()
        [0.0, 0.0]
    """
    register_backend((FaultyPrograms if programs else FaultyRepeats if repeats else FaultyBackend)(fault))
    try:
        yield find_device(ENGINE)
    finally:
        unregister_backend(ENGINE)


def _zeros_like(result: Any) -> Any:
    return tuple(np.zeros_like(r) for r in result) if isinstance(result, tuple) else np.zeros_like(result)


def sound() -> Fault:
    """No fault."""
    return lambda right, op, inputs, params, out: right(op, inputs, params, out)


def reads_zero(name: str) -> Fault:
    """The op writes its result elsewhere; the buffer it returns holds zeros."""

    def fault(right: Any, op: Op, inputs: Any, params: Any, out: Any) -> Any:
        result = right(op, inputs, params, out)
        return _zeros_like(result) if op.name == name else result

    return fault


def first_row_only(name: str = "matmul") -> Fault:
    """A kernel tuned for one row: only row 0 of the result is computed, the others are zero."""

    def fault(right: Any, op: Op, inputs: Any, params: Any, out: Any) -> Any:
        result = right(op, inputs, params, out)
        if op.name == name and result.ndim > 1:
            result = np.array(result)
            result[..., 1:, :] = 0
        return result

    return fault


def _memory_of(x: Array) -> Array:
    """The elements that lie in memory from the start of the array that ``x`` views on, in ``x``'s shape."""
    root = x
    while isinstance(root.base, np.ndarray):
        root = root.base
    flat = root.reshape(-1, order="A").view(x.dtype)
    return np.resize(flat, x.shape) if flat.size else x


def ignores_strides(name: str) -> Fault:
    """The op takes every operand for contiguous memory from its base on."""

    def fault(right: Any, op: Op, inputs: Any, params: Any, out: Any) -> Any:
        if op.name == name:
            inputs = tuple(map(_memory_of, inputs))
        return right(op, inputs, params, out)

    return fault


def narrows(name: str) -> Fault:
    """The op returns float32 for float64."""

    def fault(right: Any, op: Op, inputs: Any, params: Any, out: Any) -> Any:
        result = right(op, inputs, params, out)
        return result.astype(np.float32) if op.name == name and result.dtype == np.float64 else result

    return fault


def destinations_read_zero() -> Fault:
    """Whatever is computed into a destination is not there when it is read."""

    def fault(right: Any, op: Op, inputs: Any, params: Any, out: Any) -> Any:
        result = right(op, inputs, params, out)
        return result if out is None else _zeros_like(result)

    return fault


def shares_memory(name: str) -> Fault:
    """The op returns its first operand's memory where that holds the result already."""

    def fault(right: Any, op: Op, inputs: Any, params: Any, out: Any) -> Any:
        result = right(op, inputs, params, out)
        same = op.name == name and result.dtype == inputs[0].dtype and np.array_equal(result, inputs[0])
        return inputs[0] if same else result

    return fault


def writes_operand(name: str) -> Fault:
    """The op computes in place, into its first operand."""

    def fault(right: Any, op: Op, inputs: Any, params: Any, out: Any) -> Any:
        result = right(op, inputs, params, out)
        first = inputs[0]
        if op.name == name and first.flags.writeable and (first.shape, first.dtype) == (result.shape, result.dtype):
            first[...] = result
        return result

    return fault


EXAMPLES: tuple[tuple[Fault, str], ...] = (
    (reads_zero("add"), "add"),
    (reads_zero("softmax"), "softmax"),
    (first_row_only("matmul"), "matmul"),
    (ignores_strides("relu"), "relu"),
    (ignores_strides("sum"), "sum"),
    (ignores_strides("matmul"), "matmul"),
    (narrows("multiply"), "multiply"),
    (shares_memory("cast"), "cast"),
    (shares_memory("relu"), "relu"),
    (writes_operand("maximum"), "maximum"),
)
"""Faults of one op each, with its name: what every check of engines must find."""


@contextmanager
def wrong_gradient(name: str, factor: float = 2.0) -> Iterator[Op]:
    """The gradient rule of an op is off by a factor, on every engine.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.testing import faults
        >>> with faults.wrong_gradient("sin"):
        ...     fb.grad(fb.sin)(fb.asarray(0.0)).item()
        2.0
    """
    op = OPS[name]
    right = op.vjp
    if not callable(right):
        raise ValueError(f"{name} has no gradient rule: {right.reason}")

    def wrong(g: Any, r: Any) -> Any:
        assert callable(right)
        return tuple(None if v is None else v * factor for v in right(g, r))

    object.__setattr__(op, "vjp", wrong)
    try:
        yield op
    finally:
        object.__setattr__(op, "vjp", right)
