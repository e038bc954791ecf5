"""Loops of a kernel's function as loops of kernel IR, or written out."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from firebrick.compiler.kernel.ir import (
    Assign,
    For,
    If,
    Let,
    While,
)
from firebrick.compiler.kernel.language import intrinsics
from firebrick.compiler.kernel.language.calls import Calls
from firebrick.compiler.kernel.language.homes import IGNORED, assigned_names
from firebrick.compiler.kernel.language.values import (
    Held,
    Weak,
    shown,
)
from firebrick.compiler.kernel.language.writing import Variable
from firebrick.scalar.expr import Expr, const, local, select


class Loops(Calls):
    """Translates loops; see ``Expressions``."""

    def __init__(self, unchecked: bool) -> None:
        super().__init__(unchecked)
        self._inner: dict[int, tuple[str, ...]] = {}  # by ``id`` of a loop's statements, which are kept alive

    def _running(self, s: ast.stmt) -> Expr | None:
        """That no statement has ended the loop; None if none can."""
        out: Expr | None = None
        for flag in getattr(s, "stopped", ()):
            found = self.frame.names[flag]
            assert isinstance(found, Variable)
            self.frame.assigned.add(flag)
            go = self.apply("logical_not", local(found.name, "bool"))
            assert isinstance(go, Expr)
            out = go if out is None else out & go
        return out

    def _changing(self, body: Sequence[ast.stmt]) -> set[str]:
        """The kernel's names of the variables that a loop's body assigns to."""
        found: set[str] = set()

        def note(v: Any) -> None:
            if isinstance(v, Variable):
                found.add(v.name)
            elif isinstance(v, tuple):
                for part in v:
                    note(part)

        for name in assigned_names(body):
            note(self.frame.names.get(name))
        for frame in {id(f): f for f in self.registers.values()}.values():
            for name, v in frame.names.items():
                if "." in name:
                    note(v)
        return found

    def while_(self, s: ast.While) -> None:
        running = self._running(s)
        before = set(self.frame.assigned)
        with self.facts.scope(self._changing(s.body)):
            tests: list[Expr | bool] = []
            with self.facts.scope():  # statements of the condition are written again, in the loop
                first = self.block(lambda: tests.append(self.condition(s.test)))
            test = tests[0]
            if test is False:
                return
            if not first:
                test = self._as_bool(test)
                self.facts.holds(test)
                inner = self.block(lambda: self.statements(s.body))
                full = test if running is None else running if test.op == "const" else running & test
                self.emit(While(full, inner, line=self.line))
            else:
                self._while_of_statements(s, running)
        self.frame.assigned = before

    def _while_of_statements(self, s: ast.While, running: Expr | None) -> None:
        """A loop whose condition reads elements: it is evaluated in the loop, as a variable."""
        name = self.fresh("again")
        go = local(name, "bool")
        self.emit(Let(name, const(True, "bool") if running is None else running, line=self.line))

        def write() -> None:
            self.emit(Assign(name, self._as_bool(self.condition(s.test)), line=self.line))
            with self.facts.scope():
                inner = self.block(lambda: self.statements(s.body))
                more = () if running is None else (Assign(name, running, line=self.line),)
                self.emit(If(go, (*inner, *more), line=self.line))

        self.emit(While(go, self.block(write), line=self.line))

    @staticmethod
    def _as_bool(e: Expr | bool) -> Expr:
        return const(e, "bool") if isinstance(e, bool) else e

    def for_(self, s: ast.For) -> None:
        over = s.iter
        target = s.target
        if isinstance(over, ast.Call):
            held = self.value(over.func)
            callee = held.value if isinstance(held, Held) else None
            if callee in (range, intrinsics.unrolled) and not over.keywords and 1 <= len(over.args) <= 3:
                if not isinstance(target, ast.Name):
                    self.refuse(target, "the counter of a loop is one name", ast.unparse(target), "write one name")
                return self._range(s, target.id, over, callee is intrinsics.unrolled)
        found = self.value(over) if not isinstance(over, ast.Call) else None
        if isinstance(found, tuple):
            return self._each(s, found)
        self.refuse(s, "a loop counts: for i in range(…), or is over a tuple", ast.unparse(over), "write range(x.shape[0])")

    def _each(self, s: ast.For, found: tuple[Any, ...]) -> None:
        """A loop over a tuple, written out."""
        if getattr(s, "stopped", ()):
            self.refuse(s, "a loop that is written out goes to its end", "break or return in it", "use an if")
        names = [x.id for x in ast.walk(s.target) if isinstance(x, ast.Name)]
        self._own_counters(s, names)
        for v in self.settled(found):  # type: ignore[union-attr]
            self._bind_counter(s.target, v)
            self._written_out(s.body)
        for name in names:
            self.frame.names.pop(name, None)

    def _own_counters(self, s: ast.For, names: Sequence[str]) -> None:
        """Check that the counters of a loop are no other variables, whose values they would replace."""
        for name in names:
            other = (
                "assigned to elsewhere" if name in self.frame.homes else "a value already" if name in self.frame.names else ""
            )
            if other and name != IGNORED:
                has = "is" if name in self.frame.homes else "has"
                self.refuse(s, "the counter of a loop is no other variable", f"{name}, which {has} {other}", "use another name")
        self.frame.counters.update(names)

    def _written_out(self, body: list[ast.stmt]) -> None:
        """One iteration of a loop that is written out: variables of blocks in it are not those of the iteration before."""
        inner = self._inner.get(id(body))
        if inner is None:
            blocks = _blocks(body)
            inner = self._inner[id(body)] = tuple(n for n, home in self.frame.homes.items() if home.block in blocks)
        for name in inner:
            self.frame.names.pop(name, None)
            self.frame.assigned.discard(name)
        self.statements(body)

    def _bind_counter(self, target: ast.expr, v: Any) -> None:
        if isinstance(target, ast.Name):
            self.frame.names[target.id] = v
        elif isinstance(target, ast.Tuple) and isinstance(v, tuple) and len(v) == len(target.elts):
            for part, w in zip(target.elts, v, strict=True):
                self._bind_counter(part, w)
        else:
            self.refuse(target, "a name for each element", shown(v), "write as many names")

    def _range(self, s: ast.For, counter: str, call: ast.Call, unrolled: bool) -> None:
        self._own_counters(s, [counter])
        if unrolled:
            if getattr(s, "stopped", ()):
                self.refuse(s, "a loop that is written out goes to its end", "break or return in it", "use an if, or range(…)")
            bounds = [self.constant(a, "a bound of an unrolled loop") for a in call.args]
            if len(bounds) == 3 and bounds[2] == 0:
                self.refuse(s, "the step of a loop is not 0", "0", "write another step")
            for k in range(*bounds):
                self.frame.names[counter] = Weak(k)
                self._written_out(s.body)
        else:
            step = self.constant(call.args[2], "the step of a loop") if len(call.args) == 3 else 1
            if step == 0:
                self.refuse(s, "the step of a loop is not 0", "0", "write another step")
            found = [
                self.as_integer(a, v, "a bound of a loop")
                for a, v in zip(call.args[:2], self.values(call.args[:2]), strict=True)
            ]
            start, stop = (const(0, "int64"), found[0]) if len(found) == 1 else found
            self._counted(s, counter, self.let(start, "start"), self.let(stop, "stop"), step)
        self.frame.names.pop(counter, None)

    def _counted(self, s: ast.For, counter: str, start: Expr, stop: Expr, step: int) -> None:
        running = self._running(s)
        before = set(self.frame.assigned)
        name = self.fresh(counter)
        at = local(name, "int64")
        changing = self._changing(s.body)
        with self.facts.scope(changing if running is None else {*changing, name}):
            small = self.facts.counts_small(start, step)
            if running is None and step > 0:
                self.facts.fixed.add(name)
                if small:
                    self.facts.small.add(name)
                self.facts.know(at, start)
                self.facts.know(stop, at, -1)
                self.frame.names[counter] = at
                inner = self.block(lambda: self.statements(s.body))
                self.emit(For(name, start, stop, step, inner, line=self.line))
            else:
                self._stepped(s, counter, name, start, stop, step, running)
        self.frame.assigned = before

    def _stepped(self, s: ast.For, counter: str, name: str, start: Expr, stop: Expr, step: int, running: Expr | None) -> None:
        """A loop that counts down, or that a statement may end: its counter is a variable."""
        at = local(name, "int64")
        self.emit(Let(name, start, line=self.line))
        more = at < stop if step > 0 else at > stop
        here = self.fresh(counter)
        self.frame.names[counter] = local(here, "int64")

        def write() -> None:
            self.emit(Let(here, at, line=self.line))
            self.facts.fixed.add(here)
            if self.facts.counts_small(start, step):
                self.facts.small.add(here)
            first, last = (start, stop) if step > 0 else (stop, start)
            value = local(here, "int64")
            self.facts.know(value, first, 0 if step > 0 else -1)
            self.facts.know(last, value, -1 if step > 0 else 0)
            self.statements(s.body)
            # the counter saturates instead of wrapping around
            limit = (1 << 63) - 1 if step > 0 else -(1 << 63)
            end = at > limit - step if step > 0 else at < limit - step
            self.emit(Assign(name, select(end, const(limit, "int64"), at + step), line=self.line))

        body = self.block(write)
        self.emit(While(more if running is None else more & running, body, line=self.line))


def _blocks(body: Sequence[ast.stmt]) -> set[int]:
    """The blocks within statements, each by its ``id``."""
    return {id(b) for s in body for x in ast.walk(s) for b in (getattr(x, "body", 0), getattr(x, "orelse", 0))}
