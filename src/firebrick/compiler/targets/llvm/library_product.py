"""Matrix products by the BLAS that NumPy brings, as a variant for the autotuner.

Its order of sums, and so its bits, depend on the library, the processor and the number of threads.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from math import prod

from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.targets.llvm.contract import Problem, problem_of
from firebrick.compiler.targets.llvm.lowered import FLOPS_PER_US, Lowered, LoweredKernel
from firebrick.compiler.targets.llvm.native import NativeKernel
from firebrick.core.aval import Aval

_LETTERS = {"float32": ("s", "float"), "float64": ("d", "double")}
_ROW_MAJOR, _AS_IT_IS, _TRANSPOSED = 101, 111, 112
_TEXT = """
declare void @{gemm}(i32, i32, i32, i64, i64, i64, {type}, ptr, i64, ptr, i64, {type}, ptr, i64)
declare i32 @{get}()
declare void @{set}(i32)
define weak_odr void @{name}(ptr %bufs, i64 %begin, i64 %end, ptr %scratch, ptr %faults) {{
entry:
  %a0 = load ptr, ptr %bufs, align 8
  %slot1 = getelementptr ptr, ptr %bufs, i64 1
  %b0 = load ptr, ptr %slot1, align 8
  %slot2 = getelementptr ptr, ptr %bufs, i64 2
  %c0 = load ptr, ptr %slot2, align 8
  %a = getelementptr {type}, ptr %a0, i64 {a_offset}
  %b = getelementptr {type}, ptr %b0, i64 {b_offset}
  %c = getelementptr {type}, ptr %c0, i64 {c_offset}
  %before = call i32 @{get}()
  call void @{set}(i32 {threads})
  call void @{gemm}(i32 {order}, i32 {ta}, i32 {tb}, i64 {m}, i64 {n}, i64 {k}, {type} 1.0, ptr %a, i64 {lda}, ptr %b, i64 {ldb}, {type} 0.0, ptr %c, i64 {ldc})
  call void @{set}(i32 %before)
  ret void
}}
"""  # noqa: E501


@dataclass(frozen=True, slots=True)
class Library:
    """A BLAS in this process.

    Attributes:
        prefix: Before each name, such as ``scipy_``.
        suffix: Behind each name, such as ``64_``, of functions with 64-bit integers.
    """

    prefix: str
    suffix: str

    def named(self, function: str) -> str:
        """The symbol of a function."""
        return f"{self.prefix}{function}{self.suffix}"


@cache
def library() -> Library | None:
    """The OpenBLAS that NumPy has loaded; None if it has another library, or one with 32-bit integers."""
    from threadpoolctl import threadpool_info

    if os.name != "posix":
        return None
    found = Library("scipy_", "64_")
    for facts in threadpool_info():
        if facts.get("internal_api") != "openblas" or "numpy" not in facts["filepath"]:
            continue
        try:  # its symbols become visible to the code that LLVM links
            loaded = ctypes.CDLL(facts["filepath"], mode=ctypes.RTLD_GLOBAL)
        except OSError:
            return None
        if all(hasattr(loaded, found.named(n)) for n in ("cblas_sgemm", "cblas_dgemm", "openblas_set_num_threads")):
            return found
    return None


def suits_library(spec: Contract) -> bool:
    """Whether it is a product of two matrices that a library can compute: in one dtype, without epilogue, no elements apart."""
    p = problem_of(spec.parts[0])
    plain = len(spec.results) == 1 and spec.results[0].expression.op == "load" and not spec.operands
    alike = {p.a.dtype, p.b.dtype, p.c.dtype, spec.results[0].dtype} in ({"float32"}, {"float64"})
    if (
        spec.convolution is not None
        or len(spec.parts) != 1
        or not (plain and alike)
        or prod(p.batch) != 1
        or p.empty
        or not p.k
    ):
        return False
    axes = (p.a.lanes, p.a.k, p.b.lanes, p.b.k, p.c.rows, p.c.lanes)
    if any(len(x) != 1 for x in axes) or p.a.bounds or p.b.bounds:
        return False
    c = spec.results[0].view
    (rows,), (columns,) = c.axes[-2:]
    lines = (_line(p.a.lanes[0].stride, p.a.k[0].stride, p.m, p.k), _line(p.b.k[0].stride, p.b.lanes[0].stride, p.k, p.n))
    return all(lines) and columns.stride == 1 and rows.stride >= p.n and library() is not None


def _line(outer: int, inner: int, rows: int, columns: int) -> tuple[int, int] | None:
    """How BLAS reads a matrix with these strides: as it is or transposed, and elements between its lines."""
    if (inner == 1 or columns == 1) and (outer >= columns or rows == 1):
        return _AS_IT_IS, max(outer, columns)
    if (outer == 1 or rows == 1) and (inner >= rows or columns == 1):
        return _TRANSPOSED, max(inner, rows)
    return None


def lowered(spec: Contract, inputs: list[Aval], threads: int) -> Lowered:
    """The call of the library for a product that ``suits_library``."""
    found, p = library(), problem_of(spec.parts[0])
    assert found is not None
    text = _text(found, p, spec, threads)
    name = f"blas_{blake2b(text.encode(), digest_size=12).hexdigest()}"
    text = text.replace("@NAME(", f"@{name}(")
    first = spec.parts[0]
    buffers = first.left.source, first.right.source, len(inputs)
    kernel = NativeKernel(name, text, frozenset(), 3, 1)
    return Lowered((LoweredKernel(kernel, buffers, p.flops / FLOPS_PER_US, chunk=0),), (), text, (frozenset(),))


def _text(found: Library, p: Problem, spec: Contract, threads: int) -> str:
    letter, type_ = _LETTERS[p.a.dtype]
    view = spec.results[0].view
    a = _line(p.a.lanes[0].stride, p.a.k[0].stride, p.m, p.k)
    b = _line(p.b.k[0].stride, p.b.lanes[0].stride, p.k, p.n)
    assert a is not None
    assert b is not None
    return _TEXT.format(
        gemm=found.named(f"cblas_{letter}gemm"), get=found.named("openblas_get_num_threads"),
        set=found.named("openblas_set_num_threads"), type=type_, name="NAME", threads=threads, order=_ROW_MAJOR, ta=a[0],
        tb=b[0], m=p.m, n=p.n, k=p.k, lda=a[1], ldb=b[1], ldc=max(view.axes[-2][0].stride, p.n), a_offset=p.a.offset,
        b_offset=p.b.offset, c_offset=view.offset,
    )  # fmt: skip
