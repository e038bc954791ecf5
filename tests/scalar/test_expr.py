"""The scalar-expression IR: merging of equal nodes, folding, what is refused, and the interpreter's fused products."""

from __future__ import annotations

import faulthandler
import gc
from fractions import Fraction
from weakref import WeakValueDictionary

import numpy as np
import pytest

from firebrick.scalar import expr, math
from firebrick.scalar.expr import bitcast, cast, const, eq, fma, load, maximum, select, walk
from firebrick.scalar.interpret import evaluate, fused


def test_equal_expressions_are_one_object() -> None:
    x, y = load(0, "float32"), load(1, "float32")
    assert x + y is load(0, "float32") + load(1, "float32")
    assert maximum(x, 1.0) is maximum(1.0, x)
    assert math.exp(x) is math.exp(load(0, "float32"))
    assert x - y is not y - x
    assert const(0.0, "float32") is not const(-0.0, "float32")
    assert const(1, "int32") is not const(True, "bool")
    assert const(float("nan"), "float32") is const(float("nan"), "float32")


def test_a_function_and_its_gradient_share_what_they_compute() -> None:
    x = load(0, "float32")
    apart = len(walk([math.gelu(x)])) + len(walk([math.gelu_gradient(x, x)]))
    assert len(walk([math.gelu(x), math.gelu_gradient(x, x)])) < 0.7 * apart


def test_nodes_that_nobody_holds_are_freed() -> None:
    before = len(expr._nodes)
    e = math.tanh(load(77, "float64"))
    assert len(expr._nodes) > before
    del e
    gc.collect()
    assert len(expr._nodes) <= before


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_difference_from_minus_zero_is_computed_as_it_makes_minus_zero_plus_zero(dtype: str) -> None:
    x = load(0, dtype)
    assert x - 0.0 is x
    (found,) = evaluate([x - (-0.0)], {0: np.array([-0.0, 0.0, 1.0], dtype)})
    assert np.signbit(found).tolist() == [False, False, False]


def test_a_finalizer_may_make_expressions_while_one_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    class Collected(WeakValueDictionary[expr.Key, expr.Expr]):
        def get(self, key, default=None):  # a pass of the collector begins here, and runs a finalizer
            if not made:
                made.append(None)
                made.append(const(4.5, "float32"))
            return super().get(key, default)

    monkeypatch.setattr(expr, "_nodes", Collected())
    faulthandler.dump_traceback_later(60, exit=True)
    try:
        assert const(4.5, "float32") is made[1]
    finally:
        faulthandler.cancel_dump_traceback_later()


def test_identities_hold_for_signed_zeros_and_nan() -> None:
    x, i = load(0, "float32"), load(0, "int32")
    assert x * 1.0 is x
    assert x - 0.0 is x
    assert x + 0.0 is not x  # -0 + 0 is 0
    assert x * 0.0 is not const(0.0, "float32")  # of NaN and infinity
    assert i + 0 is i
    assert i << 0 is i
    assert bitcast(bitcast(x, "int32"), "float32") is x
    assert select(const(True, "bool"), x, 1.0) is x
    assert (const(3, "int8") * 100).value == 44
    assert cast(const(float("nan"), "float64"), "int32").value == 0
    assert cast(const(1e300, "float64"), "int16").value == 32767


def test_mixed_dtypes_and_unknown_ones_are_refused() -> None:
    with pytest.raises(TypeError, match="operands of one dtype"):
        load(0, "float32") + load(1, "float64")
    with pytest.raises(TypeError, match="operands of one dtype"):
        load(0, "float32") << 1
    with pytest.raises(TypeError, match="has one of the dtypes"):
        load(0, "float16")
    with pytest.raises(TypeError, match="takes a bool"):
        select(load(0, "int32"), 1, load(1, "int32"))
    with pytest.raises(TypeError, match="keeps the width"):
        bitcast(load(0, "float32"), "int64")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_interpreters_fused_product_rounds_once(dtype: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=3000) * 2.0 ** rng.integers(-20, 20, 3000) for _ in range(2))
    a, b = a.astype(dtype), b.astype(dtype)
    # sums that cancel to the product's rounding error, that tie, and ordinary ones
    c = np.where(rng.random(3000) < 0.5, -(a * b), rng.normal(size=3000).astype(dtype)).astype(dtype)
    got = fused(a, b, c)
    for x, y, z, found in zip(a.tolist(), b.tolist(), c.tolist(), got, strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        error = abs(Fraction(float(found)) - exact)
        for other in (np.nextafter(found, np.inf, dtype=dtype), np.nextafter(found, -np.inf, dtype=dtype)):
            assert error <= abs(Fraction(float(other)) - exact)
    one = evaluate([fma(load(0, dtype), load(1, dtype), load(2, dtype))], [a, b, c])[0]
    assert np.array_equal(one, got)


def test_the_interpreters_fused_product_of_float64_is_exact_next_to_overflow_and_underflow() -> None:
    top, tiny = np.finfo(np.float64).max, np.finfo(np.float64).smallest_subnormal
    cases = [
        (2.0**700, 2.0**400, -top, np.inf), (-(2.0**512), 2.0**511, top, 2.0**1023 - 2.0**971), (top, 1.5, -top, top / 2),
        (2.0**-540, 2.0**-540, tiny, tiny), (2.0**-537, -(2.0**-537), tiny, 0.0), (2.0**-600, -(2.0**-600), 0.0, -0.0),
        (1 + 2.0**-52, 2.0**-1022 * (1 + 2.0**-52), -(2.0**-1022), 2 * tiny), (top, 2.0, np.nan, np.nan), (0.0, top, -0.0, 0.0),
    ]  # fmt: skip
    a, b, c, want = (np.asarray(column, np.float64) for column in zip(*cases, strict=True))
    with np.errstate(all="ignore"):
        got = fused(a, b, c)
    assert np.array_equal(got, want, equal_nan=True)
    assert np.array_equal(np.signbit(got), np.signbit(want))


def test_the_whole_graph_is_walked_once_operands_first() -> None:
    x = load(0, "float32")
    e = (x + 1.0) * (x + 1.0)
    order = walk([e, eq(e, 0.0)])
    assert len(order) == len(set(order))
    for n in order:
        assert all(order.index(a) < order.index(n) for a in n.args)
