"""``NativeKernel``: a generated kernel, and the code that all generators share.

A kernel is ``void name(ptr bufs, i64 begin, i64 end, ptr scratch, ptr faults)``. ``bufs`` holds the operands' pointers, then
the results'; [begin, end) are work units of its grid, which depends on shapes only. Each element of a result is written by
one work unit. ``faults`` is a table for the kernel's own sites (``spec.faults``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from firebrick.compiler.targets.llvm.emit import Code
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import BITS, COMPLEX, FLOATS, Expr

NAME = "firebrick_kernel"
"""Placeholder for a kernel's name until its text is complete; ``named`` replaces it."""
UNIT = 8192
"""Approximate number of elements of one work unit."""
STREAM = 16 << 20
"""Minimum size in bytes of a result that is written with non-temporal stores, if it is aligned to a vector."""


@dataclass(frozen=True, slots=True)
class NativeKernel:
    """A generated kernel.

    Attributes:
        name: Name of its function.
        text: The function in LLVM IR.
        declarations: Declarations that its module needs.
        buffers: Number of pointers that it reads from ``bufs``.
        grid: Number of work units; 0 if there is nothing to do.
        scratch: Bytes of private memory that a call needs, aligned to 64.
    """

    name: str
    text: str
    declarations: frozenset[str]
    buffers: int
    grid: int
    scratch: int = 0


def module_text(kernels: Iterable[NativeKernel]) -> str:
    """One module of several kernels."""
    kernels = list(kernels)
    declarations = sorted(set().union(*(k.declarations for k in kernels)))
    return "\n".join([*declarations, *(k.text for k in kernels), "!0 = !{i32 1}", ""])


def finish(name: str, code: Code, buffers: int, grid: int, scratch: int = 0) -> NativeKernel:
    """The kernel made of a function's lines."""
    # weak_odr: several modules of one program may define the same kernel
    head = f"define weak_odr void @{name}(ptr %bufs, i64 %begin, i64 %end, ptr %scratch, ptr %faults) {{\nentry:"
    text = "\n".join([head, *code.lines, "  ret void", "}"])
    return NativeKernel(name, text, frozenset(code.declared), buffers, grid, scratch)


def buffer_pointers(code: Code, count: int) -> list[str]:
    """The pointers in ``bufs``."""
    out = []
    for i in range(count):
        slot = code.put(f"getelementptr ptr, ptr %bufs, i64 {i}")
        out.append(code.put(f"load ptr, ptr {slot}, align 8"))
    return out


def aligned(code: Code, addresses: Sequence[str], to: int, body: Callable[[bool], None]) -> None:
    """``body(True)`` if all addresses are multiples of ``to``, a power of two, else ``body(False)``."""
    bits = ""  # the bitwise or of all addresses, whose low bits are 0 if those of each address are
    for address in addresses:
        at = code.put(f"ptrtoint ptr {address} to i64")
        bits = code.put(f"or i64 {bits}, {at}") if bits else at
    yes = code.put(f"icmp eq i64 {code.put(f'and i64 {bits}, {to - 1}')}, 0")
    fast, usual, after = code.fresh("stream"), code.fresh("usual"), code.fresh("after")
    code.do(f"br i1 {yes}, label %{fast}, label %{usual}")
    for label, answer in ((fast, True), (usual, False)):
        code.label(label)
        body(answer)
        code.do(f"br label %{after}")
    code.label(after)


class Loop:
    """A counted loop ``for i = start; i < stop; i += step``, with values carried around it.

    Args:
        code: Function to append to.
        start: First value (i64).
        stop: Exclusive bound (i64).
        step: Increment, a constant.
        carried: (type, start value) of each carried value.

    Attributes:
        index: The counter.
        values: The carried values: those of the current iteration in the body, those of the last iteration after the loop.
            ``close`` takes those of the next iteration.
    """

    def __init__(self, code: Code, start: str, stop: str, step: int, carried: Sequence[tuple[str, str]] = ()) -> None:
        self.code, self.step, self.carried, self.stop = code, step, list(carried), stop
        before = code.block
        self._head, self._body, self._after = code.fresh("loop"), code.fresh("body"), code.fresh("done")
        code.do(f"br label %{self._head}")
        code.label(self._head)
        self.index = f"%{code.fresh('i')}"
        self.values = [f"%{code.fresh('c')}" for _ in carried]
        self._phis = [("i64", self.index, start, before)]
        self._phis += [(t, v, s, before) for v, (t, s) in zip(self.values, self.carried, strict=True)]
        self._phi_line = len(code.lines)  # `close` inserts the phis here, since they need values of the loop's end
        more = code.put(f"icmp slt i64 {self.index}, {stop}")
        code.do(f"br i1 {more}, label %{self._body}, label %{self._after}")
        code.label(self._body)

    def close(self, values: Sequence[str] = ()) -> None:
        """End the body."""
        code = self.code
        following = code.put(f"add nuw nsw i64 {self.index}, {self.step}")
        end = code.block
        code.do(f"br label %{self._head}")
        phis = [
            f"  {name} = phi {t} [ {first}, %{before} ], [ {new}, %{end} ]"
            for (t, name, first, before), new in zip(self._phis, [following, *values], strict=True)
        ]
        code.lines[self._phi_line : self._phi_line] = phis
        code.label(self._after)


def lanes_for(target: Target, nodes: Iterable[Expr], dtypes: Iterable[str]) -> int:
    """Number of lanes: as many elements of the widest float, or else of the widest integer, as a register holds."""
    found = {COMPLEX.get(d, d) for d in {*(e.dtype for e in nodes), *dtypes}}
    floats = [BITS[d] for d in found if d in FLOATS]
    widest = max(floats) if floats else max((BITS[d] for d in found), default=32)
    return min(64, target.lanes(max(8, widest)))


def named(kernel: NativeKernel, kind: str) -> NativeKernel:
    """The same kernel with a hash of its code as its name."""
    name = f"{kind}_{blake2b(kernel.text.encode(), digest_size=12).hexdigest()}"
    text = kernel.text.replace(f"@{kernel.name}(", f"@{name}(")
    return NativeKernel(name, text, kernel.declarations, kernel.buffers, kernel.grid, kernel.scratch)
