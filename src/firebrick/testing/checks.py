"""What the checks of conformance have in common: placing operands, running a case, writing into tensors, comparing bits.

A check is a generator, which yields the tensors whose values it needs next, and is sent their values.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np

from firebrick.core.aval import Aval
from firebrick.core.bind import bind
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.graph import jit
from firebrick.ops import OPS
from firebrick.ops.declare import Array
from firebrick.testing.cases import Case
from firebrick.testing.layouts import of_operand, place, values_in

Check = Generator[Sequence[Tensor], Sequence[Array], Any]
"""A check: it yields tensors, and is sent their values."""

Run = Callable[[tuple[Tensor, ...], Tensor | None], tuple[Tensor, ...]]


class Wrong(Exception):
    """A check of a case failed."""


def require(holds: bool, what: str) -> None:
    """Raise ``Wrong`` unless something holds."""
    if not holds:
        raise Wrong(what)


def same_bits(a: Array, b: Array) -> bool:
    """Whether two arrays have the same shape, dtype and bytes."""
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def placed(case: Case) -> tuple[tuple[Array, ...], tuple[Tensor, ...]]:
    """The values of a case's operands, and the operands in its layout."""
    places = [of_operand(case.layout, i) for i in range(len(case.sample.inputs))]
    arrays = tuple(map(values_in, places, case.sample.inputs))
    return arrays, tuple(place(p, a, case.device) for p, a in zip(places, arrays, strict=True))


def runner(case: Case) -> Run:
    """A function of operands and a destination that runs a case; under ``jit`` all its calls, and those of other cases of the
    sample with such operands, are runs of one executable."""
    name, params = case.op.name, case.sample.params

    def run(operands: tuple[Tensor, ...], out: Tensor | None) -> tuple[Tensor, ...]:
        result = bind(OPS[name], operands, params, out)
        return result if isinstance(result, tuple) else (result,)

    return case.programs.setdefault("op", jit(run)) if case.compiled else run


def filled(aval: Aval) -> Array:
    """An array of threes."""
    return np.full(aval.shape, 3).astype(aval.dtype.np)


def filler(aval: Aval, device: Device) -> Tensor:
    """A tensor of threes."""
    made: Tensor = hooks.from_host(filled(aval), device)
    return made


def one_of(dt: DType) -> Any:
    """A Python scalar that a tensor of this dtype takes."""
    return True if dt.kind == "bool" else 1


def overwrite(t: Tensor) -> None:
    """Make another op write into the memory of ``t`` if it is allowed to."""
    other = filler(t.aval, t.device)
    if t.dtype.kind == "storage":
        bind(OPS["where"], (True, other, other), {}, t)
    else:
        bind(OPS["logical_xor" if t.dtype.kind == "bool" else "add"], (other, other), {}, t)


def check_unchanged(what: str, tensors: Sequence[Tensor], arrays: Sequence[Array]) -> Check:
    """Check that tensors have the bits of arrays."""
    if tensors:
        for i, (found, a) in enumerate(zip((yield tensors), arrays, strict=True)):
            require(same_bits(found, a), f"{what} {i} changed")
