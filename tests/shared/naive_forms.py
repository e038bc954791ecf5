"""Running the naive forms of specifications on NumPy arrays: by the interpreter of kernel IR, or compiled for this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from running_kernels import compiled

from firebrick.compiler.kernel import Fault, interpret
from firebrick.compiler.kernel.naive import Buffer, Naive
from firebrick.compiler.kernel.naive.building import INPUT, RESULT, TEMPORARY
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype

Array = np.ndarray[Any, Any]


def run_naive(form: Naive, inputs: Sequence[Array], outputs: Sequence[Aval], native: bool) -> tuple[list[Array], int | None]:
    """The results of a naive form, and the site of its first fault."""
    results = [np.full(a.size, 77, a.dtype.np) for a in outputs]
    memory: dict[Buffer, Array] = {Buffer(INPUT, k): np.ascontiguousarray(x).reshape(-1) for k, x in enumerate(inputs)}
    memory |= {Buffer(RESULT, k): x for k, x in enumerate(results)}
    memory |= {Buffer(TEMPORARY, k): np.full(t.elements, 77, dtype(t.dtype).np) for k, t in enumerate(form.temporaries)}
    sites: list[int] = []
    for step in form.steps:
        parameters = step.function.arrays
        arrays = {p.name: memory[b].view(dtype(p.dtype).np) for p, b in zip(parameters, step.buffers, strict=True)}
        scalars = dict(zip([s.name for s in step.function.scalars], step.scalars, strict=True))
        found: int | Fault | None
        if native:
            found = compiled(step.function, arrays, scalars, step.grid)
        else:
            fault = interpret(step.function, arrays, scalars, step.grid)
            found = None if fault is None else fault.site
        if found is not None:
            sites.append(found)
    return [x.reshape(a.shape) for x, a in zip(results, outputs, strict=True)], min(sites, default=None)
