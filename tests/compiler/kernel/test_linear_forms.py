"""Linear forms of the coordinates of items: each has the integers of its expression, and what is not linear has none."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from firebrick.compiler.kernel.linear_forms import array_of, extremes, form_of, sliced
from firebrick.scalar.expr import Expr, const, local, walk

SHAPE = (3, 4)
KNOWN = {"i": (0, 1, 0), "j": (0, 0, 1), "n": (5, 0, 0)}
VALUES: dict[str, Any] = {"i": np.arange(3)[:, None], "j": np.arange(4), "n": 5}
A, B, N = (local(name, "int64") for name in "ijn")


def drawn(rng: Random, depth: int) -> tuple[Expr, Any, int]:
    """An expression, its integers, and its degree in the coordinates."""
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.4:
            number = rng.randint(-3, 3)
            return const(number, "int64"), number, 0
        name = rng.choice("ijn")
        return local(name, "int64"), VALUES[name], int(name != "n")
    a, x, d = drawn(rng, depth - 1)
    b, y, f = drawn(rng, depth - 1)
    match rng.choice(("add", "sub", "mul", "neg")):
        case "add":
            return a + b, x + y, max(d, f)
        case "sub":
            return a - b, x - y, max(d, f)
        case "neg":
            return -a, -x, d
    return a * b, x * y, d + f


def test_a_form_has_the_integers_of_its_expression() -> None:
    rng, linear = Random(0), 0
    for _ in range(2000):
        e, values, degree = drawn(rng, 3)
        form = form_of(walk([e]), SHAPE, KNOWN.get)
        if form is None:
            assert degree > 1, e
            continue
        linear += degree == 1
        whole = np.broadcast_to(values, SHAPE)
        assert (np.broadcast_to(array_of(form, SHAPE), SHAPE) == whole).all(), e
        assert extremes(form, SHAPE) == (whole.min(), whole.max()), e
        if whole.min() >= 0 and whole.max() < 60:
            memory = np.arange(60.0)
            assert (np.broadcast_to(sliced(memory, form, SHAPE), SHAPE) == memory[whole]).all(), e
    assert linear > 500


def test_products_of_coordinates_have_no_form() -> None:
    for e in (A * B, A * A, (A + 1) * (B - 2), N * A * B):
        assert form_of(walk([e]), SHAPE, KNOWN.get) is None
    assert form_of(walk([N * A]), SHAPE, KNOWN.get) == form_of(walk([A * N]), SHAPE, KNOWN.get) == (0, 5, 0)
    assert form_of(walk([local("unknown", "int64") + 1]), SHAPE, KNOWN.get) is None


def test_a_form_is_of_integers_of_64_bits() -> None:
    most = (1 << 63) - 1
    for number, fits in ((most // 2, True), (most // 2 + 1, False), (-(most // 2), True), (-(most // 2) - 1, False)):
        assert (form_of(walk([A * const(number, "int64")]), SHAPE, KNOWN.get) is not None) is fits
