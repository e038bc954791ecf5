"""Groups of nodes that fusion makes of random programs, and values for their inputs."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from differential.drawing import draw
from differential.running import Way
from forced import kernels_of_any_size

from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.core.aval import Aval
from firebrick.ir import Graph

Array = np.ndarray[Any, Any]


def groups_of(seed: int, gradients: bool) -> list[Graph]:
    """The groups of a random program, whatever their size."""
    bodies: list[Graph] = []

    def keep(graph: Graph, *args: Any, **kwargs: Any) -> Graph:
        made = fuse(graph, *args, **kwargs)
        bodies.extend(n.params["body"] for n in made.nodes if n.op is FUSED)
        return made

    with pytest.MonkeyPatch.context() as patch, kernels_of_any_size(), suppress(Exception):
        patch.setattr("firebrick.backends.cpu.engine.fuse", keep)
        Way("cpu", "jit", gradients)(draw(seed, gradients))
    return bodies


def drawn(aval: Aval, rng: np.random.Generator) -> Array:
    """Values at which functions are smooth; indices are small."""
    if aval.dtype.kind == "bool":
        return rng.random(aval.shape) > 0.5
    if aval.dtype.kind == "complex":
        return (rng.uniform(0.5, 1.5, aval.shape) + 1j * rng.uniform(0.5, 1.5, aval.shape)).astype(aval.dtype.np)
    if not aval.dtype.is_floating:
        return rng.integers(0, 2, aval.shape).astype(aval.dtype.np)
    return rng.uniform(0.5, 1.5, aval.shape).astype(aval.dtype.np)
