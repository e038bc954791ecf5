"""``replayed``: what eager code computes again and again, for operands of the same kind, runs as one program.

Gradient rules and the updates of optimizers are functions of tensors that depend on nothing of them but shapes and dtypes. When
such a function has run ``BEFORE`` times for operands of one kind it is traced, and from then on the engine runs the graph: the
same kernels on the same arrays, without ``bind``, handles and storages between them. The bits stay the same, so it does not
matter when that begins. Where operands have ``LARGE`` elements or more the function is traced at once, as the engine may
compile kernels for the graph (``Backend.replay``), whose bits may differ from those of single operations: that must depend on
shapes alone.

A function that cannot be traced, or whose results share memory with its operands, runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from firebrick.autodiff.rules import replays
from firebrick.compiler import Executable
from firebrick.core import timeline
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.hooks import hooks
from firebrick.core.storage import Storage, owned
from firebrick.core.tensor import Tensor
from firebrick.graph.passes import optimize
from firebrick.graph.trace import tracing
from firebrick.ir import Graph

BEFORE = 2
"""Times that a function runs operation by operation before it is traced: tracing takes longer than running."""
LARGE = 1 << 14
"""Minimum number of elements of all operands for which a function is traced at its first call, and may have its own kernels."""
KEPT = 4096
"""Maximum number of programs; the oldest half is dropped first."""

Compute = Callable[..., Sequence[Tensor | None]]


class Replay:
    """The program of a function of tensors.

    Args:
        program: Computes the results that are no operands.
        results: For each result: the number of the operand that it is, or the position of the program's output, with its shape
            and dtype; None for none.
        device: Device of all operands.

    Attributes:
        program, results: As given.
        fresh: Whether every result is an output of the program.
    """

    __slots__ = ("_device", "fresh", "program", "results")

    def __init__(self, program: Executable, results: Sequence[tuple[int, Aval | None] | None], device: Device) -> None:
        self.program, self.results, self._device = program, tuple(results), device
        self.fresh = all(r is not None and r[1] is not None for r in results)

    def __call__(self, operands: Sequence[Any]) -> list[Tensor | int | None]:
        """The results for native operands. A result that is an operand is its number."""
        device, found = self._device, list[Tensor | int | None]()
        made = owned(self.program(operands), device._memory)
        for result in self.results:
            if result is None:
                found.append(None)
                continue
            at, aval = result
            found.append(at if aval is None else Tensor(made[at], aval.dtype, aval.shape, device))
        return found

    def storages(self, operands: Sequence[Any]) -> list[Storage]:
        """The storages of the results for native operands, of a program whose results are all ``fresh``."""
        made = owned(self.program(operands), self._device._memory)
        return [made[at] for at, _ in self.results]  # type: ignore[misc]


class Programs:
    """The programs of functions, by key. They are forgotten when a setting changes that engines read while they compile."""

    def __init__(self) -> None:
        self._entries: dict[Any, Replay | int | None] = {}
        self._settings = config.compiled_with

    def find(self, key: Any, device: Device) -> Replay | bool:
        """The program for a key; False if none may run now, True if ``count`` may make one.

        Args:
            key: What the results depend on, besides the operands' elements. It must hold their shapes, dtypes and device.
            device: Device of the operands.
        """
        if hooks.tracing or timeline.active or not device.backend.replays:
            return False
        if self._settings is not config.compiled_with:
            self._entries, self._settings = {}, config.compiled_with
        found = self._entries.get(key, 0)
        return True if isinstance(found, int) else found or False

    def count(self, key: Any, compute: Compute, operands: Sequence[Tensor]) -> Replay | None:
        """Count a call for which ``find`` returned True; returns the program if it is made now.

        Args:
            key: As in ``find``.
            compute: The function. It changes no tensor and reads no values.
            operands: Untracked tensors on one device.
        """
        device = operands[0].device
        times = self._entries.get(key, 0)
        if not isinstance(times, int):
            return times
        large = sum(prod(t.shape) for t in operands) >= LARGE
        entry = times + 1 if times < BEFORE and not large else _made(compute, operands, device, large)
        if len(self._entries) >= KEPT and key not in self._entries:
            for old in list(self._entries)[: KEPT // 2]:
                self._entries.pop(old, None)
        self._entries[key] = entry
        return None if isinstance(entry, int) else entry

    def __len__(self) -> int:
        if self._settings is not config.compiled_with:
            return 0
        return sum(type(entry) is Replay for entry in self._entries.values())


RULES, UPDATES = Programs(), Programs()
"""The programs of gradient rules, and of updates of optimizers."""


def key_for(key: Any, operands: Sequence[Tensor]) -> tuple[Any, ...]:
    """The key of an update with these operands."""
    return key, operands[0].device, tuple([(t.shape, t.dtype) for t in operands])


def updated(key: Any, compute: Callable[..., Sequence[Tensor]], operands: Sequence[Tensor]) -> Sequence[Tensor]:
    """``compute(*operands)``, by a program where there is one.

    Args:
        key: What the results depend on, besides operands and their shapes, dtypes and device; None if that cannot be known.
        compute: The function. It changes no tensor and reads no values.
        operands: Untracked tensors.
    """
    if not operands:
        return compute()
    device = operands[0].device
    if key is None or any(t.device is not device or t.node is not None for t in operands):
        return compute(*operands)
    whole = key_for(key, operands)
    found: Replay | bool | None = UPDATES.find(whole, device)
    if found is True:
        found = UPDATES.count(whole, compute, operands)
    if not isinstance(found, Replay):
        return compute(*operands)
    try:
        made = found([t.storage.data for t in operands])
    except Exception:  # noqa: BLE001 - operation by operation, the update reports the cause
        return compute(*operands)
    return [operands[r].detach() if isinstance(r, int) else r for r in made if r is not None]


def _made(compute: Compute, operands: Sequence[Tensor], device: Device, large: bool) -> Replay | None:
    """The program of a function for operands like these; None if there is none."""
    given = [Tensor(t.storage, t.dtype, t.shape, t.device) for t in operands]
    try:
        with tracing("a computation that is repeated") as trace:
            for t in given:
                trace.enter(t, "")
            numbers = [None if r is None else trace.number(r) for r in compute(*given)]
            other = trace.checks or trace.callbacks or trace.draws or len(trace.sources) > len(given)
            outputs = list(dict.fromkeys(n for n in numbers if n is not None and n >= len(given)))
            if other or not outputs or trace.device is not device:
                return None
            graph, avals = optimize(trace.graph(outputs)), list(trace.avals)
            trace.forget()
        if _shares(graph):
            return None
        program = device.backend.replay(graph, device, large)
    except Exception:  # noqa: BLE001 - what the trace refuses, or an engine cannot compile, runs as it is and reports it there
        return None
    at = {n: i for i, n in enumerate(outputs)}
    return Replay(program, [None if n is None else (at[n], avals[n]) if n in at else (n, None) for n in numbers], device)


def _shares(graph: Graph) -> bool:
    """Whether an output is an input, or a view of one: a program would copy it."""
    count, made = len(graph.inputs), {v: n for n in graph.nodes for v in n.results}
    for v in graph.outputs:
        while v >= count and made[v].op.view:
            v = made[v].inputs[0]
        if v < count:
            return True
    return False


replays.find, replays.count = RULES.find, RULES.count
