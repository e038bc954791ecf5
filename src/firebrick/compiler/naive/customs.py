"""The naive form of a kernel of the kernel language: its own kernel IR, after launches that give results their first values."""

from __future__ import annotations

from math import prod

from firebrick.compiler.naive.building import INPUT, RESULT, Buffer, Builder, Naive, NaiveLaunch
from firebrick.compiler.spec.custom import Custom, CustomResult
from firebrick.compiler.spec.nest import itemsize


def custom(spec: Custom) -> Naive:
    """The naive form of a kernel."""
    sources = spec.sources
    buffers = [Buffer(INPUT, i) for i in sources] + [Buffer(RESULT, k) for k in range(len(spec.results))]
    steps = [
        _first_values(r, None if r.copied is None else buffers[r.copied], Buffer(RESULT, k))
        for k, r in enumerate(spec.results)
        if r.copied is not None or r.filled is not None
    ]
    grid = spec.launch_grid
    own = NaiveLaunch(
        spec.function, tuple(buffers[b] for b in spec.buffers), spec.scalars, grid if len(grid) > 1 else grid[0]
    )  # fmt: skip
    return Naive((*steps, own))


def _first_values(r: CustomResult, source: Buffer | None, result: Buffer) -> NaiveLaunch:
    """The launch that gives the elements of a result the values that they have before."""
    b = Builder("first_values", (prod(r.view.shape),))
    (at,) = b.positions
    if source is None:
        assert r.filled is not None
        b.store(result, r.dtype, at, r.filled)
    else:
        bits = f"uint{8 * itemsize(r.dtype)}"  # copies move bits
        b.store(result, bits, at, b.read(source, bits, at))
    return b.step()
