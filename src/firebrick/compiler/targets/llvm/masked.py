"""``Masked``: the statements of the work items that are the lanes of one vector.

Control flow that is uniform is branches and loops. Where the lanes part, the statements of each side are executed under a mask
of the lanes that are there, if there is one. Invariant: at least one lane of the mask is active, so scalar reads are safe.

A name's value in a lane that is not active is anything. So only joins choose between values, and a loop keeps a lane's values
of the round in which it left for those names alone that are read after the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from firebrick.compiler.kernel.ir import (
    Assign,
    Atomic,
    Barrier,
    Check,
    CompareExchange,
    For,
    Function,
    If,
    Let,
    Shuffle,
    Statement,
    Store,
    While,
    assigned,
    blocks,
    expressions,
    loops,
    statements,
)
from firebrick.compiler.kernel.live import Names, live_after, live_at_head
from firebrick.compiler.kernel.uniform import varies
from firebrick.compiler.targets.llvm.emit import Code, Limit, literal, report, scalar_type, splat, too_many_rounds
from firebrick.compiler.targets.llvm.lane_atomics import compare_exchange, each_lane, update
from firebrick.compiler.targets.llvm.lane_forms import LaneForm, Lanes
from firebrick.compiler.targets.llvm.lane_memory import read_lanes, write_lanes
from firebrick.compiler.targets.llvm.lane_random import power
from firebrick.compiler.targets.llvm.memory import Strip
from firebrick.compiler.targets.llvm.scratch import Scratch
from firebrick.scalar.expr import walk

CHEAP = 12
"""Most nodes of a branch that is executed without asking whether a lane is there."""
TWICE = 120
"""Most nodes of a branch of which there is code with and without a mask."""
_EXPENSIVE = {"element", "div", "rem", "sqrt", "philox", "rarely"}


class Masked:
    """Writes statements.

    Args:
        code: Function to append to.
        function: Kernel.
        lanes: Lanes of a vector; 1 for scalar code without masks.
        names: Those that differ between lanes, of ``varying``.
        arrays: The memory of each array.
        values: The forms of the names visible at first.
        scratch: Private memory.
        limit: Of loops.

    Attributes:
        mask: Active lanes here; empty for all.
        inner: Writes the blocks of a statement: ``block``, but for uniform control flow around barriers.
        dtypes: Of each name.
    """

    def __init__(
        self, code: Code, function: Function, lanes: int, names: Names, arrays: Mapping[str, Strip],
        values: dict[str, LaneForm], scratch: Scratch, limit: Limit,
    ) -> None:  # fmt: skip
        self.code, self.function, self.limit = code, function, limit
        self.names = names if lanes > 1 else frozenset()
        constant = frozenset(a.name for a in function.arrays if a.access == "read")
        self.lanes = Lanes(code, lanes, arrays, values, constant)
        self._assigned = assigned(function.body)
        self._loops = {id(s): k for k, s in enumerate(loops(function.body))}
        self._shared = {a.name for a in function.shared}
        self.scratch, self.mask = scratch, ""
        self.inner: Callable[[tuple[Statement, ...], Names, str], None] = self.block
        self.dtypes: dict[str, str] = {}
        self._write: dict[type, Callable[[Any, Names], None]] = {
            Let: self._set, Assign: self._set, Store: self._store, Check: self._check, If: self._if, While: self._while,
            For: self._for, Atomic: self._atomic, CompareExchange: self._compare_exchange, Barrier: self._barrier,
            Shuffle: self._shuffle,
        }  # fmt: skip

    @property
    def values(self) -> dict[str, LaneForm]:
        """The form of each visible name."""
        return self.lanes.values

    @values.setter
    def values(self, values: dict[str, LaneForm]) -> None:
        self.lanes.values = values

    def block(self, body: tuple[Statement, ...], after: Names, mask: str) -> None:
        """Write a block. Afterwards the names that were visible before it are visible, with their values at its end.

        Args:
            body: Statements.
            after: Names that may be read after the block.
            mask: Active lanes, at least one; empty for all.
        """
        before, outer = self.values, self.mask
        self.values, self.mask = dict(before), mask
        for s, live in zip(body, live_after(body, after), strict=True):
            self.write(s, live)
        self.values = {name: self.values[name] for name in before}
        self.mask = outer

    def write(self, s: Statement, live: Names) -> None:
        """Write a statement; ``live`` are the names that may be read after it."""
        self._write[type(s)](s, live)

    def varies(self, *s: Any) -> bool:
        """Whether one of some expressions differs between lanes."""
        return self.lanes.lanes > 1 and any(varies(e, self.names, self.function) for e in s)

    def held(self, name: str, form: LaneForm) -> str:
        """A name's value where control flow joins: a scalar if it is uniform, else a vector."""
        return self.lanes.vector(form, self.dtypes[name]) if name in self.names else form.base

    def kind(self, name: str) -> str:
        """LLVM's type of ``held``."""
        return self.lanes.type(self.dtypes[name]) if name in self.names else scalar_type(self.dtypes[name])

    def form(self, name: str, value: str) -> LaneForm:
        """The form of what is ``held``."""
        return LaneForm(vector=value) if name in self.names else LaneForm(value)

    def changed(self, s: Statement, live: Names) -> list[str]:
        """The names visible here that a statement assigns to and that are read after it, in an order."""
        return sorted(assigned((s,)) & self.values.keys() & live)

    def select(self, name: str, mask: str, a: str, b: str) -> str:
        """The lanes of a where a mask is true, else those of b."""
        if a == b:
            return a
        kind = self.kind(name)
        return self.code.put(f"select {self.lanes.type('bool')} {mask}, {kind} {a}, {kind} {b}")

    def _set(self, s: Let | Assign, live: Names) -> None:
        self.dtypes[s.name] = s.value.dtype
        if isinstance(s, Let) and s.name not in self._assigned:
            self.lanes.powers[s.name] = power(s.value, self.lanes.powers)
        self.values[s.name] = self.lanes.evaluated([s.value], self.mask)[0]

    def _store(self, s: Store, live: Names) -> None:
        index, value = self.lanes.evaluated([s.index, s.value], self.mask)
        strip, stream = self.lanes.arrays[s.array], s.array in self.lanes.streamed
        write_lanes(self.lanes, strip, index, self.lanes.vector(value, s.value.dtype), self.mask, stream)

    def _check(self, s: Check, live: Names) -> None:
        code, lanes = self.code, self.lanes
        holds = lanes.evaluated([s.condition], self.mask)[0]
        mask = self.mask
        if holds.uniform:
            fails = code.put(f"xor i1 {holds.base}, true")
        else:
            mask = lanes.both(mask, self._not(holds.vector))
            fails = lanes.any(mask)
        fault, after = code.fresh("fault"), code.fresh("after")
        code.do(f"br i1 {fails}, label %{fault}, label %{after}")
        code.label(fault)
        report(self.code, s.site, self._least(lanes.evaluated([s.payload], mask)[0], mask))
        code.do(f"br label %{after}")
        code.label(after)

    def _least(self, form: LaneForm, mask: str) -> str:
        """The smallest number of the active lanes (i64)."""
        if form.uniform:
            return form.base
        kind, most = self.lanes.type("int64"), literal((1 << 63) - 1, "int64", self.lanes.lanes)
        chosen = self.lanes.vector(form, "int64")
        if mask:
            chosen = self.code.put(f"select {self.lanes.type('bool')} {mask}, {kind} {chosen}, {kind} {most}")
        return self.code.call("i64", f"llvm.vector.reduce.smin.v{self.lanes.lanes}i64", (kind, chosen))

    def _not(self, mask: str) -> str:
        return self.code.put(f"xor {self.lanes.type('bool')} {mask}, {self.lanes.full('')}")

    # operations of several items

    def _atomic(self, s: Atomic, live: Names) -> None:
        index, value = self.lanes.evaluated([s.index, s.value], self.mask)
        array, shared = self.lanes.arrays[s.array], s.array in self._shared
        operands = [(index, "int64"), (value, s.value.dtype)]

        def one(v: list[str]) -> str:
            return update(self.code, s.op, array, v[0], v[1], shared)

        self._define(s.name, each_lane(self.lanes, self.scratch, operands, array.dtype, self.mask, one), array.dtype)

    def _compare_exchange(self, s: CompareExchange, live: Names) -> None:
        roots = [s.index, s.expected, s.value]
        array, shared = self.lanes.arrays[s.array], s.array in self._shared
        operands = [(form, e.dtype) for form, e in zip(self.lanes.evaluated(roots, self.mask), roots, strict=True)]

        def one(v: list[str]) -> str:
            return compare_exchange(self.code, array, v[0], v[1], v[2], shared)

        self._define(s.name, each_lane(self.lanes, self.scratch, operands, array.dtype, self.mask, one), array.dtype)

    def _define(self, name: str, value: LaneForm, dtype: str) -> None:
        if name:
            self.dtypes[name], self.values[name] = dtype, value

    def _barrier(self, s: Barrier, live: Names) -> None:
        """All items of the group are lanes of this vector."""

    def _shuffle(self, s: Shuffle, live: Names) -> None:
        """Items of one vector exchange values."""
        lanes, dtype = self.lanes, s.value.dtype
        room, first = self.scratch.array(dtype, lanes.lanes), LaneForm("0", 1 if lanes.lanes > 1 else 0)
        value = lanes.evaluated([s.value], self.mask)[0]
        write_lanes(lanes, room, first, lanes.vector(value, dtype), self.mask)
        self._define(s.name, taken(self, s, room, first), dtype)

    # branches

    def _if(self, s: If, live: Names) -> None:
        condition = self.lanes.evaluated([s.condition], self.mask)[0]
        if condition.uniform:
            self._uniform_if(s, live, condition.base)
        elif self.mask or not _twice(s):
            self._varying_if(s, live, condition.vector)
        else:
            self._whole_if(s, live, condition.vector)

    def _whole_if(self, s: If, live: Names, condition: str) -> None:
        """An If at which all lanes are active: one side without a mask if they agree, else both sides.

        Masked stores are slow, and where lanes part rarely, as at the border of a grid, there are no others.
        """
        code, before, changed = self.code, self.values, self.changed(s, live)
        kind = self.lanes.type("bool")
        ends: list[tuple[str, list[str]]] = []
        after = code.fresh("after")

        def side(write: Callable[[], None]) -> None:
            self.values = before
            write()
            ends.append((code.block, [self.held(name, self.values[name]) for name in changed]))
            code.do(f"br label %{after}")

        for body, lanes in ((s.then, condition), (s.otherwise, self._not(condition))):
            whole, parted = code.fresh("whole"), code.fresh("parted")
            agree = code.call("i1", f"llvm.vector.reduce.and.v{self.lanes.lanes}i1", (kind, lanes))
            code.do(f"br i1 {agree}, label %{whole}, label %{parted}")
            code.label(whole)
            side(lambda body=body: self.inner(body, live, ""))  # type: ignore[misc]
            code.label(parted)
        side(lambda: self._varying_if(s, live, condition))
        code.label(after)
        self.values = dict(before)
        for k, name in enumerate(changed):
            met = ", ".join(f"[ {held[k]}, %{end} ]" for end, held in ends)
            self.values[name] = self.form(name, code.put(f"phi {self.kind(name)} {met}"))

    def _uniform_if(self, s: If, live: Names, condition: str) -> None:
        code, before, changed = self.code, self.values, self.changed(s, live)
        then, otherwise, after = code.fresh("then"), code.fresh("else"), code.fresh("after")
        code.do(f"br i1 {condition}, label %{then}, label %{otherwise}")
        ends: list[tuple[str, list[str]]] = []
        for label, body in ((then, s.then), (otherwise, s.otherwise)):
            code.label(label)
            self.values = before
            self.inner(body, live, self.mask)
            held = [self.held(name, self.values[name]) for name in changed]
            ends.append((code.block, held))
            code.do(f"br label %{after}")
        code.label(after)
        self.values = dict(before)
        for k, name in enumerate(changed):
            met = ", ".join(f"[ {held[k]}, %{end} ]" for end, held in ends)
            self.values[name] = self.form(name, code.put(f"phi {self.kind(name)} {met}"))

    def _varying_if(self, s: If, live: Names, condition: str) -> None:
        before, changed = self.values, self.changed(s, live)
        first = {name: self.held(name, before[name]) for name in changed}
        now = dict(first)
        for body, negated in ((s.then, False), (s.otherwise, True)):
            if body:
                self._side(s, body, live, condition, negated, first, now)
        self.values = dict(before)
        for name in changed:
            self.values[name] = self.form(name, now[name])

    def _side(
        self, s: If, body: tuple[Statement, ...], live: Names, condition: str, negated: bool, first: dict[str, str],
        now: dict[str, str],
    ) -> None:  # fmt: skip
        """One block of an If. ``first`` are the values before the If, ``now`` those of its end so far."""
        code, before, changed = self.code, self.values, list(first)
        mask = self.lanes.both(self.mask, self._not(condition) if negated else condition)
        cheap, start = _cheap(body), code.block
        if not cheap:
            inside, after = code.fresh("lanes"), code.fresh("after")
            code.do(f"br i1 {self.lanes.any(mask)}, label %{inside}, label %{after}")
            code.label(inside)
        self.inner(body, live, mask)
        for name in changed:
            value = self.held(name, self.values[name])
            # what the lanes outside of the mask get does not matter, so the condition alone chooses
            new = self.select(name, condition, *((now[name], value) if negated else (value, now[name])))
            self.values[name] = self.form(name, new)
        ends = {name: self.values[name].vector for name in changed}
        self.values = before
        if not cheap:
            end = code.block
            code.do(f"br label %{after}")
            code.label(after)
            for name in changed:
                kind = self.kind(name)
                if ends[name] != now[name]:
                    ends[name] = code.put(f"phi {kind} [ {now[name]}, %{start} ], [ {ends[name]}, %{end} ]")
        now.update(ends)

    # loops

    def _while(self, s: While, live: Names) -> None:
        varying = self.varies(s.condition)
        head = _MaskedHead(self, s, live)
        mask = head.phi(self.lanes.type("bool"), self.lanes.full(self.mask)) if varying else self.mask
        rounds = head.phi("i64", "0") if self.limit.rounds else ""
        self.mask, outer = mask, self.mask
        condition = self.lanes.evaluated([s.condition], mask)[0]
        self.mask = outer
        if varying:
            mask = self.lanes.both(mask, self.lanes.vector(condition, "bool"))
            more = self.lanes.any(mask)
        else:
            more = condition.base
        following = [mask] if varying else []
        if rounds:
            following.append(self._limited(s, rounds, head, more))
        else:
            head.enter(more)
        self._round(head, s.body, mask if varying else "")
        head.close(following)

    def _limited(self, s: While, rounds: str, head: _MaskedHead, more: str) -> str:
        """Enter a loop's block if it was not executed too often; returns the number of rounds with this one."""
        code = self.code
        again, endless = code.fresh("again"), code.fresh("endless")
        code.do(f"br i1 {more}, label %{again}, label %{head.after}")
        code.label(endless)
        report(self.code, self.limit.site, str(self._loops[id(s)]))
        code.do(f"br label %{head.after}")
        code.label(again)
        inside = code.fresh("body")
        code.do(f"br i1 {code.put(f'icmp ult i64 {rounds}, {self.limit.rounds}')}, label %{inside}, label %{endless}")
        code.label(inside)
        return code.put(f"add nuw i64 {rounds}, 1")

    def _too_many(self, s: For, many: str) -> None:
        """Report a ``For`` of too many rounds."""
        code = self.code
        fault, after = code.fresh("fault"), code.fresh("after")
        code.do(f"br i1 {many}, label %{fault}, label %{after}")
        code.label(fault)
        report(code, self.limit.site, str(self._loops[id(s)]))
        code.do(f"br label %{after}")
        code.label(after)

    def _for(self, s: For, live: Names) -> None:
        start, stop = self.lanes.evaluated([s.start, s.stop], self.mask)
        if self.varies(s.start, s.stop):
            self._varying_for(s, live, start, stop)
            return
        code, end = self.code, stop.base
        if self.limit.rounds and (many := too_many_rounds(code, start.base, end, s.step, self.limit.rounds)):
            self._too_many(s, many)
            end = code.put(f"select i1 {many}, i64 {start.base}, i64 {end}")
        head = _MaskedHead(self, s, live)
        counter = head.phi("i64", start.base)
        head.enter(code.put(f"icmp slt i64 {counter}, {end}"))
        self.values[s.name] = LaneForm(counter)
        self._round(head, s.body, "")
        if s.step == 1:  # the counter is below stop, so adding 1 does not overflow
            following = code.put(f"add nsw i64 {counter}, 1")
        else:  # saturates instead of overflowing: the largest integer is not below any stop
            following = code.call("i64", "llvm.sadd.sat.i64", ("i64", counter), ("i64", str(s.step)))
        head.close([following])

    def _varying_for(self, s: For, live: Names, start: LaneForm, stop: LaneForm) -> None:
        """A loop to the largest number of rounds of a lane; a lane is active in its first rounds."""
        code, lanes = self.code, self.lanes
        rounds = self._rounds(lanes.vector(start, "int64"), lanes.vector(stop, "int64"), s.step)
        kind = lanes.type("int64")
        most = code.call("i64", f"llvm.vector.reduce.umax.v{lanes.lanes}i64", (kind, rounds))
        if self.limit.rounds:
            many = code.put(f"icmp ugt i64 {most}, {self.limit.rounds}")
            self._too_many(s, many)
            most = code.put(f"select i1 {many}, i64 0, i64 {most}")
        head = _MaskedHead(self, s, live)
        done, base = head.phi("i64", "0"), head.phi("i64", start.base or "0")
        head.enter(code.put(f"icmp ult i64 {done}, {most}"))
        # not the counter is compared with stop: it wraps around in lanes that are done
        mask = code.put(f"icmp ugt {kind} {rounds}, {splat(code, 'i64', done, lanes.lanes)}")
        self.values[s.name] = LaneForm(base, start.step, start.vector)
        self._round(head, s.body, mask)
        head.close([code.put(f"add nuw i64 {done}, 1"), code.put(f"add i64 {base}, {s.step}")])

    def _rounds(self, start: str, stop: str, step: int) -> str:
        """How often each lane executes a loop's block, as unsigned numbers: 0 for lanes that are not active."""
        code, lanes = self.code, self.lanes
        kind, bools = lanes.type("int64"), lanes.type("bool")

        def each(number: int) -> str:
            return splat(code, "i64", str(number), lanes.lanes)

        more = lanes.both(self.mask, code.put(f"icmp slt {kind} {start}, {stop}"))
        count = code.put(f"sub {kind} {stop}, {start}")
        if step > 1:
            last = code.put(f"sub {kind} {count}, {each(1)}")
            count = code.put(f"add {kind} {code.put(f'udiv {kind} {last}, {each(step)}')}, {each(1)}")
        return code.put(f"select {bools} {more}, {kind} {count}, {kind} zeroinitializer")

    def _round(self, head: _MaskedHead, body: tuple[Statement, ...], mask: str) -> None:
        """The block of a loop, under a mask of its own or, if that is empty, under that of the loop."""
        self.inner(body, head.live, mask or self.mask)
        for name in head.names:
            value = self.held(name, self.values[name])
            if mask and name in head.kept:
                value = self.select(name, mask, value, head.held[name])
            self.values[name] = self.form(name, value)


