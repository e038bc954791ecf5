"""Products with elements outside of their bounds, where a contraction leaves them out (``Part.omits``).

Kernels add products with 0 in their place, which are NaN where the other factor is infinite or NaN. To select each product
would cost time, so kernels report whether results are NaN, which those of ordinary operands are not. The NaN of a work unit are
then computed again, one by one, of the products that count.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from firebrick.compiler.targets.llvm.contract.ir_builder import IRBuilder, Value, compute_type, memory, vector
from firebrick.compiler.targets.llvm.contract.problem import FactorLayout, Problem


def flag_nan(e: IRBuilder, vectors: Sequence[str], vl: int, type_: str, flag: str) -> None:
    """Set the byte at ``flag`` to 1 if a lane of ``vectors`` is NaN."""
    v, mask = vector(vl, type_), vector(vl, "i1")
    found = ""
    for x, y in zip_longest(vectors[::2], vectors[1::2], fillvalue=vectors[0]):  # one comparison tests two vectors
        nan = e.let(f"fcmp uno {v} {x}, {y}")
        found = e.let(f"or {mask} {found}, {nan}") if found else nan
    with e.when(e.intrinsic("i1", f"llvm.vector.reduce.or.v{vl}i1", (mask, found))):
        e.do(f"store i8 1, ptr {flag}")


def mend_if(e: IRBuilder, flag: str, mend: str, pointers: Sequence[str], ranges: Sequence[Value]) -> None:
    """Compute the NaN among rows and columns of C again, if there are any.

    Args:
        e: Builder to append to.
        flag: Pointer to the byte that ``flag_nan`` sets.
        mend: Name of the function that ``mending`` gives.
        pointers: Those of A, B and C.
        ranges: Index of the batch; first row, end of the rows, first column, end of the columns.
    """
    found = e.let(f"load i8, ptr {flag}, align 1")
    with e.when(e.let(f"icmp ne i8 {found}, 0")):
        args = ", ".join([*(f"ptr {x}" for x in pointers), *(f"i64 {x}" for x in ranges)])
        e.do(f"call void @{mend}({args})")


def mending(e: IRBuilder, p: Problem, name: str) -> str:
    """The text of ``void name(ptr a, ptr b, ptr c, i64 batch…, i64 m0, i64 m1, i64 n0, i64 n1)``.

    Args:
        e: A builder without instructions.
        p: The problem.
        name: Of the function.
    """
    type_, batch = compute_type(p.c.dtype), [f"%b{i}" for i in range(len(p.batch))]
    one = vector(1, type_)
    e.start("%entry")
    with e.loop("%m0", "%m1") as row, e.loop("%n0", "%n1") as column:
        start = e.dot(batch, p.c.batch, p.c.offset)
        for axes, index in ((p.c.rows, row.index), (p.c.lanes, column.index)):
            start = e.dot(e.split(index, [a.size for a in axes]), [a.stride for a in axes], start)
        to = e.at("%c", start, memory(p.c.dtype))
        x = e.load(to, 1, p.c.dtype)
        nan = e.let(f"fcmp uno {one} {x}, {x}")
        with e.when(e.let(f"extractelement <1 x i1> {nan}, i64 0")):
            e.store(_inside(e, p, batch, row.index, column.index, type_), to, 1, p.c.dtype)
    e.do("ret void")
    head = ", ".join(["ptr %a, ptr %b, ptr %c", *(f"i64 {x}" for x in (*batch, "%m0", "%m1", "%n0", "%n1"))])
    return "\n".join([f"define internal void @{name}({head}) noinline cold nounwind {{", *e.lines, "}"])


def _inside(e: IRBuilder, p: Problem, batch: Sequence[Value], row: Value, column: Value, type_: str) -> str:
    """An element of C as a vector of one lane. A sum that is NaN ends at once, so that operands full of NaN cost little.

    Args:
        e: Builder to append to.
        p: The problem.
        batch: The indices of the batch.
        row: Of C.
        column: Of C.
        type_: ``float`` or ``double``.
    """
    one, wide = vector(1, type_), vector(1, "double")
    starts = [_Line(e, p.a, "%a", batch, row), _Line(e, p.b, "%b", batch, column)]
    with e.loop(0, p.k, 1, [(wide, "zeroinitializer")]) as loop:
        read = [line.element(e, loop.index) for line in starts]
        inside = e.let(f"and <1 x i1> {read[0][1]}, {read[1][1]}")
        x, y = (value if type_ == "double" else e.let(f"fpext {one} {value} to {wide}") for value, _ in read)
        more = e.let(f"fadd {wide} {loop.values[0]}, {e.let(f'fmul {wide} {x}, {y}')}")
        total = e.let(f"select <1 x i1> {inside}, {wide} {more}, {wide} {loop.values[0]}")
        nan = e.let(f"extractelement <1 x i1> {e.let(f'fcmp uno {wide} {total}, {total}')}, i64 0")
        loop.step = e.let(f"select i1 {nan}, i64 {p.k}, i64 1")
        loop.next = [total]
    (total,) = loop.values
    return total if type_ == "double" else e.let(f"fptrunc {wide} {total} to {one}")


class _Line:
    """The elements of A or B along k, at a row or a column."""

    def __init__(self, e: IRBuilder, x: FactorLayout, pointer: str, batch: Sequence[Value], lane: Value) -> None:
        self.x, self.pointer = x, pointer
        index = e.split(lane, [a.size for a in x.lanes])
        self.start = e.dot(index, [a.stride for a in x.lanes], e.dot(batch, x.batch, x.offset))
        self.coordinates = [e.dot(index, b.lanes, b.start) for b in x.bounds]

    def element(self, e: IRBuilder, k: Value) -> tuple[str, str]:
        """The element at ``k``, 0 outside of the bounds, and whether it is inside, each as a vector of one lane."""
        index = e.split(k, [a.size for a in self.x.k])
        inside = "<i1 1>"
        for b, coordinate in zip(self.x.bounds, self.coordinates, strict=True):
            here = e.inside(e.dot(index, b.k, coordinate), 0, b.size, 1)
            inside = e.let(f"and <1 x i1> {inside}, {here}")
        at = e.at(self.pointer, e.dot(index, [a.stride for a in self.x.k], self.start), memory(self.x.dtype))
        return e.load(at, 1, self.x.dtype, inside if self.x.bounds else None), inside
