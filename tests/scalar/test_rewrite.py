"""Expressions made from the fields of their nodes, and with other expressions in the place of some nodes."""

from __future__ import annotations

import numpy as np
import pytest

from firebrick.ops import OPS
from firebrick.scalar import expr, math
from firebrick.scalar.expr import (
    Expr,
    bounded,
    cast,
    const,
    element,
    gather,
    index,
    load,
    local,
    philox,
    position,
    rarely,
    reduce,
    select,
    walk,
)
from firebrick.scalar.interpret import evaluate
from firebrick.scalar.rewrite import made, replaced


def every_kind() -> list[Expr]:
    x, i = load(0, "float64"), index(1)
    key = [load(k, "uint32") for k in range(1, 5)]
    return [
        gather(2, "int8", bounded(i, 5, 3)), position([3, 1]), position([]), element("a", "bool", i), local("n", "uint8"),
        philox(key, i), reduce("max", x), select(x < 1.0, x, math.exp(x)), rarely(x < 1.0, x, -x),
        cast(x, "int8"), cast(x, "bool"), expr.bitcast(x, "uint64"), expr.fma(x, x, 1.0), expr.scale(x, x), expr.absolute(x),
        const(float("nan"), "float32"), const(-0.0, "float64"), const(True, "bool"), ~(i << 3), i / 0,
    ]  # fmt: skip


def test_a_node_is_made_again_from_its_fields() -> None:
    x, y = load(0, "float32"), load(1, "float32")
    rules = [op.scalar(x) for name, op in OPS.items() if name in ("exp", "log", "tanh", "erf", "sin", "expm1")]
    for e in walk([*every_kind(), *rules, x * y]):
        assert made(e.op, e.dtype, e.args, e.value) is e


def test_replacing_nothing_gives_the_same_expressions() -> None:
    roots = every_kind()
    assert all(a is b for a, b in zip(replaced(roots, lambda e: None), roots, strict=True))


def test_what_is_replaced_is_simplified_with_what_is_around_it() -> None:
    n, x = local("n", "int64"), load(0, "int64")
    found = replaced([(x + n) * (n + 1), x - n], lambda e: const(0, "int64") if e is n else None)
    assert found == [x, x]


def test_replaced_expressions_have_the_values_of_what_replaces() -> None:
    x, y = load(0, "float64"), load(1, "float64")
    e = math.exp(x) * x + y
    swapped = replaced([e], lambda n: {x: y, y: x * 2.0}.get(n))[0]
    a, b = np.random.default_rng(0).normal(size=(2, 50))
    assert np.array_equal(evaluate([swapped], [a, b])[0], evaluate([e], [b, a * 2])[0])


def test_what_is_known_is_replaced_without_a_look_at_its_operands() -> None:
    x, n = load(0, "float64"), local("n", "float64")
    total = reduce("sum", math.exp(x))
    seen: list[Expr] = []

    def look(e: Expr) -> None:
        seen.append(e)

    assert replaced([x / total, total], look, {total: n}) == [x / n, n]
    assert seen == [x, x / n]


@pytest.mark.parametrize(
    ("op", "dtype", "args", "value"),
    [
        ("near", "int64", [index(0), index(0)], None),
        ("add", "int64", [index(0)], None),
        ("add", "int64", [], None),
        ("neg", "int32", [index(0)], None),
        ("cast", "int32", [], None),
        ("bounded", "int64", [index(0)], "4"),
        ("index", "int64", [], "1,x"),
        ("load", "float16", [], 0),
        ("element", "int8", [const(1, "int16")], "x"),
        ("call", "float64", [const(1.0, "float64")], "sin"),
        ("const", "int8", [], "one"),
    ],
)
def test_fields_of_no_node_are_refused(op: str, dtype: str, args: list[Expr], value: object) -> None:
    with pytest.raises(TypeError):
        made(op, dtype, args, value)
