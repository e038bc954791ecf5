"""Runs kernels on operands and results next to memory that cannot be accessed: ``python guarded_operands.py WIDTH``.

An access outside of an array ends the process; the last line that it printed is the kernel. It prints ``done`` otherwise.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from lowered_bodies import Body, body_of

from firebrick.compiler.spec.convolution import Convolution
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.errors import UnsupportedError

Array = np.ndarray[Any, Any]
Case = tuple[str, list[Array], tuple[tuple[str, tuple[int, ...], dict[str, Any]], ...]]
RNG = np.random.default_rng(0)
LIBC = ctypes.CDLL(None, use_errno=True)
KEPT: list[mmap.mmap] = []


def guarded(x: Array, end: bool) -> Array:
    """A copy of an array that begins behind a page without access, or (``end``) ends in front of one."""
    page, inside = mmap.PAGESIZE, -(-max(x.nbytes, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = mmap.mmap(-1, inside + 2 * page)
    KEPT.append(memory)
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for at in (first, first + page + inside):
        if LIBC.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 0):
            raise OSError(ctypes.get_errno(), "mprotect")
    begin = page + (inside - x.nbytes if end else 0)
    found = np.frombuffer(memory, np.uint8)[begin : begin + x.nbytes].view(x.dtype).reshape(x.shape)
    found[...] = x
    return found


def drawn(*shape: int, of: str = "float32") -> Array:
    return (RNG.normal(size=shape) * 3).astype(of)


def cases() -> Iterator[Case]:
    """Kernels of small and odd sizes."""
    swapped = {"axes": (1, 0)}
    for of, sizes in (("float32", [(1, 1, 1), (3, 5, 7), (17, 33, 19), (5, 130, 1)]), ("float16", [(3, 5, 7), (17, 33, 19)])):
        for m, k, n in sizes:
            yield f"product {of} {m} {k} {n}", [drawn(m, k, of=of), drawn(k, n, of=of)], (("matmul", (0, 1), {}),)
            nodes = ("permute", (0,), swapped), ("permute", (1,), swapped), ("matmul", (2, 3), {})
            yield f"transposed product {of} {m} {k} {n}", [drawn(k, m, of=of), drawn(n, k, of=of)], nodes
    for image, weight, stride, groups in (
        ((2, 3, 9, 11), (4, 3, 3, 3), (1, 1), 1), ((2, 4, 7, 5), (4, 1, 3, 3), (2, 2), 4),
        ((1, 5, 13, 3), (8, 5, 2, 3), (1, 2), 1),
    ):  # fmt: skip
        padding = ((1, 1), (1, 0))
        y = Convolution("float32", image, weight, stride, padding, (1, 1), groups).result
        params = {"stride": stride, "padding": padding, "dilation": (1, 1), "groups": groups}
        yield f"conv {image}", [drawn(*image), drawn(*weight)], (("conv", (0, 1), params),)
        yield f"conv_input {image}", [drawn(*y), drawn(*weight)], (("conv_input", (0, 1), params | {"size": image[2:]}),)
        yield f"conv_weight {image}", [drawn(*image), drawn(*y)], (("conv_weight", (0, 1), params | {"kernel": weight[2:]}),)
    for of, (r, c) in (("float32", (7, 67)), ("float16", (3, 5)), ("int8", (7, 67)), ("int64", (3, 5))):
        x, last = drawn(r, c, of=of), {"axis": 1}
        yield f"elementwise {of}", [x, x[0]], (("maximum", (0, 1), {}),)
        yield f"sort {of}", [x], (("sort", (0,), {"axis": 1, "descending": False}),)
        yield f"cumulative_sum {of}", [x], (("cumulative_sum", (0,), {"axis": 1, "reverse": False}),)
        yield f"columns {of}", [x], (("sum", (0,), {"axes": (0,), "keepdims": False}),)
        yield f"argmax {of}", [x], (("argmax", (0,), {"axis": 1, "keepdims": False}),)
        yield f"take {of}", [x, RNG.integers(0, c, 6)], (("take", (0, 1), last),)
        yield f"index_add {of}", [x, RNG.integers(0, r, 6), drawn(6, c, of=of)], (("index_add", (0, 1, 2), {"axis": 0}),)
        yield f"pad {of}", [x], (("pad", (0,), {"widths": ((1, 0), (2, 1)), "value": 1}),)
        if of.startswith("float"):
            yield f"softmax {of}", [x], (("softmax", (0,), last),)
    window = {"kernel": (2, 3), "stride": (2, 1), "padding": ((0, 1), (1, 0)), "dilation": (1, 1)}
    yield "max_pool", [drawn(2, 3, 7, 9)], (("max_pool", (0,), window),)
    for q, k, d in ((5, 7, 3), (19, 18, 17)):
        arrays = [drawn(2, q, d), drawn(2, k, d), drawn(2, k, d), drawn(q, k) > -1]
        yield f"attention {q} {k} {d}", arrays, (("attention", (0, 1, 2, 3), {"scale": 0.5, "causal": False}),)


def main() -> None:
    try:
        target = Target.host(int(sys.argv[1]))
    except UnsupportedError:
        print("no vectors of this width")
        return
    for title, arrays, nodes in cases():
        print(title, flush=True)
        kernel = Body(body_of(arrays, *nodes), target)
        for end in (False, True):
            outs = [guarded(np.zeros(a.shape, a.dtype.np), end) for a in kernel.avals]
            kernel(*(guarded(np.ascontiguousarray(x), end) for x in arrays), out=outs)
    print("done")


if __name__ == "__main__":
    main()
