"""The laws in the op table, by which compilers simplify, hold bit for bit for the references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.op import Laws, Op
from firebrick.ops import OPS
from firebrick.ops.table import IncompleteOpError, register

Array = np.ndarray[Any, Any]
EXACT = ("int", "uint", "bool")
WITH_LAWS = {name: op for name, op in OPS.items() if op.laws is not None}
CASES = [(name, dtype) for name, op in WITH_LAWS.items() for dtype in op.dtypes if as_dtype(dtype).kind != "complex"]


def elements(name: str, divides: bool) -> Array:
    """Values of a dtype: its ends, small numbers, and what is special among floats."""
    dtype = as_dtype(name)
    if dtype.kind == "bool":
        return np.array([False, True])
    if dtype.kind == "float":
        found = np.array([0.0, -0.0, 1.0, -1.5, 3.0, np.inf, -np.inf], np.float64)
        return found.astype(dtype.np)
    info = np.iinfo(dtype.np)
    found = np.array([*{info.min, info.min + 1, max(-1, info.min), 0, 1, 2, 7, info.max}], dtype.np)
    return found[found != 0] if divides else found


def same(found: Any, expected: Array) -> bool:
    found = np.asarray(found)
    return found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def broken(op: Op, laws: Laws, dtype: str) -> list[str]:
    """The laws that do not hold for an op of one or two operands."""
    x, kind = elements(dtype, op.name in ("divide", "floor_divide")), as_dtype(dtype).kind
    wrong = []
    with np.errstate(all="ignore"):
        if laws.involution:
            return [] if same(op.reference(op.reference(x)), x) else ["involution"]
        neutral = laws.neutral[kind in EXACT]
        for side in laws.sides if neutral is not None else ():
            operands = [x, x]
            operands[side] = np.full_like(x, neutral)
            if not same(op.reference(*operands), x):
                wrong.append(f"neutral as operand {side}")
        if kind in EXACT and laws.absorbing is not None:
            zeros = np.full_like(x, laws.absorbing)
            if not (same(op.reference(x, zeros), zeros) and same(op.reference(zeros, x), zeros)):
                wrong.append("absorbing")
        if laws.idempotent and not same(op.reference(x, x), x):
            wrong.append("idempotent")
        if kind in EXACT and laws.of_equals is not None:
            found = np.asarray(op.reference(x, x))
            if not same(found, np.full_like(found, laws.of_equals)):
                wrong.append("of equals")
    return wrong


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_the_laws_of_an_op_hold_bit_for_bit(name: str, dtype: str) -> None:
    laws = WITH_LAWS[name].laws
    assert laws is not None
    assert broken(WITH_LAWS[name], laws, dtype) == []


@pytest.mark.parametrize(
    ("name", "laws", "dtype"),
    [
        ("add", Laws(neutral=(0.0, 0)), "float32"),  # -0.0 + 0.0 is 0.0
        ("add", Laws(neutral=(None, 1)), "int8"),
        ("subtract", Laws(neutral=(None, 0)), "int8"),  # 0 - x is not x
        ("multiply", Laws(absorbing=1), "int8"),
        ("add", Laws(idempotent=True), "int8"),
        ("equal", Laws(of_equals=False), "int8"),
        ("abs", Laws(involution=True), "int8"),
    ],
)
def test_a_law_that_does_not_hold_is_noticed(name: str, laws: Laws, dtype: str) -> None:
    assert broken(OPS[name], laws, dtype)


def test_an_op_that_moves_elements_is_exact_by_default_and_another_word_is_refused() -> None:
    assert all(op.exact == "moved" for op in OPS.values() if op.fusion == "move" and not op.transfers)
    assert not OPS["to_device"].exact
    with pytest.raises(IncompleteOpError, match="exact must be one of moved, all, real, integers"):
        register(exact="sometimes")(lambda x: x)
