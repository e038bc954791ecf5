"""Random eager programs, run several times with other numbers: repeated operations and gradient rules replay what was kept of
them, and must compute what they computed the first time. Sizes coincide; the truth is ``numpy`` under ``fb.verify``, where
nothing is replayed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core import planned

SIZES = (1, 2, 3, 5, 7, 8, 16, 33)
LARGE = (128, 129, 160)  # whose rules are compiled
ELEMENTWISE: tuple[Callable[[Any], Any], ...] = (
    fb.tanh, fb.gelu, fb.relu, fb.sigmoid, fb.sin, fb.abs, fb.square, fb.erf, lambda x: fb.exp(fb.clip(x, -2.0, 2.0)),
    lambda x: fb.sqrt(fb.clip(x, 0.1, 2.0)), lambda x: fb.log1p(fb.clip(x, 0.1, 2.0)),
)  # fmt: skip
STEPS: dict[str, Callable[[Any, Any, float, int], Any]] = {
    "product": lambda x, y, c, i: x @ y * 0.3,
    "product with a transposed matrix": lambda x, y, c, i: x @ y.T * 0.3,
    "product of a transposed matrix": lambda x, y, c, i: fb.permute_dims(x, (1, 0)) @ y * 0.3,
    "sum of two": lambda x, y, c, i: x + y,
    "difference": lambda x, y, c, i: x - y,
    "product of elements": lambda x, y, c, i: x * y,
    "quotient": lambda x, y, c, i: x / (fb.abs(y) + 1),
    "function": lambda x, y, c, i: ELEMENTWISE[i % len(ELEMENTWISE)](x),
    "sum": lambda x, y, c, i: fb.sum(x, axis=i % x.ndim, keepdims=c < 0.5),
    "mean": lambda x, y, c, i: fb.mean(x, axis=-1, keepdims=c < 0.5),
    "maximum": lambda x, y, c, i: fb.max(x, axis=i % x.ndim),
    "softmax": lambda x, y, c, i: fb.softmax(x, axis=i % x.ndim),
    "reshape": lambda x, y, c, i: fb.reshape(x, (-1,)),
    "transposition": lambda x, y, c, i: x.T if x.ndim == 2 else x,
    "slice": lambda x, y, c, i: x[:: 1 + i % 2],
    "concatenation": lambda x, y, c, i: fb.concat([x, y], axis=0),
    "choice": lambda x, y, c, i: fb.where(x > c - 0.5, x, 0.5 * y),
    "power": lambda x, y, c, i: (fb.abs(x) + 0.5) ** (1 + i % 3),
    "normalisation": lambda x, y, c, i: fb.layer_norm(x),
    "rows": lambda x, y, c, i: fb.take(x, fb.asarray([0, x.shape[0] - 1, 0], device=x.device), axis=0),
    "clip": lambda x, y, c, i: fb.clip(x, -c, c),
    "scalars": lambda x, y, c, i: x * (c * 2) + i,
}
Steps = list[tuple[str, float, float, float, int]]


def outputs(steps: Steps, given: list[fb.Tensor]) -> list[fb.Tensor]:
    """The results of a program; steps whose shapes do not fit are left out."""
    values = list(given)
    for name, first, second, c, i in steps:
        x, y = values[int(first * len(values))], values[int(second * len(values))]
        if not x.ndim or not y.ndim:
            continue
        try:
            found = STEPS[name](x, y, c, i)
        except fb.ShapeError:
            continue
        if max(found.shape or (0,)) < 400 and found.ndim < 3:
            values.append(found)
    return values[len(given) :] or [given[0] * 1]


def everything(steps: Steps, arrays: list[np.ndarray[Any, Any]], device: str) -> list[np.ndarray[Any, Any]]:
    """The results and the gradients of two operands, in float64."""
    given = [fb.asarray(a, dtype=fb.float64, device=device) for a in arrays]

    def loss(at: int, y: fb.Tensor) -> fb.Tensor:
        total = fb.sum(y * 0.0)
        for value in outputs(steps, [*given[:at], y, *given[at + 1 :]]):
            total = total + fb.mean(fb.sin(value))
        return total

    gradients = [fb.grad(lambda y, at=at: loss(at, y))(x) for at, x in enumerate(given[:2])]
    return [x.numpy() for x in (*outputs(steps, given), *gradients)]


def compare(seed: int, sizes: tuple[int, ...]) -> None:
    r = Random(seed)
    steps = [(r.choice(list(STEPS)), r.random(), r.random(), r.random(), r.randint(0, 10)) for _ in range(r.randint(2, 8))]
    pair = [r.choice(sizes) for _ in range(2)]
    shapes = [(r.choice(pair), r.choice(pair)) for _ in range(r.randint(1, 3))]
    device, rng = r.choice(["cpu", "cpu", "numpy"]), np.random.default_rng(seed)
    for turn in range(planned.BEFORE + 2):
        arrays = [rng.standard_normal(s) for s in shapes]
        found = everything(steps, arrays, device)
        with fb.verify():
            wanted = everything(steps, arrays, "numpy")
        for x, y in zip(found, wanted, strict=True):
            assert x.shape == y.shape, (seed, turn)
            assert np.allclose(x, y, rtol=1e-9, atol=1e-9, equal_nan=True), f"seed {seed}, turn {turn} on {device}"


def compare_all(count: int) -> None:
    for seed in range(count):
        compare(seed, SIZES)


@pytest.mark.parametrize("seed", range(12))
def test_a_repeated_program_computes_what_it_computed_first(seed: int) -> None:
    compare(seed, SIZES)


def test_large_operands_too() -> None:
    compare(1, LARGE)


def test_a_plan_that_computes_another_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    run = planned.run

    def first_row(plan: Any, op: Any, inputs: Any, params: Any) -> Any:
        found = run(plan, op, inputs, params)
        return fb.zeros_like(found) if op.name == "multiply" and found is not None else found

    monkeypatch.setattr(planned, "run", first_row)
    with pytest.raises(AssertionError, match="seed"):
        compare_all(12)


@pytest.mark.soak
def test_many_repeated_programs() -> None:
    for seed in range(100, 1600):
        compare(seed, SIZES)
    for seed in range(100, 160):
        compare(seed, LARGE)
