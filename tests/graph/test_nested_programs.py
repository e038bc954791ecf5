"""Loops, branches, gradients, checkpoints and compiled functions within each other give torch's values and gradients.

``NESTED_PROGRAMS_SEED`` is the first seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
from nested_programs import drawn, run, truth

import firebrick as fb

FIRST = int(os.environ.get("NESTED_PROGRAMS_SEED", "0"))
SIZE, SOAK = 12, 1512
DEVICES = ("cpu", "numpy", "torch:cpu")
# how a program runs: around it, and the function itself
WAYS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], Callable[..., Any]]] = {
    "eager": (nullcontext, lambda f: f),
    "jit": (nullcontext, fb.jit),
    "balanced": (lambda: fb.checkpointing("balanced"), fb.jit),
    "budget": (lambda: fb.checkpointing(budget=200), fb.jit),
    "verify": (fb.verify, fb.jit),
    "narrow": (lambda: fb.config.scope(cpu_vector_bits=128), fb.jit),
}


def check(seed: int, way: str, device: str) -> None:
    program = drawn(seed)
    want = truth(program)
    if want is None:
        return
    context, wrap = WAYS[way]
    with context():
        got = run(program, device, wrap)
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        scale = max(1.0, float(np.abs(b).max()))
        np.testing.assert_allclose(a / scale, b / scale, atol=1e-8, err_msg=f"value {i} of\n{program.firebrick}")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore::firebrick.BudgetWarning", "ignore::firebrick.FallbackWarning")
def test_nests_of_loops_branches_and_gradients_are_torchs(way: str) -> None:
    offset = list(WAYS).index(way)
    print(f"seeds from {FIRST} (NESTED_PROGRAMS_SEED={FIRST})")
    for seed in range(FIRST, FIRST + SIZE):
        check(seed, way, DEVICES[(seed + offset) % len(DEVICES)])


@pytest.mark.soak
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore::firebrick.BudgetWarning", "ignore::firebrick.FallbackWarning")
def test_many_nests(way: str, device: str) -> None:
    for seed in range(FIRST + SIZE, FIRST + SIZE + SOAK):
        check(seed, way, device)
