"""Quasi-affine expressions: exact at every point of the domain, and equal where reshapes and views cancel."""

from __future__ import annotations

import itertools
import random

import pytest

from firebrick.compiler.fusion.affine import Affine, affine, value, variable
from firebrick.compiler.fusion.validate import _Names
from firebrick.ops.index_maps import flat, unflattened
from firebrick.scalar.expr import const, node


def at(x: Affine | int, point: dict[object, int]) -> int:
    """The value of an expression."""
    if isinstance(x, int):
        return x
    total = x.constant
    for (kind, inner, *rest), k in x.terms.items():
        if kind == "variable":
            total += k * point[inner]
        else:
            total += k * (at(inner, point) // rest[0] if kind == "quotient" else at(inner, point) % rest[0])
    return total


@pytest.mark.parametrize("seed", range(8))
def test_simplified_expressions_have_the_values_of_what_they_stand_for(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(250):
        sizes = [rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randint(1, 3))]
        steps = [rng.randint(-3, 7) for _ in sizes]
        x = affine(rng.randint(-2, 3))
        start = x.constant
        for i, (n, k) in enumerate(zip(sizes, steps, strict=True)):
            x = x + affine(variable(i, n)) * k
        done = [(rng.choice("/%*+-"), rng.choice([2, 3, 4, 6, 8, 12])) for _ in range(rng.randint(1, 4))]
        y = x
        for op, c in done:
            y = {"/": y // c, "%": y % c, "*": y * c, "+": y * c + x, "-": y - x * c}[op]
        low, high = y.range
        for point in itertools.product(*(range(n) for n in sizes)):
            first = start + sum(k * p for k, p in zip(steps, point, strict=True))
            want = first
            for op, c in done:
                want = {"/": want // c, "%": want % c, "*": want * c, "+": want * c + first, "-": want - first * c}[op]
            assert at(y, dict(enumerate(point))) == want, (sizes, steps, done, y)
            assert low <= want <= high


def _shape(rng: random.Random, size: int) -> tuple[int, ...]:
    out = []
    while size > 1 and rng.random() < 0.8:
        d = rng.choice([d for d in range(2, size + 1) if size % d == 0])
        out.append(d)
        size //= d
    out.append(size)
    if rng.random() < 0.3:
        out.insert(rng.randint(0, len(out)), 1)
    return tuple(out)


@pytest.mark.parametrize("seed", range(4))
def test_reshapes_in_a_row_cancel(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(200):
        size = rng.choice([12, 16, 24, 36, 30, 7])
        first = _shape(rng, size)
        p = start = flat(tuple(variable(i, n) for i, n in enumerate(first)), first)
        for _ in range(3):
            shape = _shape(rng, size)
            p = flat(unflattened(p, shape), shape)
        assert affine(p) == affine(start), first


def test_another_axis_of_equal_size_is_another_expression() -> None:
    i, j = (affine(variable(name, 7)) for name in "ij")
    assert i * 7 + j != j * 7 + i
    assert i + j == j + i
    assert hash(i + j * 2 - i) == hash(j * 2)
    assert i - i == affine(0)


def test_an_axis_of_size_1_has_the_index_0() -> None:
    assert variable("i", 1) == 0
    assert affine(variable("i", 1)) + 5 == affine(5)


def test_values_known_only_at_run_time_are_equal_where_their_keys_are() -> None:
    assert value("k", 5) * 3 == value("k", 5) * 3
    assert value("k", 5) != value("l", 5)
    assert value("k", 5) // 5 == affine(0)


def test_a_divisor_that_is_not_positive_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a divisor is positive\. Received: 0"):
        affine(variable("i", 3)) // 0


def test_an_expression_of_positions_is_their_affine_sum() -> None:
    names = _Names()
    i, j = affine(variable(0, 8)), affine(variable(1, 8)) * 4
    a, b, three = names.position(i), names.position(j), const(3, "int64")
    assert names.number(node("add", "int64", (a, b))) == i + j
    assert names.number(node("sub", "int64", (a, b))) == i - j
    assert names.number(node("mul", "int64", (a, three))) == i * 3
    assert names.number(node("add", "int64", (node("mul", "int64", (b, three)), three))) == j * 3 + 3


def test_a_number_that_an_expression_does_not_determine_is_equal_to_itself_alone() -> None:
    names = _Names()
    i = names.position(affine(variable(0, 8)))
    a, b = (node("load", "int64", (), k) for k in (0, 1))
    several = [a, b, node("mul", "int64", (i, a)), node("mul", "int64", (i, b)), node("mul", "int64", (a, b)),
               node("rem", "int64", (i, const(3, "int64"))), node("min", "int64", (a, b))]  # fmt: skip
    numbers = [names.number(e) for e in several]
    assert len(set(numbers)) == len(several)
    assert [names.number(e) for e in several] == numbers
    assert all(x.range == (-(1 << 63), (1 << 63) - 1) for x in numbers)
    assert names.number(node("sub", "int64", (node("add", "int64", (a, b)), b))) == names.number(a)
    assert names.number(const(0, "int64")) == affine(0)
    zero = node("mul", "int64", (a, const(0, "int64")))
    assert names.number(zero) == affine(0)


def test_an_index_that_is_checked_is_one_of_its_axis() -> None:
    names, a = _Names(), node("load", "int64", (), 0)
    checked, other = (names.number(node("bounded", "int64", (a,), f"{size}:take:")) for size in (5, 6))
    assert checked.range == (0, 4)
    assert checked // 5 == affine(0)
    assert checked != other != names.number(a)


def test_numbers_without_positions_are_constants() -> None:
    names = _Names()
    assert names.position(affine(7)) == const(7, "int64") == names.position(7)
    i, j = (names.position(affine(variable(k, 8))) for k in range(2))
    assert i != j
    assert i == names.position(affine(variable(0, 8)))
    assert names.number(i) == affine(variable(0, 8))
