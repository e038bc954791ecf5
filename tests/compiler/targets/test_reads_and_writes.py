"""Reads, writes and index vectors at every stride, number of lanes and mask, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from native_kernels import run_kernel, widths

from firebrick.compiler.targets.llvm.emit import Code
from firebrick.compiler.targets.llvm.memory import Strip, positions, read, read_at, read_uniform, tail_mask, write, write_at
from firebrick.compiler.targets.llvm.native import aligned, buffer_pointers, finish
from firebrick.compiler.targets.llvm.target import Target

Array = np.ndarray[Any, Any]
DTYPES = {
    "float32": np.float32, "float64": np.float64, "int8": np.int8, "bool": np.bool_, "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}  # fmt: skip
STRIDES, LANES, ROOM = (-2, -1, 0, 1, 2, 3), (1, 2, 8, 16), 64


def run(target: Target, arrays: Sequence[Array], body: Callable[[Code, list[str]], None]) -> None:
    """Run code with pointers to the middle of arrays."""
    code = Code(target)
    body(code, buffer_pointers(code, len(arrays)))
    run_kernel(finish("kernel", code, len(arrays), 1), [a[ROOM:] for a in arrays], target)


def numbers(dtype: str) -> Array:
    x = np.random.default_rng(1).permutation(np.arange(2 * ROOM) % 120)
    return (x % 2 == 0) if dtype == "bool" else x.astype(DTYPES[dtype])


@pytest.mark.parametrize("target", [widths()[0], widths()[-1]], ids=lambda t: str(t.width_bits))
@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_are_read_and_written_where_they_are(dtype: str, lanes: int, target: Target) -> None:
    x = numbers(dtype)
    for stride in STRIDES:
        for count in {lanes, max(1, lanes - 1)}:
            for whole in (read, write):  # at the stride, the other side next to each other
                out = np.zeros(2 * ROOM, DTYPES[dtype])
                if whole is write and stride == 0:
                    continue

                def body(code: Code, pointers: list[str], stride: int = stride, count: int = count, whole: Any = whole) -> None:
                    mask = tail_mask(code, str(count), lanes) if count < lanes else ""
                    source = Strip(dtype, pointers[0], stride if whole is read else 1)
                    goal = Strip(dtype, pointers[1], stride if whole is write else 1)
                    write(code, goal, "1", read(code, source, "1", lanes, mask), lanes, mask)

                run(target, [x, out], body)
                steps = np.arange(1, count + 1)
                wanted = np.zeros_like(out)
                wanted[ROOM + steps * (stride if whole is write else 1)] = x[ROOM + steps * (stride if whole is read else 1)]
                np.testing.assert_array_equal(out, wanted, err_msg=f"{whole.__name__}, stride {stride}, {count} of {lanes}")


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_at_any_positions_and_one_for_all_lanes(dtype: str, lanes: int) -> None:
    x, target = numbers(dtype), Target.host()
    for stride in STRIDES:
        out, at, same = np.zeros(2 * ROOM, DTYPES[dtype]), np.zeros(2 * ROOM, np.int64), np.zeros(2 * ROOM, DTYPES[dtype])

        def body(code: Code, pointers: list[str], stride: int = stride) -> None:
            where = positions(code, "2", stride, lanes)
            write(code, Strip("int64", pointers[1], 1), "0", where, lanes)
            found = read_at(code, Strip(dtype, pointers[0], 5), where, lanes)
            if lanes == 1:
                write(code, Strip(dtype, pointers[2], 1), "0", found, 1)
            else:
                write_at(code, Strip(dtype, pointers[2], 5), positions(code, "0", 1, lanes), found, lanes)
            one = Strip(dtype, pointers[0], 0)
            read_uniform(code, one, lanes)
            write(code, Strip(dtype, pointers[3], 1), "0", read(code, one, "7", lanes), lanes)

        run(target, [x, at, out, same], body)
        wanted = (2 + np.arange(lanes)) * stride
        np.testing.assert_array_equal(at[ROOM : ROOM + lanes], wanted)
        np.testing.assert_array_equal(out[ROOM : ROOM + lanes], x[ROOM + wanted])
        assert (same[ROOM : ROOM + lanes] == x[ROOM]).all()
        assert not out[ROOM + lanes :].any()
        assert not out[:ROOM].any()


@pytest.mark.parametrize("count", [1, 2, 3])
def test_addresses_are_aligned_if_each_is(count: int) -> None:
    """As of several results, whose stores need aligned memory: one that is not must be enough."""
    memory = np.zeros(8 * 16 + 16, np.float32)
    first = (-memory.ctypes.data % 64) // 4
    target = widths()[0]
    code = Code(target)
    pointers = buffer_pointers(code, count + 1)
    aligned(code, pointers[:-1], 64, lambda yes: code.do(f"store float {1.0 if yes else 2.0}, ptr {pointers[-1]}"))
    kernel = finish("kernel", code, count + 1, 1)
    for offsets in product((0, 16, 1, 8), repeat=count):
        out = np.zeros(1, np.float32)
        run_kernel(kernel, [*(memory[first + n :] for n in offsets), out], target)
        assert out[0] == (1.0 if all(n % 16 == 0 for n in offsets) else 2.0), offsets
