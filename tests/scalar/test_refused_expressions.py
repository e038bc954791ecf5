"""What is no scalar expression: each constructor refuses operands of other dtypes, counts and names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from firebrick.compiler.fusion.policy import thresholds
from firebrick.scalar import expr as of
from firebrick.scalar.expr import BITS, COMPARISONS, FLOATS, REDUCTIONS, Expr, binary, load, unary
from firebrick.scalar.storage import HALVES, STORAGE, computed

F, D, I32, I64, U32, B = (load(0, d) for d in ("float32", "float64", "int32", "int64", "uint32", "bool"))

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "two numbers": (lambda: binary("add", 1, 2), "one operand must be an expression"),
    "bits of what is nearest of integers": (lambda: of.nearest_bits(I32, I32), "nearest_bits takes two floats"),
    "bits of what is nearest of two dtypes": (lambda: of.nearest_bits(F, D), "nearest_bits takes two floats"),
    "what is nearest of integers": (lambda: of.nearest(I32), "nearest takes 2 operands of one dtype"),
    "fma of integers": (lambda: of.fma(I32, I32, I32), "fma takes 3 operands of one dtype"),
    "muladd of two dtypes": (lambda: of.muladd(F, F, D), "muladd takes 3 operands of one dtype"),
    "a condition that is a number": (lambda: of.select(F, F, F), "select takes a bool"),
    "sides of two dtypes": (lambda: of.rarely(B, F, D), "rarely takes a bool"),
    "bits of another width": (lambda: of.bitcast(F, "int64"), "bitcast keeps the width"),
    "a cast to no dtype": (lambda: of.cast(F, "float8"), "has one of the dtypes"),
    "an operand of no dtype": (lambda: load(0, "float16"), "has one of the dtypes"),
    "a read at a position of 32 bits": (lambda: of.gather(0, "float32", I32), "a position is int64"),
    "a read of no dtype": (lambda: of.gather(0, "half", I64), "has one of the dtypes"),
    "an index of 32 bits": (lambda: of.bounded(I32, 3, 0), "an index is int64"),
    "an index into nothing": (lambda: of.bounded(I64, 0, 0), "an index is int64, into at least one element"),
    "an index without a check": (lambda: of.bounded(I64, 3, -1), "an index is int64"),
    "an element at a position that is no integer": (lambda: of.element("x", "float32", F), "the index of an element is int"),
    "a local of no dtype": (lambda: of.local("x", "text"), "has one of the dtypes"),
    "random words of three words": (lambda: of.philox([U32] * 3, I64), "random words take four uint32 words"),
    "random words of other words": (lambda: of.philox([U32, U32, U32, I32], I64), "random words take four uint32 words"),
    "random words at a position of 32 bits": (lambda: of.philox([U32] * 4, I32), "random words take four uint32 words"),
    "a reduction of another name": (lambda: of.reduce("mean", F), "reduce takes one of"),
    "a reduction of bools": (lambda: of.reduce("max", B), "reduce takes one of"),
    "a stored dtype of no element": (lambda: computed("float8_e5m2"), "kernels read and write"),
    "a threshold of another name": (lambda: thresholds(most=3).__enter__(), "thresholds are .*. Received: most"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_expression_is_refused(name: str) -> None:
    make, expected = REFUSED[name]
    with pytest.raises(TypeError, match=expected):
        make()


def _made(make: Callable[[], Expr]) -> str:
    try:
        return make().dtype
    except TypeError:
        return ""


def test_each_operation_has_the_operands_that_it_is_of() -> None:
    integers = [d for d in BITS if d not in FLOATS and d != "bool"]
    of_floats, of_integers = ("sqrt", "floor", "ceil", "trunc", "rint"), ("and", "or", "xor", "shl", "shr")
    for d in BITS:
        x, y = load(0, d), load(1, d)
        for op in of_floats:
            assert _made(lambda op=op, x=x: unary(op, x)) == (d if d in FLOATS else ""), (op, d)
        for op in of_integers[:3]:
            assert _made(lambda op=op, x=x, y=y: binary(op, x, y)) == (d if d not in FLOATS else ""), (op, d)
        for op in of_integers[3:]:
            assert _made(lambda op=op, x=x, y=y: binary(op, x, y)) == (d if d in integers else ""), (op, d)
        for op in ("add", "sub", "mul", "div", "min", "max"):
            assert bool(_made(lambda op=op, x=x, y=y: binary(op, x, y))) == (d != "bool"), (op, d)
        for op in COMPARISONS:
            assert _made(lambda op=op, x=x, y=y: binary(op, x, y)) == "bool"
        for kind in REDUCTIONS:
            assert _made(lambda kind=kind, x=x: of.reduce(kind, x)) == (d if d != "bool" else "")


def test_halves_are_computed_in_float32_and_the_others_as_they_are() -> None:
    assert {d: computed(d) for d in STORAGE} == {d: "float32" if d in HALVES else d for d in STORAGE}
    assert [computed(d) for d in ("complex64", "complex128")] == ["complex64", "complex128"]
