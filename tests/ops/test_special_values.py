"""Special values of elementwise functions: the Array API standard's, the same on every engine, eagerly and under ``jit``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb

INF, NAN = math.inf, math.nan
MODES = [pytest.param(lambda f: f, id="eager"), pytest.param(fb.jit, id="jit")]
Mode = Callable[[Any], Any]


def same(got: Any, want: Any) -> bool:
    """Equal, NaN for NaN and with the signs of zeros, part by part."""
    parts = zip((got.real, got.imag), (want.real, want.imag), strict=True)
    return all(
        (g != g and w != w) or (math.copysign(1, g) == math.copysign(1, w) and (g == w or abs(g - w) <= 1e-6 * abs(w)))
        for g, w in parts
    )


def hold(got: fb.Tensor, operands: list[Any], want: list[Any]) -> None:
    """Require each element of a result to be the one that is wanted."""
    for g, x, w in zip(got.tolist(), operands, want, strict=True):
        assert same(g, w), f"{g} instead of {w} for {x}"


FLOOR_QUOTIENTS = [
    (INF, 2.0, INF), (INF, -2.0, -INF), (-INF, 2.0, -INF), (-INF, -2.0, INF), (INF, 0.0, INF), (-INF, 0.0, -INF),
    (2.0, INF, 0.0), (2.0, -INF, -0.0), (-2.0, INF, -0.0), (-2.0, -INF, 0.0), (0.0, -INF, -0.0), (-0.0, INF, -0.0),
    (INF, INF, NAN), (-INF, INF, NAN), (NAN, INF, NAN), (2.0, 0.0, INF), (2.0, -0.0, -INF), (0.0, 0.0, NAN),
    (0.0, -3.0, -0.0), (7.0, -2.0, -4.0), (-1.0, 3.0, -1.0),
]  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("divide", [fb.floor_divide, operator.floordiv, operator.ifloordiv])
def test_a_floor_quotient_with_an_infinity_is_the_floor_of_the_quotient(divide: Any, mode: Mode, device: str) -> None:
    x1, x2, want = map(list, zip(*FLOOR_QUOTIENTS, strict=True))
    for name in ("float64", "float32", "float16", "bfloat16"):
        a, b = (fb.asarray(x, dtype=name, device=device) for x in (x1, x2))
        hold(mode(lambda a, b: divide(a.detach(), b))(a, b), FLOOR_QUOTIENTS, want)


@pytest.mark.parametrize("mode", MODES)
def test_the_gradient_of_a_remainder_by_an_infinity_counts_how_often_it_was_added(mode: Mode, device: str) -> None:
    x1 = fb.asarray([5.0, 5.0, -5.0, -5.0, 7.0, INF], device=device)
    x2 = fb.asarray([INF, -INF, INF, -INF, 2.0, 2.0], device=device)
    assert fb.remainder(x1, x2).tolist()[:5] == [5.0, -INF, INF, -5.0, 1.0]

    def slope(x1: fb.Tensor, x2: fb.Tensor) -> fb.Tensor:
        return fb.vjp(lambda b: fb.remainder(x1, b), x2)[1](fb.ones_like(x1))[0] + 0.0

    hold(mode(slope)(x1, x2), x2.tolist(), [0.0, 1.0, 1.0, 0.0, -3.0, NAN])


def z(re: float, im: float) -> complex:
    return complex(re, im)


OF_ONE: dict[str, list[tuple[complex, complex]]] = {
    "expm1": [
        (z(-0.0, 0.0), z(0.0, 0.0)), (z(0.0, -0.0), z(0.0, -0.0)), (z(2.0, INF), z(NAN, NAN)), (z(2.0, NAN), z(NAN, NAN)),
        (z(INF, 0.0), z(INF, 0.0)), (z(INF, -0.0), z(INF, -0.0)), (z(-INF, 2.0), z(-1.0, 0.0)), (z(-INF, -2.0), z(-1.0, -0.0)),
        (z(INF, 2.0), z(-INF, INF)), (z(-INF, INF), z(-1.0, 0.0)), (z(INF, INF), z(INF, NAN)), (z(INF, NAN), z(INF, NAN)),
        (z(NAN, 0.0), z(NAN, 0.0)), (z(NAN, 2.0), z(NAN, NAN)), (z(60.0, 0.0), z(math.exp(60.0), 0.0)),
    ],
    "tanh": [
        (z(INF, 2.0), z(1.0, 0.0)), (z(INF, -2.0), z(1.0, -0.0)), (z(-INF, 2.0), z(-1.0, 0.0)), (z(INF, NAN), z(1.0, 0.0)),
        (z(INF, INF), z(1.0, 0.0)), (z(0.0, INF), z(0.0, NAN)), (z(2.0, INF), z(NAN, NAN)), (z(NAN, 0.0), z(NAN, 0.0)),
        (z(-0.0, -0.0), z(-0.0, -0.0)),
    ],
    "tan": [(z(2.0, INF), z(0.0, 1.0)), (z(-2.0, INF), z(-0.0, 1.0)), (z(2.0, -INF), z(0.0, -1.0)), (z(INF, 2.0), z(NAN, NAN))],
    "log1p": [
        (z(-1.0, 0.0), z(-INF, 0.0)), (z(2.0, INF), z(INF, math.pi / 2)), (z(-2.0, -INF), z(INF, -math.pi / 2)),
        (z(INF, NAN), z(INF, NAN)), (z(NAN, INF), z(INF, NAN)), (z(-INF, 2.0), z(INF, math.pi)),
        (z(-3.0, -0.0), z(math.log(2.0), -math.pi)), (z(3e38, 3e38), z(math.log(3e38) + math.log(2.0) / 2, math.pi / 4)),
    ],
    "acos": [
        (z(0.0, 0.0), z(math.pi / 2, -0.0)), (z(0.0, -0.0), z(math.pi / 2, 0.0)), (z(-2.0, -0.0), z(math.pi, math.acosh(2.0))),
    ],
    "sign": [
        (z(-0.0, -0.0), z(0.0, 0.0)), (z(3e38, 3e38), z(0.5**0.5, 0.5**0.5)), (z(2.0**-149, 0.0), z(1.0, 0.0)),
        (z(0.0, -(2.0**-149)), z(0.0, -1.0)), (z(NAN, 1.0), z(NAN, NAN)),
    ],
    "round": [
        (z(0.5, -0.5), z(0.0, -0.0)), (z(1.5, 2.5), z(2.0, 2.0)), (z(-INF, NAN), z(-INF, NAN)), (z(-0.0, 7.5), z(-0.0, 8.0)),
    ],
    "negative": [(z(0.0, 0.0), z(-0.0, -0.0)), (z(-0.0, INF), z(0.0, -INF))],
    "reciprocal": [(z(3e38, 3e38), z(0.5 / 3e38, -0.5 / 3e38)), (z(2.0**-127, 0.0), z(2.0**127, 0.0))],
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OF_ONE)
def test_special_values_of_a_complex_function_are_the_standards(name: str, mode: Mode, device: str) -> None:
    operands, want = map(list, zip(*OF_ONE[name], strict=True))
    for dtype in ("complex128", "complex64"):
        # often enough for vectorised kernels
        x = fb.asarray(np.tile(np.asarray(operands, dtype), 9), device=device)
        hold(mode(getattr(fb, name))(x), operands * 9, want * 9)


OF_TWO: dict[str, list[tuple[complex, complex, complex]]] = {
    "add": [
        (z(INF, 1.0), z(2.0, 3.0), z(INF, 4.0)), (z(1.0, 2.0), z(-INF, 3.0), z(-INF, 5.0)),
        (z(-0.0, -0.0), z(-0.0, -0.0), z(-0.0, -0.0)),
    ],
    "subtract": [(z(1.0, 2.0), z(INF, 3.0), z(-INF, -1.0)), (z(-0.0, -0.0), z(0.0, 0.0), z(-0.0, -0.0))],
    "divide": [
        (z(3e38, 3e38), z(3e38, 3e38), z(1.0, 0.0)), (z(0.0, 1e30), z(3e38, 3e38), z(0.5 / 3e8, 0.5 / 3e8)),
        (z(3e38, 3e38), z(3.0, 3.0), z(1e38, 0.0)), (z(2.0**-148, 0.0), z(2.0**-149, 0.0), z(2.0, 0.0)),
        (z(0.0, 2.0**-140), z(0.0, 2.0**-149), z(512.0, 0.0)), (z(1.0, 0.0), z(0.0, 0.0), z(INF, NAN)),
    ],
    "pow": [
        (z(0.0, 0.0), z(0.0, 0.0), z(1.0, 0.0)), (z(3.0, 1.0), z(0.0, 0.0), z(1.0, 0.0)),
        (z(0.0, 0.0), z(2.0, 0.0), z(0.0, 0.0)), (z(0.0, 0.0), z(1.0, 1.0), z(0.0, 0.0)),
        (z(0.0, 0.0), z(-1.0, 0.0), z(INF, NAN)), (z(0.0, 0.0), z(0.0, 1.0), z(NAN, NAN)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", OF_TWO)
def test_special_values_of_complex_arithmetic_keep_their_parts_apart(name: str, mode: Mode, device: str) -> None:
    x1, x2, want = map(list, zip(*OF_TWO[name], strict=True))
    a, b = (fb.asarray(np.tile(np.asarray(x, "complex64"), 9), device=device) for x in (x1, x2))
    hold(mode(getattr(fb, name))(a, b), OF_TWO[name] * 9, want * 9)


@pytest.mark.parametrize("mode", MODES)
def test_relu_of_a_negative_zero_is_zero(mode: Mode, device: str) -> None:
    for name in ("float64", "float32", "float16", "bfloat16"):
        x = fb.asarray([-0.0, 0.0, -1.0, 2.0, NAN, -INF, INF] * 9, dtype=name, device=device)
        hold(mode(fb.relu)(x), x.tolist(), [0.0, 0.0, 0.0, 2.0, NAN, 0.0, INF] * 9)
