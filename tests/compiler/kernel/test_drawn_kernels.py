"""Random kernels: the compiled kernel has the interpreter's bits."""

from __future__ import annotations

import pytest
from drawn_kernels import draw
from running_kernels import both

from firebrick.compiler.kernel import For, If, While
from firebrick.compiler.kernel.ir import statements
from firebrick.scalar.expr import DTYPES

BLOCK = 20


@pytest.mark.parametrize("block", range(5))
def test_random_kernels_compiled_have_the_bits_of_their_interpretation(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        launch = draw(seed)
        both(launch.function, launch.arrays, launch.scalars, launch.grid)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(5, 250))
def test_more_random_kernels_compiled_have_the_bits_of_their_interpretation(block: int) -> None:
    test_random_kernels_compiled_have_the_bits_of_their_interpretation(block)


def test_random_kernels_have_all_statements_and_dtypes() -> None:
    kernels = [draw(seed).function for seed in range(100)]
    found = [s for f in kernels for s in statements(f.body)]
    nested = [
        s for s in found if isinstance(s, For | While) and any(isinstance(t, For | While | If) for t in statements(s.body))
    ]
    assert len(nested) > 50
    assert {s.value.dtype for s in found if hasattr(s, "value")} == set(DTYPES)