def taken(masked: Masked, s: Shuffle, room: Strip, item: LaneForm) -> LaneForm:
    """The value that another item left in an array.

    Args:
        masked: Of the items that read.
        s: Shuffle.
        room: The array.
        item: Places of the reading items in the array.
    """
    lanes, code = masked.lanes, masked.code
    source = lanes.evaluated([s.source], masked.mask)[0]
    kind = lanes.type("int64")

    def each(number: int) -> str:
        return literal(number, "int64", lanes.lanes)

    first = code.put(f"and {kind} {lanes.vector(item, 'int64')}, {each(-s.width)}")
    within = code.put(f"and {kind} {lanes.vector(source, 'int64')}, {each(s.width - 1)}")
    at = lanes.form(code.put(f"or {kind} {first}, {within}"))
    return lanes.form(read_lanes(lanes, room, at, masked.mask))


class _MaskedHead:
    """The header of a loop, with phis for what its rounds pass on; their last operands are known at the loop's end.

    Attributes:
        names: The visible names that the loop assigns to and that are read in a later round or after it.
        kept: Those that are read after the loop.
        live: The names that may be read after its block.
        held: The values of ``names`` at the header.
        after: Label of the block after the loop.
    """

    def __init__(self, masked: Masked, s: While | For, live: Names) -> None:
        self._masked, self._code = masked, masked.code
        code = self._code
        self.live = live_at_head(s, live)
        self.names, self.kept = masked.changed(s, self.live), frozenset(masked.changed(s, live))
        first = [masked.held(name, masked.values[name]) for name in self.names]
        self._before, self._label = code.block, code.fresh("loop")
        self.after = code.fresh("done")
        code.do(f"br label %{self._label}")
        code.label(self._label)
        self._place = len(code.lines)
        self._phis: list[tuple[str, str, str]] = []
        self.held = {n: self.phi(masked.kind(n), value) for n, value in zip(self.names, first, strict=True)}
        masked.values = masked.values | {n: masked.form(n, value) for n, value in self.held.items()}
        self._values = dict(masked.values)

    def phi(self, kind: str, first: str) -> str:
        """Another value that rounds pass on."""
        name = f"%{self._code.fresh('c')}"
        self._phis.append((kind, name, first))
        return name

    def enter(self, more: str) -> None:
        """Branch to the loop's block, or behind the loop."""
        inside = self._code.fresh("body")
        self._code.do(f"br i1 {more}, label %{inside}, label %{self.after}")
        self._code.label(inside)

    def close(self, following: list[str]) -> None:
        """Write the back edge, with the next values of the phis that are no names."""
        code = self._code
        values = [self._masked.values[n] for n in self.names]
        held = [v.vector or v.base for v in values]
        lines = [
            f"  {name} = phi {kind} [ {first}, %{self._before} ], [ {new}, %{code.block} ]"
            for (kind, name, first), new in zip(self._phis, [*held, *following], strict=True)
        ]
        code.do(f"br label %{self._label}")
        code.lines[self._place : self._place] = lines
        code.label(self.after)
        self._masked.values = self._values


def _twice(s: If) -> bool:
    """Whether an If is worth code for lanes that agree: it accesses memory, and is short."""
    inside = [t for block in (s.then, s.otherwise) for t in statements(block)]
    nodes = walk([e for t in inside for e in expressions(t)])
    stores = any(isinstance(t, Store) for t in inside)
    return (stores or any(e.op == "element" for e in nodes)) and len(nodes) <= TWICE and not any(map(blocks, inside))


def _cheap(body: tuple[Statement, ...]) -> bool:
    """Whether a branch is executed without a branch of the processor: it does nothing but compute a few values."""
    if not all(isinstance(s, Let | Assign) for s in body):
        return False
    nodes = walk([e for s in body for e in expressions(s)])
    return len(nodes) <= CHEAP and not any(e.op in _EXPENSIVE for e in nodes)
