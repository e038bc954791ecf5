"""Naive forms of specifications: those of all samples of the op table, and running them on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from lowered_bodies import body_of
from running_kernels import compiled

from firebrick.compiler.kernel import Fault, Function, interpret
from firebrick.compiler.naive import Buffer, Naive, naive
from firebrick.compiler.naive.building import INPUT, RESULT, TEMPORARY
from firebrick.compiler.spec.faults import first_fault
from firebrick.compiler.spec.kinds import KernelSpec, kind_of, spec_of
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.core.op import Sample
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.ops.declare import WIDE
from firebrick.scalar.expr import COMPLEX
from firebrick.scalar.storage import STORAGE

Array = np.ndarray[Any, Any]

WITHOUT = {
    "broadcast_to", "flip", "permute", "reshape", "slice", "split", "standardize", "standardize_gradient", "to_device",
}  # fmt: skip
"""Views, and ops of a kind that have no specification."""
WITH_KERNELS = sorted({name for name, op in OPS.items() if op.kind} - WITHOUT)


@dataclass(frozen=True)
class Group:
    """A group of one node: a sample of the op table.

    Attributes:
        dtype: The dtype that the sample was drawn for.
        sample: Operands and parameters.
        arrays: The operands.
        body: The group.
        spec: Its specification.
    """

    dtype: str
    sample: Sample
    arrays: tuple[Array, ...]
    body: Graph
    spec: KernelSpec

    @property
    def title(self) -> str:
        """Dtype and name of the sample."""
        return f"{self.dtype}, {self.sample.name}"

    @cached_property
    def form(self) -> Naive:
        """The naive form of its specification."""
        return naive(self.spec)

    @property
    def results(self) -> list[Aval]:
        """Shapes and dtypes of the results."""
        return [self.body.avals[v] for v in self.body.outputs]


def dtypes_of(name: str) -> tuple[str, ...]:
    """The dtypes that users give to an op: the table names uint8 alone for all unsigned integers."""
    dtypes = OPS[name].dtypes
    return (*dtypes, *(d for d in WIDE if d not in dtypes)) if "uint8" in dtypes else dtypes


@cache
def groups(name: str) -> tuple[Group, ...]:
    """The samples of an op that have kernels, in each dtype that users give to it; those of all ops take 45 MB."""
    op, found = OPS[name], []
    for d in dtypes_of(name):
        for sample in op.samples(np.random.default_rng(3), d):
            arrays = tuple(np.asarray(x) for x in sample.inputs)
            body = body_of(arrays, (name, tuple(range(len(arrays))), sample.params))
            avals = [*body.inputs, *(body.avals[v] for v in body.outputs)]
            kind = kind_of(body.nodes[0], body.inputs)
            if kind != "copy" and not {a.dtype.name for a in avals} <= {*STORAGE, *COMPLEX}:
                continue
            if kind and all(a.size for a in avals):
                found.append(Group(d, sample, arrays, body, spec_of(body)))
    return tuple(found)


def some_groups(name: str) -> list[Group]:
    """The samples of an op that have kernels: each in float32, and the other dtypes in turn.

    Without float32 it is the op's first dtype that takes all its samples. Of n other dtypes each takes every n-th sample, and
    at least one. A sample that these rules leave out, since only some dtypes have it, is taken by the first that does.
    """
    of_dtype: dict[str, list[Group]] = {}
    for g in groups(name):
        of_dtype.setdefault(g.dtype, []).append(g)
    first = "float32" if "float32" in of_dtype else next(iter(of_dtype))
    others = [d for d in of_dtype if d != first]
    found = list(of_dtype[first])
    for turn, d in enumerate(others):
        found += of_dtype[d][turn % min(len(others), len(of_dtype[d])) :: len(others)]
    seen = {g.sample.name for g in found}
    for g in [g for d in others for g in of_dtype[d]]:
        if g.sample.name not in seen:
            seen.add(g.sample.name)
            found.append(g)
    return found


@cache
def kernels_of(names: tuple[str, ...], every: bool = True) -> tuple[Function, ...]:
    """The different kernels of the naive forms of ops, of every sample in every dtype or of ``some_groups``."""
    steps = [s for name in names for g in (groups if every else some_groups)(name) for s in g.form.steps]
    return tuple({s.function: None for s in steps})


def run_naive(form: Naive, inputs: Sequence[Array], results: Sequence[Aval], native: bool) -> tuple[list[Array], Fault | None]:
    """The results of a naive form, compiled (``native``) or interpreted, and the fault that it reports."""
    outs = [np.full(a.size, 77, a.dtype.np) for a in results]
    memory: dict[Buffer, Array] = {Buffer(INPUT, k): np.ascontiguousarray(x).reshape(-1) for k, x in enumerate(inputs)}
    memory |= {Buffer(RESULT, k): x for k, x in enumerate(outs)}
    memory |= {Buffer(TEMPORARY, k): np.full(t.elements, 77, dtype(t.dtype).np) for k, t in enumerate(form.temporaries)}
    fault: Fault | None = None
    for step in form.steps:
        parameters = step.function.arrays
        arrays = {p.name: memory[b].view(dtype(p.dtype).np) for p, b in zip(parameters, step.buffers, strict=True)}
        scalars = dict(zip([s.name for s in step.function.scalars], step.scalars, strict=True))
        run = compiled if native else interpret
        fault = first_fault(fault, run(step.function, arrays, scalars, step.grid))
    return [x.reshape(a.shape) for x, a in zip(outs, results, strict=True)], fault
