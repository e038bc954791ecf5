"""What a generator does not compute, it refuses: none generates code that means something else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from firebrick.compiler.targets.llvm.column import column_kernels, nested_column_kernels
from firebrick.compiler.targets.llvm.emit import Code, Emitter
from firebrick.compiler.targets.llvm.fold import fold_kernel
from firebrick.compiler.targets.llvm.long_row import PART, long_row_kernels
from firebrick.compiler.targets.llvm.map import map_kernel
from firebrick.compiler.targets.llvm.memory import BufferView
from firebrick.compiler.targets.llvm.row import row_kernel
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import Expr, bounded, cast, gather, load, node, position

TARGET = Target.host()
N = 8
X, AT = BufferView("float32", (N, 1)), BufferView("int64", (N, 1))
ROW, COLUMN = BufferView("float32", (1, 0)), BufferView("float32", (0, 1))
F, WHOLE, J = load(0, "float32"), load(0, "int32"), load(1, "int64")
PLACE = position((0, 1))
ELSEWHERE = gather(0, "float32", bounded(J, N, 0))


def total(e: Expr, kind: str = "sum") -> Expr:
    return node("reduce", e.dtype, (e,), kind)


def fold(e: Expr) -> Any:
    return fold_kernel("f", (N, N), (0,), [X, AT], [(e, COLUMN)], TARGET)


def columns(e: Expr) -> Any:
    return column_kernels("f", N, N, [X, AT], [(e, COLUMN)], TARGET)


def nested(e: Expr) -> Any:
    three = [BufferView(x.dtype, (0, *x.strides)) for x in (X, AT)]
    return nested_column_kernels("f", (2,), (N,), N, three, [(e, BufferView("float32", (N, 0, 1)))], TARGET)


def parts(e: Expr) -> Any:
    return long_row_kernels("f", (1, 4 * PART), [X, AT], [(e, ROW)], TARGET)


def mapped(e: Expr) -> Any:
    return map_kernel("f", (N, N), [X, AT], [(e, X)], TARGET)


OWN = "a fold reads elements at their own positions only"
NESTED = total(F - total(F))
CASES: dict[str, tuple[Callable[[], Any], str]] = {
    "an index in a fold": (lambda: fold(total(cast(PLACE, "float32"))), OWN),
    "a read by index in a fold": (lambda: fold(total(ELSEWHERE)), OWN),
    "a check in a fold": (
        lambda: fold(total(cast(bounded(J, N, 0), "float32"))), OWN
    ),
    "nested columns": (lambda: columns(NESTED), "along columns are not nested"),
    "nested columns of several axes": (
        lambda: nested(NESTED), "are of elements at their own positions"
    ),
    "a read by index in columns": (lambda: columns(total(ELSEWHERE)), "are of elements at their own positions"),
    "an index in columns": (lambda: columns(total(cast(PLACE, "float32"))), "are of elements at their own positions"),
    "an index in columns of several axes": (
        lambda: nested(total(cast(PLACE, "float32"))), "are of elements at their own positions"
    ),
    "nested parts of rows": (lambda: parts(NESTED), "parts of rows are not nested"),
    "a reduction in a map": (lambda: mapped(total(F)), "a map kernel has no reduce"),
    "another dtype in a map": (lambda: mapped(J), "a result stored as float32 is computed as float32"),
    "values along a row into one element of it": (
        lambda: row_kernel("f", (N, N), [X], [(F - total(F), ROW)], TARGET),
        "a result with values along the row",
    ),
    "an element elsewhere": (
        lambda: Emitter(Code(TARGET), 4, lambda e: "%x").value(ELSEWHERE), "this kind of kernel reads no elements elsewhere"
    ),
    "floats by no instruction": (
        lambda: Emitter(Code(TARGET), 4, lambda e: "%x").value(node("shl", "float32", (F, F))),
        "no code for shl of float32",
    ),
    "integers by no instruction": (
        lambda: Emitter(Code(TARGET), 4, lambda e: "%x").value(node("scale", "int32", (WHOLE, WHOLE))),
        "no code for scale of int32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_generator_refuses_what_it_does_not_compute(name: str) -> None:
    generate, expected = CASES[name]
    with pytest.raises(TypeError, match=expected):
        generate()
