"""Products whose axes consist of several digits each, in any order in memory, with gaps, backwards, or broadcast."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod
from random import Random

import numpy as np
import pytest
from contractions import Compiled

from firebrick.compiler.spec.base import Result
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.evaluate import interpret
from firebrick.compiler.spec.parts import Factor, Part
from firebrick.compiler.targets.llvm.contract import choose, contraction, problem_of
from firebrick.compiler.targets.llvm.contract.problem import merged
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.errors import UnsupportedError
from firebrick.core.views import Digit, View
from firebrick.scalar.expr import load

SIZES = (1, 2, 3, 4, 5, 8, 16, 17)
Sizes = tuple[tuple[int, ...], ...]


def digits(rng: Random, most: int) -> tuple[int, ...]:
    """The digits of an axis; many have equal sizes."""
    found = tuple(rng.choice(SIZES) for _ in range(rng.choice((1, 1, 2, 2, 3))))
    return found if prod(found) <= most else found[:1]


def view(rng: Random, axes: Sizes, broadcast: bool) -> tuple[View, int]:
    """A view of axes of digits, and the elements of its buffer."""
    order = [(a, d) for a, axis in enumerate(axes) for d in range(len(axis))]
    if rng.random() < 0.7:
        rng.shuffle(order)
    strides: dict[tuple[int, int], int] = {}
    step, offset = 1, 0
    for a, d in reversed(order):
        if broadcast and rng.random() < 0.1:
            strides[a, d] = 0
            continue
        stride = step
        if broadcast and rng.random() < 0.15:
            stride, offset = -step, offset + step * (axes[a][d] - 1)
        strides[a, d] = stride
        step *= axes[a][d]
        step += rng.choice((0, 0, 0, 1, 5))  # a gap behind
    lead = rng.choice((0, 0, 3))
    made = tuple(tuple(Digit(n, strides[a, d]) for d, n in enumerate(axis)) for a, axis in enumerate(axes))
    return View(made, offset + lead), step + lead + 1


def drawn(seed: int) -> tuple[Part, list[int]]:
    """A contraction, and the elements of the buffers of A, B and C."""
    rng = Random(seed)
    batch = tuple((rng.choice((1, 2, 3)),) for _ in range(rng.choice((0, 0, 1, 2))))
    m, n, k = (digits(rng, most) for most in (40, 70, 40))
    (a, in_a), (b, in_b) = (view(rng, (*batch, lanes, k), True) for lanes in (m, n))
    c, in_c = view(rng, (*batch, m, n), False)
    dtype = rng.choice(("float32", "float32", "float64", "float16"))
    sizes = tuple(size for (size,) in batch)
    return Part(sizes, prod(m), prod(n), prod(k), Factor(0, dtype, a), Factor(1, dtype, b), c), [in_a, in_b, in_c]


def check(seed: int, width: int) -> None:
    try:
        target = Target.host(width)
    except UnsupportedError:
        pytest.skip(f"no vectors of {width} bits here")
    part, counts = drawn(seed)
    dtype = part.left.dtype
    numbers = np.random.default_rng(seed)
    a, b = (numbers.integers(-3, 4, n).astype(dtype) for n in counts[:2])  # sums of products of these are exact
    spec = Contract((part,), dtype, (), (Result(load(0, "float32" if dtype == "float16" else dtype), dtype, part.result),))
    (want,) = interpret(spec, [a, b], [counts[2]], [dtype])
    written = np.zeros(counts[2], bool)
    written[addresses(part.result)] = True
    problem = problem_of(part)
    chosen = choose(problem, target)
    for variant in (chosen, replace(chosen, mc=max(1, chosen.mr), nc=chosen.nr, kc=8 if chosen.kc > 8 else chosen.kc)):
        c = np.full(counts[2], 77, dtype)
        Compiled(contraction(problem, target, "product", variant=variant), target)(a, b, c)
        np.testing.assert_array_equal(c[written], want[written], err_msg=f"seed {seed}, {variant}")
        assert (c[~written] == 77).all(), f"seed {seed}: written beside the result"


def addresses(x: View) -> np.ndarray:
    """Of all elements of a view."""
    found = np.array([x.offset])
    for axis in x.axes:
        for n, stride in axis:
            found = (found[:, None] + np.arange(n) * stride).reshape(-1)
    return found


@pytest.mark.parametrize("width", [512, 256, 128])
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_any_layout_of_the_digits_gives_the_product(first: int, width: int) -> None:
    for seed in range(first, first + 10):
        check(seed, width)


@pytest.mark.soak
@pytest.mark.parametrize("width", [512, 256, 128])
@pytest.mark.parametrize("first", range(60, 1060, 50))
def test_many_layouts_of_the_digits_give_the_product(first: int, width: int) -> None:
    for seed in range(first, first + 50):
        check(seed, width)


def test_axes_that_are_one_by_their_strides_are_merged_and_those_of_size_1_dropped() -> None:
    rng = Random(0)
    for _ in range(500):
        sizes = [rng.choice((1, 1, 2, 3)) for _ in range(rng.randint(1, 4))]
        axes, step = [], 1
        for n in reversed(sizes):
            axes.insert(0, Digit(n, step if rng.random() < 0.8 else step + 1))
            step *= n
        weights = [d.stride * 2 if rng.random() < 0.8 else 5 for d in axes]
        found, (others,) = merged(axes, weights)
        for each in (axes, found):
            assert prod(d.size for d in each) == prod(sizes)
        weighted = [
            tuple(Digit(d.size, w) for d, w in zip(each, by, strict=True)) for each, by in ((axes, weights), (found, others))
        ]
        for one, other in ((tuple(axes), found), weighted):
            np.testing.assert_array_equal(addresses(View((one,))), addresses(View((other,))))
        assert all(d.size > 1 for d in found) or found == (Digit(1, 0),)
        assert not any(
            a.stride == b.stride * b.size and v == w * b.size for (a, v), (b, w) in pairwise(zip(found, others, strict=True))
        )
