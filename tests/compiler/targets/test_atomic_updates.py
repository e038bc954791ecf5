"""Atomic operations of processors: the values before and after, and atomic instructions where threads share an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from native_kernels import run_kernel

from firebrick.compiler.targets.llvm.emit import Code
from firebrick.compiler.targets.llvm.lane_atomics import compare_exchange, update
from firebrick.compiler.targets.llvm.memory import Strip
from firebrick.compiler.targets.llvm.native import buffer_pointers, finish
from firebrick.compiler.targets.llvm.target import Target

Array = np.ndarray[Any, Any]
NUMBERS: dict[str, Callable[[Any, Any], Any]]
NUMBERS = {"add": np.add, "min": np.minimum, "max": np.maximum, "exchange": lambda a, b: b}
BITS: dict[str, Callable[[Any, Any], Any]] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
DTYPES = ("int32", "int64", "uint32", "uint64", "float32", "float64")
CASES = [(op, d) for op in (*NUMBERS, *BITS) for d in DTYPES if op in NUMBERS or not d.startswith("float")]


def literal(x: Any) -> str:
    return str(int(x)) if x.dtype.kind in "iu" else f"0x{np.float64(x).view(np.uint64):016X}"


def numbers(dtype: str) -> list[Any]:
    return list(np.array([3, 5, -7 if dtype[0] != "u" else 1 << 31], np.int64).astype(dtype))


def run(body: Callable[[Code, Strip], str], array: Array) -> tuple[Any, str]:
    """What an operation on the second element of an array gives, and its code."""
    target = Target.host()
    code, out = Code(target), np.zeros(1, array.dtype)
    first, result = buffer_pointers(code, 2)
    found = body(code, Strip(array.dtype.name, first, 1))
    kind = {"i": "i", "u": "i", "f": "float" if array.dtype.itemsize == 4 else "double"}[array.dtype.kind]
    code.do(f"store {kind if kind != 'i' else f'i{8 * array.dtype.itemsize}'} {found}, ptr {result}")
    run_kernel(finish("kernel", code, 2, 1), [array, out], target)
    return out[0], "\n".join(code.lines)


@pytest.mark.parametrize("shared", [False, True], ids=["of threads", "of a group"])
@pytest.mark.parametrize(("op", "dtype"), CASES)
def test_an_element_is_combined_with_a_value(op: str, dtype: str, shared: bool) -> None:
    for old in numbers(dtype):
        for value in numbers(dtype):
            array = np.array([9, old, 9], dtype)
            before, text = run(lambda code, x, v=value: update(code, op, x, "1", literal(v), shared), array)
            assert before == old
            with np.errstate(over="ignore"):
                assert array.tolist() == [9, (NUMBERS | BITS)[op](old, value), 9]
            assert ("atomicrmw" in text or "cmpxchg" in text) == (not shared)


@pytest.mark.parametrize("shared", [False, True], ids=["of threads", "of a group"])
@pytest.mark.parametrize("dtype", DTYPES[:4])
def test_an_element_is_exchanged_if_it_is_the_expected_one(dtype: str, shared: bool) -> None:
    old, value, _ = numbers(dtype)
    for expected in (old, value):
        array = np.array([9, old, 9], dtype)
        before, text = run(
            lambda code, x, e=expected: compare_exchange(code, x, "1", literal(e), literal(value), shared), array
        )
        assert before == old
        assert array.tolist() == [9, value if expected == old else old, 9]
        assert ("cmpxchg" in text) == (not shared)
