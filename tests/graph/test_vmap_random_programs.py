"""``vmap`` of random programs gives what a loop over the examples gives: results and gradients, with ``jit`` and without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from hypothesis import currently_in_test_context, given, note, settings
from hypothesis import strategies as st
from programs import Program, World, programs

import firebrick as fb
from firebrick.core import trees
from firebrick.ops import OPS

EXAMPLES = 3
ENGINES = [
    "numpy",
    "cpu",
    pytest.param("torch:cpu", marks=pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")),
]
DRAWS = ("generator", "dropout")  # a draw of all examples is another one than each example's own
Way = Callable[[Callable[..., Any]], Callable[..., Any]]


def _pure(most: int) -> st.SearchStrategy[Program]:
    """Programs that change nothing and draw nothing."""
    made = programs(most, effects=False, detached=True)
    return made.filter(lambda program: not any(name in program.source for name in DRAWS))


def _loss(program: Callable[..., Any]) -> Callable[..., Any]:
    def loss(x: fb.Tensor, *more: Any) -> fb.Tensor:
        total = fb.sum(x) * 0.0
        for t in program(x, *more):
            if t.dtype.is_floating:
                total = total + fb.sum(fb.where(fb.isfinite(t), fb.astype(t, fb.float32), 0.0) * 0.5)
        return total

    return loss


def _gradient(program: Callable[..., Any]) -> Callable[..., Any]:
    return fb.grad(_loss(program))


WAYS: dict[str, Way] = {"results": lambda program: program, "gradients": _gradient}


def _unit(program: Program) -> float:
    for name in ("bfloat16", "float16"):
        if name in program.source:
            return float(fb.finfo(name).eps)
    return float(fb.finfo("float32").eps)


def _differs(got: Any, want: Any, unit: float) -> bool:
    """Whether two arrays differ by more than the order of sums."""
    a, b = np.asarray(got.numpy()), np.asarray(want.numpy())
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    if a.dtype.kind not in "fV":
        return bool((a != b).any())
    a, b = a.astype(np.float64), b.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    scale = np.abs(b[np.isfinite(b)]).max(initial=1.0)
    return bool(np.any(~same & ~(np.abs(a - b) <= 256 * unit * scale)))


def agree(program: Program, way: Way, device: str) -> None:
    if currently_in_test_context():
        note(program.source)
    world = World(device)
    with fb.use_device(device), fb.config.scope(fallback="silent"):
        fn = way(world.define(program))
        calls = [world.arguments(k) for k in range(EXAMPLES)]
        numbers = calls[0][3:]
        tensors = [fb.stack(list(column)) for column in zip(*(c[:3] for c in calls), strict=True)]
        mapped = fb.vmap(fn)
        found = {
            "vmap": mapped(*tensors, *numbers),
            "jit of vmap": fb.jit(mapped)(*tensors, *numbers),
            "vmap of jit": fb.vmap(fb.jit(fn))(*tensors, *numbers),
        }
        for i, call in enumerate(calls):
            want = trees.flatten(fn(*call[:3], *numbers))[0]
            for name, result in found.items():
                for a, b in zip(trees.flatten(result)[0], want, strict=True):
                    assert not _differs(a[i], b, _unit(program)), f"{name}: example {i} differs"


@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("way", list(WAYS))
@given(program=_pure(12))
@settings(max_examples=12)
@pytest.mark.turns
def test_random_programs_of_one_example_give_what_a_loop_gives(device: str, way: str, program: Program) -> None:
    agree(program, WAYS[way], device)


@pytest.mark.soak
@pytest.mark.parametrize("device", ENGINES)
@pytest.mark.parametrize("way", list(WAYS))
@given(program=_pure(30))
@settings(max_examples=300)
def test_many_longer_programs_of_one_example(device: str, way: str, program: Program) -> None:
    agree(program, WAYS[way], device)


def test_a_wrong_rule_is_seen() -> None:
    program = Program(("v0 = x - y",), ("v0",))
    agree(program, WAYS["results"], "numpy")
    right = OPS["subtract"].batch
    assert right is not None
    object.__setattr__(OPS["subtract"], "batch", lambda b: right(replace(b, op=OPS["add"])))
    try:
        with pytest.raises(AssertionError, match="example 0 differs"):
            agree(program, WAYS["results"], "numpy")
    finally:
        object.__setattr__(OPS["subtract"], "batch", right)
