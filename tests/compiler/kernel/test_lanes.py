"""Kernels with work items as lanes of vectors have the interpreter's bits, at every width and for every size of grid."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_kernels import OWN, draw
from running_lanes import Compiled, agree
from written_kernels import WRITTEN, collatz

from firebrick.compiler.targets.llvm.lanes import lanes_of
from firebrick.compiler.targets.llvm.target import Target

WIDTHS = [(0, 0), (128, 0), (0, 1), (0, 2), (128, 8)]
"""Bits of a vector, and lanes; 0 for the printer's choice."""
BLOCK = 20


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize(("vector", "width"), WIDTHS[:3])
def test_written_kernels_in_lanes_have_the_bits_of_their_interpretation(name: str, vector: int, width: int) -> None:
    launch = WRITTEN[name]()
    found = agree(Compiled(launch.function, vector, width), launch.arrays, launch.scalars, (launch.grid,))
    for array, want in launch.want.items():
        np.testing.assert_allclose(found[array].astype(np.float64), want.astype(np.float64), rtol=1e-6)


@pytest.mark.parametrize("block", range(15))
def test_random_kernels_in_lanes_have_the_bits_of_their_interpretation(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        launch = draw(seed)
        compiled = Compiled(launch.function, *WIDTHS[seed % len(WIDTHS)])
        lanes, rng = compiled.lanes.lanes, np.random.default_rng(seed)
        for size in sorted({0, 1, lanes - 1, lanes, lanes + 1, launch.grid}):
            arrays = dict(launch.arrays)
            for a in launch.function.arrays:
                if a.access != "read":
                    arrays[a.name] = rng.choice(launch.arrays[a.name], size * OWN)
            agree(compiled, arrays, launch.scalars, (size,))


@pytest.mark.soak
@pytest.mark.parametrize("block", range(15, 2500))
def test_more_random_kernels_in_lanes_have_the_bits_of_their_interpretation(block: int) -> None:
    test_random_kernels_in_lanes_have_the_bits_of_their_interpretation(block)


def test_lanes_follow_the_widest_float_and_not_the_indices() -> None:
    target = Target.named("x86_64", 512)
    assert lanes_of(WRITTEN["saxpy"]().function, target) == 16
    assert lanes_of(WRITTEN["exponentials"]().function, target) == 8
    assert lanes_of(WRITTEN["gcd"]().function, target) == 8
    assert lanes_of(collatz().function, target) == 16
