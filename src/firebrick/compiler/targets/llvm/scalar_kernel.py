"""Kernel IR as scalar LLVM IR: the statements of one item, and on processors a loop over work items.

Names become SSA values directly: a name that a branch or a loop assigns to gets a phi where control flow joins. Arrays are
generic pointers. No external function is called. ``gpu_kernel`` prints the same statements for one thread of a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from firebrick.compiler.kernel.arguments import numbers
from firebrick.compiler.kernel.ir import Assign, Atomic, Check, For, Function, If, Let, Statement, Store, While, assigned
from firebrick.compiler.kernel.verify import check_plain, verify
from firebrick.compiler.targets.llvm.alignments import Alignments
from firebrick.compiler.targets.llvm.emit import Code, Emitter, Limit, literal, report, scalar_type, too_many_rounds
from firebrick.compiler.targets.llvm.memory import Strip, address, item_bytes, read_at, write
from firebrick.compiler.targets.llvm.native import Loop, NativeKernel, buffer_pointers, finish
from firebrick.compiler.targets.llvm.target import Target
from firebrick.scalar.expr import FLOATS, Expr, Number

WORD = 8
"""Bytes of a scalar argument of a kernel for a processor, whatever its dtype."""


def cpu_kernel(
    function: Function, target: Target, grid: int = 0, constants: Mapping[str, Number] | None = None
) -> NativeKernel:  # fmt: skip
    """A kernel for a CPU, with the signature of all generated kernels (``native``).

    Its work units are the work items. ``bufs`` holds a pointer for each array, in the order of the parameters, then, if there
    are scalars, one to a block of words: the k-th scalar begins at byte 8 · k, in its own dtype (``argument_words``).

    Args:
        function: Kernel.
        target: Processor.
        grid: Grid of the returned kernel; the code does not depend on it.
        constants: A number for each of its scalars, which are then constants of the code: there is no block of words.

    Raises:
        KernelCompileError: The kernel breaks a rule of kernel IR.
    """
    verify(function)
    check_plain(function)
    code = Code(target)
    given = {} if constants is None else {k: x.item() for k, x in numbers(function, constants).items()}
    count = len(function.arrays) + bool(function.scalars and not given)
    pointers = buffer_pointers(code, count)
    arrays = {a.name: Strip(a.dtype, p, 1) for a, p in zip(function.arrays, pointers, strict=False)}
    values = {s.name: literal(given[s.name], s.dtype) for s in function.scalars if s.name in given}
    for k, s in enumerate(() if given else function.scalars):
        word = code.put(f"getelementptr i8, ptr {pointers[-1]}, i64 {k * WORD}")
        values[s.name] = read_at(code, Strip(s.dtype, word, 1), "0", 1)
    loop = Loop(code, "%begin", "%end", 1)
    Printer(code, arrays, {**values, function.item: loop.index}).block(function.body)
    loop.close()
    return finish(function.name, code, count, grid)


def argument_words(function: Function, scalars: Mapping[str, Number]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """The block of scalar arguments that a kernel for a processor reads.

    Args:
        function: Kernel.
        scalars: A number for each of its scalars.

    Raises:
        LaunchError: A name is missing or unknown, or a number does not fit its dtype.
    """
    words = np.zeros(len(function.scalars), np.uint64)
    for k, value in enumerate(numbers(function, scalars).values()):
        words.view(np.uint8)[k * WORD : k * WORD + value.itemsize] = np.frombuffer(value.tobytes(), np.uint8)
    return words


class Printer:
    """Writes the statements of one item.

    Args:
        code: Function to append to.
        arrays: The memory of each array.
        values: The SSA value of each visible name.
        more: Writes the statements that only groups have, by kind.
        first: On a GPU, the number of the kernel's first site in the table of faults.
        alignments: Of accesses; by default that of the elements.
        limit: Of the rounds of each loop.
        loops: Those of the kernel, by ``ir.loops``, if there is a limit.
    """

    def __init__(
        self, code: Code, arrays: Mapping[str, Strip], values: dict[str, str],
        more: Mapping[type, Callable[[Printer, Any], None]] | None = None, first: str = "",
        alignments: Alignments | None = None, limit: Limit | None = None, loops: Sequence[For | While] = (),
    ) -> None:  # fmt: skip
        self.code, self.arrays, self.values, self._first, self._alignments = code, arrays, values, first, alignments
        self._limit, self._loops = limit or Limit(), {id(s): str(k) for k, s in enumerate(loops)}
        self._write: dict[type, Callable[[Any], None]] = {
            Let: self._set, Assign: self._set, Store: self._store, Check: self._check, If: self._if, While: self._while,
            For: self._for, Atomic: self._atomic, **{kind: partial(rule, self) for kind, rule in (more or {}).items()},
        }  # fmt: skip
        self._types: dict[str, str] = {}

    def block(self, body: tuple[Statement, ...]) -> None:
        """Write a block. Afterwards the names that were visible before it are visible, with their values at its end."""
        before = self.values
        self.values = dict(before)
        for s in body:
            self._write[type(s)](s)
        self.values = {name: self.values[name] for name in before}

    def evaluated(self, *roots: Expr) -> list[str]:
        """The values of expressions here."""
        emitter = Emitter(self.code, 1, self._leaf, self._element)
        return emitter.all(roots)

    def _leaf(self, e: Expr) -> str:
        return self.values[str(e.value)]

    def _element(self, e: Expr, at: str) -> str:
        return read_at(self.code, self.arrays[str(e.value)], at, 1, align=self._align(str(e.value), e.args[0]))

    def _align(self, array: str, index: Expr) -> int:
        return self._alignments.of(array, index) if self._alignments is not None else 0

    def _set(self, s: Let | Assign) -> None:
        self._types[s.name] = scalar_type(s.value.dtype)
        self.values[s.name] = self.evaluated(s.value)[0]

    def _store(self, s: Store) -> None:
        index, value = self.evaluated(s.index, s.value)
        write(self.code, self.arrays[s.array], index, value, 1, align=self._align(s.array, s.index))

    def _atomic(self, s: Atomic) -> None:
        at, value = self.evaluated(s.index, s.value)
        self.atomic(s, address(self.code, self.arrays[s.array], at), value)

    def atomic(self, s: Atomic, where: str, value: str, scope: str = "") -> None:
        """Write an atomic operation on the element at an address."""
        dtype = s.value.dtype
        op = {"exchange": "xchg"}.get(s.op, s.op)
        if dtype in FLOATS:
            op = {"add": "fadd", "min": "fminimum", "max": "fmaximum"}.get(op, op)
        elif op in ("min", "max") and dtype.startswith("u"):
            op = f"u{op}"
        kind = scalar_type(dtype)
        found = self.code.put(f"atomicrmw {op} ptr {where}, {kind} {value} {scope}monotonic, align {item_bytes(dtype)}")
        if s.name:
            self.values[s.name] = found

    def _check(self, s: Check) -> None:
        code = self.code
        holds = self.evaluated(s.condition)[0]
        fault, after = code.fresh("fault"), code.fresh("after")
        code.do(f"br i1 {holds}, label %{after}, label %{fault}")
        code.label(fault)
        report(code, s.site, self.evaluated(s.payload)[0], self._first)
        code.do(f"br label %{after}")
        code.label(after)

    def _if(self, s: If) -> None:
        code, before = self.code, self.values
        condition = self.evaluated(s.condition)[0]
        then, otherwise, after = code.fresh("then"), code.fresh("else"), code.fresh("after")
        code.do(f"br i1 {condition}, label %{then}, label %{otherwise}")
        ends: list[tuple[str, dict[str, str]]] = []
        for label, body in ((then, s.then), (otherwise, s.otherwise)):
            code.label(label)
            self.values = before
            self.block(body)
            ends.append((code.block, self.values))
            code.do(f"br label %{after}")
        code.label(after)
        self.values = dict(before)
        for name in sorted(assigned((s,)) & before.keys()):
            met = ", ".join(f"[ {values[name]}, %{end} ]" for end, values in ends)
            self.values[name] = code.put(f"phi {self._types[name]} {met}")

    def _while(self, s: While) -> None:
        code, limit = self.code, self._limit
        head = _Head(self, s, ("i64", "0") if limit.rounds else None)
        more = self.evaluated(s.condition)[0]
        if limit.rounds:
            early = code.put(f"icmp ult i64 {head.counter}, {limit.rounds}")
            self._reported(s, code.put(f"and i1 {more}, {code.put(f'xor i1 {early}, true')}"))
            more = code.put(f"and i1 {more}, {early}")
        self._rounds(head, more, s.body, 1 if limit.rounds else 0)

    def _reported(self, s: For | While, many: str) -> None:
        """Report a loop of too many rounds."""
        code = self.code
        fault, after = code.fresh("fault"), code.fresh("after")
        code.do(f"br i1 {many}, label %{fault}, label %{after}")
        code.label(fault)
        report(code, self._limit.site, self._loops[id(s)], self._first)
        code.do(f"br label %{after}")
        code.label(after)

    def _for(self, s: For) -> None:
        code, rounds = self.code, self._limit.rounds
        start, stop = self.evaluated(s.start, s.stop)
        if rounds and (many := too_many_rounds(code, start, stop, s.step, rounds)):
            self._reported(s, many)
            stop = code.put(f"select i1 {many}, i64 {start}, i64 {stop}")
        head = _Head(self, s, ("i64", start))
        self.values[s.name] = head.counter
        more = code.put(f"icmp slt i64 {head.counter}, {stop}")
        self._rounds(head, more, s.body, s.step)
        del self.values[s.name]

    def _rounds(self, head: _Head, more: str, body: tuple[Statement, ...], step: int = 0) -> None:
        """The branch of a loop's header, the loop's body, and the back edge."""
        code = self.code
        inside, after = code.fresh("body"), code.fresh("done")
        code.do(f"br i1 {more}, label %{inside}, label %{after}")
        code.label(inside)
        at_head = self.values
        self.block(body)
        following = ""
        if step == 1:  # the counter is below stop, so adding 1 does not overflow
            following = code.put(f"add nsw i64 {head.counter}, 1")
        elif step:  # saturates instead of overflowing: the largest integer is not below any stop
            following = code.call("i64", "llvm.sadd.sat.i64", ("i64", head.counter), ("i64", str(step)))
        head.close(self.values, following)
        code.label(after)
        self.values = at_head


class _Head:
    """The header of a loop, with phis for the counter and for each visible name that the loop assigns to.

    The phis' values of the back edge are known only at the loop's end, so ``close`` inserts the phis into the header.
    """

    def __init__(self, printer: Printer, s: While | For, counter: tuple[str, str] | None = None) -> None:
        code = self.code = printer.code
        self._before, self._label = code.block, code.fresh("loop")
        code.do(f"br label %{self._label}")
        code.label(self._label)
        self._place = len(code.lines)
        names = sorted(assigned(s.body) & printer.values.keys())
        self._phis = [(printer._types[n], f"%{code.fresh()}", printer.values[n], n) for n in names]
        self.counter = ""
        if counter is not None:
            self.counter = f"%{code.fresh('i')}"
            self._phis.append((counter[0], self.counter, counter[1], ""))
        printer.values = printer.values | {name: value for _, value, _, name in self._phis if name}

    def close(self, values: Mapping[str, str], following: str) -> None:
        """Write the back edge, with the names' values and the counter's next value."""
        code = self.code
        lines = [
            f"  {value} = phi {kind} [ {first}, %{self._before} ], [ {values[name] if name else following}, %{code.block} ]"
            for kind, value, first, name in self._phis
        ]
        code.do(f"br label %{self._label}")
        code.lines[self._place : self._place] = lines
