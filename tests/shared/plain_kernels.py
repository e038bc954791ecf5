"""Small kernels in LLVM IR, as text, for tests of what compiles and runs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from firebrick.compiler.spec.faults import FIRST_PAYLOAD, LARGEST_INDEX, LARGEST_SITE, PAYLOAD

LOOP = """
define void @{name}(ptr %bufs, i64 %begin, i64 %end, ptr %scratch, ptr %faults) {{
entry:
  %x = load ptr, ptr %bufs
  %yp = getelementptr ptr, ptr %bufs, i64 1
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %done ]
{body}
  br label %done
done:
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %leave
leave:
  ret void
}}
"""

# x[i] += 1, int64
COUNT = LOOP.format(
    name="count",
    body="""
  %p = getelementptr i64, ptr %x, i64 %i
  %v = load i64, ptr %p
  %w = add i64 %v, 1
  store i64 %w, ptr %p""",
)

# y[i] = the sum of x[1000 i], …, x[1000 i + 999], float32, from the left
BLOCK = 1000
PARTIAL = LOOP.format(
    name="partial",
    body=f"""
  %y = load ptr, ptr %yp
  %first = mul i64 %i, {BLOCK}
  br label %inner
inner:
  %k = phi i64 [ 0, %loop ], [ %k1, %inner ]
  %sum = phi float [ 0.0, %loop ], [ %sum1, %inner ]
  %at = add i64 %first, %k
  %p = getelementptr float, ptr %x, i64 %at
  %v = load float, ptr %p
  %sum1 = fadd float %sum, %v
  %k1 = add i64 %k, 1
  %again = icmp slt i64 %k1, {BLOCK}
  br i1 %again, label %inner, label %out
out:
  %q = getelementptr float, ptr %y, i64 %i
  store float %sum1, ptr %q""",
)

# y[0] = x[0] + … + x[blocks - 1], in order; its grid is 1
COMBINE = """
define void @combine(ptr %bufs, i64 %begin, i64 %end, ptr %scratch, ptr %faults) {{
entry:
  %x = load ptr, ptr %bufs
  %yp = getelementptr ptr, ptr %bufs, i64 1
  %y = load ptr, ptr %yp
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi float [ 0.0, %entry ], [ %sum1, %loop ]
  %p = getelementptr float, ptr %x, i64 %i
  %v = load float, ptr %p
  %sum1 = fadd float %sum, %v
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, {blocks}
  br i1 %more, label %loop, label %leave
leave:
  store float %sum1, ptr %y
  ret void
}}
"""

# Enters x[0], then stays until x[0] reaches the next multiple of y[0] or ten seconds of the clock (in y[1] ticks) are over; its
# working space, of which it writes the first word, goes to y[2 + i].
MEET = """
define void @meet(ptr %bufs, i64 %begin, i64 %end, ptr %scratch, ptr %faults) {
entry:
  %x = load ptr, ptr %bufs
  %yp = getelementptr ptr, ptr %bufs, i64 1
  %y = load ptr, ptr %yp
  %limitp = getelementptr i64, ptr %y, i64 1
  %limit = load i64, ptr %limitp
  %at = add i64 %begin, 2
  %slot = getelementptr i64, ptr %y, i64 %at
  store ptr %scratch, ptr %slot
  store i64 %begin, ptr %scratch
  %start = call i64 @firebrick_ticks()
  %old = atomicrmw add ptr %x, i64 1 seq_cst
  br label %look
look:
  %here = load atomic i64, ptr %x seq_cst, align 8
  %together = load atomic i64, ptr %y seq_cst, align 8
  %turn = udiv i64 %old, %together
  %turns = add i64 %turn, 1
  %wanted = mul i64 %turns, %together
  %met = icmp sge i64 %here, %wanted
  %now = call i64 @firebrick_ticks()
  %spent = sub i64 %now, %start
  %late = icmp ugt i64 %spent, %limit
  %stop = or i1 %met, %late
  br i1 %stop, label %leave, label %look
leave:
  ret void
}
"""

# Runs until y[0] ticks of the clock are over.
BUSY = """
define void @busy(ptr %bufs, i64 %begin, i64 %end, ptr %scratch, ptr %faults) {
entry:
  %y = load ptr, ptr %bufs
  %limit = load i64, ptr %y
  %start = call i64 @firebrick_ticks()
  br label %look
look:
  %now = call i64 @firebrick_ticks()
  %spent = sub i64 %now, %start
  %late = icmp ugt i64 %spent, %limit
  br i1 %late, label %leave, label %look
leave:
  ret void
}
"""


def gather(site: int, size: int) -> str:
    """``y[i] = x[index[i]]``, int64, with the index checked and clamped."""
    return LOOP.format(
        name=f"gather{site}",
        body=f"""
  %ip = getelementptr ptr, ptr %bufs, i64 2
  %index = load ptr, ptr %ip
  %y = load ptr, ptr %yp
  %p = getelementptr i64, ptr %index, i64 %i
  %k = load i64, ptr %p
  %bad = icmp uge i64 %k, {size}
  br i1 %bad, label %fault, label %read
fault:
  %key = sub i64 {LARGEST_INDEX}, %k
  %payload = getelementptr i8, ptr %faults, i64 {FIRST_PAYLOAD + PAYLOAD * site}
  %old = atomicrmw umax ptr %payload, i64 %key monotonic
  %former = atomicrmw umax ptr %faults, i32 {LARGEST_SITE - site} monotonic
  br label %read
read:
  %safe = select i1 %bad, i64 0, i64 %k
  %q = getelementptr i64, ptr %x, i64 %safe
  %v = load i64, ptr %q
  %r = getelementptr i64, ptr %y, i64 %i
  store i64 %v, ptr %r""",
    )


def table(*arrays: np.ndarray) -> np.ndarray:
    """The addresses of arrays, which must outlive its use."""
    return np.array([a.ctypes.data for a in arrays], np.uint64)


class Address(int):
    """Where an array's memory is, which it keeps there."""

    array: np.ndarray


def address(array: np.ndarray) -> int:
    """Where an array's memory is; the array lives as long as this number."""
    found = Address(array.ctypes.data)
    found.array = array
    return found


__all__: Sequence[str] = ("BLOCK", "BUSY", "COMBINE", "COUNT", "LOOP", "MEET", "PARTIAL", "address", "gather", "table")
