"""Random kernels of groups: every order of groups, items and atomic operations gives the same bits, with checks and without."""

from __future__ import annotations

import numpy as np
import pytest
from drawn_groups import DrawnGroup, draw_group
from drawn_kernels import draw
from running_kernels import bits
from written_kernels import Launch

from firebrick.compiler.kernel import Atomic, Barrier, CompareExchange, Fault, For, If, Shuffle, While, interpret
from firebrick.compiler.kernel.ir import blocks, statements
from firebrick.core.errors import ExecutionError
from firebrick.scalar.expr import DTYPES

BLOCK = 20


def run(launch: Launch, checked: bool, seed: int | None) -> tuple[dict[str, np.ndarray], Fault | None]:
    memory = {name: x.copy() for name, x in launch.arrays.items()}
    fault = interpret(launch.function, memory, launch.scalars, launch.grid, checked=checked, seed=seed)
    return {name: bits(x) for name, x in memory.items()}, fault


def agree(launch: Launch) -> None:
    want, fault = run(launch, True, None)
    for checked, seed in ((False, None), (True, 1), (False, 2)):
        found, other = run(launch, checked, seed)
        assert other == fault
        for name, x in want.items():
            assert np.array_equal(x, found[name]), f"{name}, checked={checked}, seed={seed}\n{launch.function}"


@pytest.mark.parametrize("block", range(4))
def test_random_kernels_of_groups_have_the_same_bits_in_every_order(block: int) -> None:
    for seed in range(block * BLOCK, (block + 1) * BLOCK):
        agree(draw_group(seed))


@pytest.mark.soak
@pytest.mark.parametrize("block", range(4, 250))
def test_more_random_kernels_of_groups_have_the_same_bits_in_every_order(block: int) -> None:
    test_random_kernels_of_groups_have_the_same_bits_in_every_order(block)


def test_random_kernels_of_one_axis_have_the_same_bits_in_every_order() -> None:
    for seed in range(20):
        agree(draw(seed))


def test_random_kernels_of_groups_have_all_statements_and_dtypes() -> None:
    kernels = [draw_group(seed).function for seed in range(100)]
    found = [s for f in kernels for s in statements(f.body)]
    assert {s.value.dtype for s in found if hasattr(s, "value")} == set(DTYPES)
    for kind in (Atomic, Barrier, CompareExchange, Shuffle):
        assert sum(isinstance(s, kind) for s in found) > 20
    meeting = [s for s in found if any(isinstance(t, Barrier) for b in blocks(s) for t in b)]
    for kind in (For, While, If):
        assert sum(isinstance(s, kind) for s in meeting) > 5
    assert {len(f.outer) for f in kernels} == {0, 1, 2}
    assert {a.dtype for f in kernels for a in f.shared} >= {"float16", "bfloat16", "uint64", "bool"}


def test_a_random_kernel_without_its_barriers_is_found_out() -> None:
    class Hasty(DrawnGroup):
        def met(self, ways: dict[str, str] | None = None) -> list:
            super().met(ways)
            return []

    refused = 0
    for seed in range(40):
        try:
            run(Hasty(seed).launch(), True, None)
        except ExecutionError as e:  # a race, or, before it runs, atomics beside other accesses
            refused += "accesse" in str(e)
    assert refused > 10
