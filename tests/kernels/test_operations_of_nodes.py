"""Each node of expressions that kernels are composed of, without an operation of the op table, has one of the same values."""

from __future__ import annotations

import numpy as np
import pytest

from firebrick.compiler.kernel.language.composed import _OF_BITS, _OF_BOOLS, _RAW
from firebrick.ops.table import OPS
from firebrick.scalar.interpret import apply

X = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.0, 4.0], np.float64)
Y = np.array([1.0, -1.5, 2.0, -0.25, 1.5, 7.0, -3.0, 4.0], np.float64)
K, S = np.array([5, -3, 0, 12, 7, -1, 64, 2], np.int64), np.array([0, 1, 2, 3, 4, 5, 6, 7], np.int64)
COMPARED = {"lt", "le", "gt", "ge", "eq", "ne"}


@pytest.mark.parametrize("op", _RAW)
def test_a_node_of_numbers(op: str) -> None:
    entry = OPS[_RAW[op]]
    count = len(entry.operands)
    if op == "select":
        operands, dtype = [X > 0, X, Y], "float64"
    elif op in ("shl", "shr"):
        operands, dtype = [K, S], "int64"
    else:
        operands = [np.abs(X), Y][:count] if op == "sqrt" else [X, Y][:count]
        dtype = "bool" if op in COMPARED else "float64"
    assert np.array_equal(apply(op, dtype, operands, None), entry.reference(*operands))


@pytest.mark.parametrize("op", _OF_BITS)
def test_a_node_of_bits_and_of_bools(op: str) -> None:
    for table, operands, dtype in ((_OF_BITS, [K, S], "int64"), (_OF_BOOLS, [X > 0, Y > 0], "bool")):
        entry = OPS[table[op]]
        given = operands[: len(entry.operands)]
        assert np.array_equal(apply(op, dtype, given, None), entry.reference(*given))
    assert _OF_BITS.keys() == _OF_BOOLS.keys()
