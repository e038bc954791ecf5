"""Expressions of a kernel's function as scalar expressions, and the statements that must be executed before they are evaluated.

Kernel IR evaluates all expressions of a statement, and may read every element in them. So what Python evaluates only sometimes
(the right of ``and`` and ``or``, the branches of a conditional expression) becomes a branch where it reads elements.
"""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from firebrick.compiler.kernel.ir import Assign, Check, If, Let, Statement, Store
from firebrick.compiler.kernel.language.outside import Place, plain
from firebrick.compiler.kernel.language.values import (
    ArrayValue,
    Held,
    Misfit,
    Open,
    Registers,
    Value,
    Weak,
    apply,
    as_dtype,
    check_number,
    counted,
    shown,
)
from firebrick.compiler.kernel.language.writing import ElementPlace, Frame, StatementWriter, Variable, reads
from firebrick.core.dtypes import DType, dtype, int64
from firebrick.ops.table import OPS
from firebrick.scalar.expr import Expr, const, element, local, whole_number
from firebrick.scalar.storage import computed

BINARY: dict[type, str] = {
    ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.FloorDiv: "floor_divide",
    ast.Mod: "remainder", ast.Pow: "pow", ast.BitAnd: "bitwise_and", ast.BitOr: "bitwise_or", ast.BitXor: "bitwise_xor",
    ast.LShift: "bitwise_left_shift", ast.RShift: "bitwise_right_shift",
}  # fmt: skip
COMPARED: dict[type, str] = {
    ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater", ast.GtE: "greater_equal", ast.Eq: "equal",
    ast.NotEq: "not_equal",
}  # fmt: skip
UNARY: dict[type, str] = {ast.USub: "negative", ast.Invert: "bitwise_invert", ast.Not: "logical_not"}


class Expressions(StatementWriter, ABC):
    """Translates expressions. Statements that they need are appended to ``out``."""

    def settled(self, value: Value, stem: str = "v") -> Value:
        """A value that later statements do not change."""
        match value:
            case Expr():
                return self.let(value, stem)
            case Open(choice=(test, a, b)):
                return self.chosen(self.let(test, "test"), self.settled(a, stem), self.settled(b, stem))
            case Open():
                return Open(self.let(value.expr, stem), value.kind)
            case tuple():
                return tuple(self.settled(v, stem) for v in value)
        return value

    # evaluation

    def value(self, node: ast.expr) -> Value:
        """What an expression stands for."""
        rule = self._rules.get(type(node))
        if rule is None:
            expected, remedy = REFUSED.get(type(node), ("this is part of the kernel language", "see docs/kernels.md"))
            self.refuse(node, expected, "", remedy)
        try:
            return rule(self, node)
        except Misfit as e:
            self.refuse(node, *e.texts)

    def values(self, nodes: Sequence[ast.expr]) -> list[Value]:
        """What several expressions stand for, evaluated in this order."""
        out: list[Value] = []
        for node in nodes:
            mark = len(self.out)
            found = self.value(node)
            after = self.out[mark:]
            if after and any(not isinstance(s, Let | Check) for s in after):  # keep the values of those before
                del self.out[mark:]  # in place: the block stays the same list
                out = [self.settled(v) for v in out]
                self.out += after
            out.append(found)
        return out

    def number(self, node: ast.expr, what: str = "a number") -> Value:
        """A number: an expression of the kernel, or one of Python's."""
        found = self.value(node)
        if not isinstance(found, Expr | Weak | Open):
            self.refuse(node, f"{what} is needed here", shown(found), "write one")
        return found

    def condition(self, node: ast.expr) -> Expr | bool:
        """A condition; a bool where it is known already."""
        found = self.value(node)
        if isinstance(found, Weak) and isinstance(found.value, bool):
            return found.value
        if isinstance(found, Open) and found.kind is bool:
            return found.expr
        if not isinstance(found, Expr) or found.dtype != "bool":
            self.refuse(node, "a condition is bool", shown(found), f"compare: {ast.unparse(node)} != 0")
        return found

    def inner_condition(self, node: ast.expr) -> tuple[tuple[Statement, ...], Expr | bool]:
        """A condition, and the statements that it needs, as a block of their own."""
        found: list[Expr | bool] = []
        return self.block(lambda: found.append(self.condition(node))), found[0]

    def integer(self, node: ast.expr, what: str) -> Expr:
        """An integer, as int64."""
        found = self.number(node, what)
        return self.as_integer(node, found, what)

    def as_integer(self, node: ast.expr, found: Value, what: str) -> Expr:
        """A value that must be an integer, as int64."""
        if isinstance(found, Weak) and isinstance(found.value, int) and not isinstance(found.value, bool):
            return as_dtype(found, int64)
        if isinstance(found, Open) and found.kind is int:
            return as_dtype(found, int64)
        if not isinstance(found, Expr) or dtype(found.dtype).kind not in ("int", "uint"):
            self.refuse(node, f"{what} is an integer", shown(found), f"cast it: int({ast.unparse(node)})")
        return whole_number(found)

    def constant(self, node: ast.expr, what: str) -> int:
        """An integer that is known when the kernel is compiled."""
        found = self.value(node)
        if isinstance(found, Weak) and type(found.value) is int:
            return found.value
        self.refuse(
            node, f"{what} is an integer that is known when the kernel is compiled", shown(found),
            "write a number, or a parameter annotated fb.kernel.Constant[int]",
        )  # fmt: skip

    # rules

    def _constant(self, node: ast.Constant) -> Value:
        if isinstance(node.value, bool | int | float):
            return Weak(node.value)
        self.refuse(node, "a kernel computes with numbers", repr(node.value), "remove it")

    def _name(self, node: ast.Name) -> Value:
        frame = self.frame
        found = frame.names.get(node.id)
        if found is None and node.id in frame.homes:
            self.refuse(
                node, f"the variable {node.id} has a value before it is used", "none here",
                f"assign to {node.id} on each path to this line",
            )  # fmt: skip
        if found is not None:
            if node.id not in frame.assigned and node.id in frame.homes and not node.id.startswith("%"):
                self.refuse(
                    node, f"the variable {node.id} has a value on each path to here", "a path without one",
                    f"assign to {node.id} on each path to this line",
                )  # fmt: skip
            return self.read(found)
        if node.id in frame.counters:
            self.refuse(
                node, f"the counter {node.id} has a value in its loop only", "a use after the loop",
                "assign it to another variable in the loop",
            )  # fmt: skip
        known, held = frame.source.free(node.id)
        if not known:
            self.refuse(
                node, f"the name {node.id} is defined", "no parameter, variable or global of this name",
                "define it, or correct the name",
            )  # fmt: skip
        return self.captured(Place(frame.source, node.id), held)

    def read(self, found: Value | Variable) -> Value:
        """The value of a variable now."""
        if isinstance(found, Variable):
            return found.value
        if isinstance(found, tuple):
            return tuple(self.read(v) for v in found)
        return found

    def captured(self, place: Place, held: Any) -> Value:
        """An object from outside of the kernel; numbers become constants of its code."""
        held = self.captures[place] = self.known.get(place, plain(held))
        return self.constants_of(held)

    def constants_of(self, held: Any) -> Value:
        """An object that is known when the kernel is compiled."""
        if isinstance(held, bool | int | float):
            return Weak(held)
        return tuple(map(self.constants_of, held)) if isinstance(held, tuple) else Held(held)

    def _attribute(self, node: ast.Attribute) -> Value:
        of = self.value(node.value)
        if isinstance(of, ArrayValue):
            if node.attr == "shape":
                return tuple(self._size(e) for e in of.sizes)
            if node.attr == "ndim":
                return Weak(len(of.sizes))
            if node.attr == "size":
                out: Value = Weak(1)
                for e in of.sizes:
                    out = self.apply("multiply", out, self._size(e))
                return out
            self.refuse(node, "an array has shape, size and ndim", f".{node.attr}", "index the array for its elements")
        if not isinstance(of, Held):
            self.refuse(node, f"{shown(of)} has no attributes", f".{node.attr}", "call a function of firebrick or math")
        try:
            held = getattr(of.value, node.attr)
        except AttributeError:
            self.refuse(node, f"{shown(of)} has an attribute of this name", f".{node.attr}", "correct the name")
        return self.captured(Place(of.value, node.attr), held)

    @staticmethod
    def _size(e: Expr) -> Value:
        return Weak(int(e.value or 0)) if e.op == "const" else e

    def _tuple(self, node: ast.Tuple | ast.List) -> Value:
        return tuple(self.values(node.elts))

    def _binary(self, node: ast.BinOp) -> Value:
        name = BINARY.get(type(node.op))
        if name is None:
            self.refuse(node, "kernels have no products of matrices", "@", "write loops over the elements")
        a, b = self.values([node.left, node.right])
        return self.power(a, b) if name == "pow" else self.apply(name, a, b)

    def power(self, a: Value, b: Value) -> Value:
        """a ** b; squares and cubes are products."""
        if isinstance(b, Weak) and b.value in (2, 3) and not isinstance(a, Weak):
            a = self.settled(a)
            square = self.apply("multiply", a, a)
            return square if b.value == 2 else self.apply("multiply", square, a)
        return self.apply("pow", a, b)

    def _unary(self, node: ast.UnaryOp) -> Value:
        found = self.value(node.operand)
        if isinstance(node.op, ast.UAdd):
            return self.apply("add", found, Weak(0))
        if isinstance(node.op, ast.Not):
            truth = self.condition(node.operand) if not isinstance(found, Expr | Weak | Open) else found
            if isinstance(truth, Expr) and truth.dtype != "bool":
                self.refuse(node, "a condition is bool", shown(truth), "compare: x == 0")
            return self.apply("logical_not", truth)  # type: ignore[arg-type]
        return self.apply(UNARY[type(node.op)], found)

    def _compare(self, node: ast.Compare) -> Value:
        for op in node.ops:
            if type(op) not in COMPARED:
                self.refuse(node, "comparisons are <, <=, >, >=, == and !=", "", "compare numbers")
        operands = self.values([node.left, *node.comparators])
        out: Value | None = None
        for op, a, b in zip(node.ops, operands, operands[1:], strict=False):
            found = self.apply(COMPARED[type(op)], a, b)
            out = found if out is None else self.apply("logical_and", out, found)
        assert out is not None
        return out

    def _bool(self, node: ast.BoolOp) -> Value:
        is_and = isinstance(node.op, ast.And)
        out = self.condition(node.values[0])
        for k, part in enumerate(node.values[1:]):
            if isinstance(out, bool):
                if out is not is_and:  # and of False, or of True: the rest is not evaluated
                    return Weak(out)
                out = self.condition(part)
                continue
            left = out
            with self.facts.scope():
                self.facts.holds(left, is_and)
                inner, found = self.inner_condition(part)
            if isinstance(found, bool):
                if found is is_and:
                    continue
                if k == len(node.values) - 2 and not inner:
                    return Weak(found)
                found = const(found, "bool")
            if not inner and not reads(found):
                both = self.apply("logical_and" if is_and else "logical_or", left, found)
                assert isinstance(both, Expr)
                out = both
                continue
            name = self.fresh("both" if is_and else "either")
            self.emit(Let(name, left, line=self.line))
            body = (*inner, Assign(name, found, line=self.line))
            run = local(name, "bool") if is_and else _not(local(name, "bool"))
            self.emit(If(run, body, line=self.line))
            out = local(name, "bool")
        return Weak(out) if isinstance(out, bool) else out

    def _conditional(self, node: ast.IfExp) -> Value:
        test = self.condition(node.test)
        if isinstance(test, bool):
            return self.value(node.body if test else node.orelse)
        found: list[Value] = []
        blocks = []
        for truth, part in ((True, node.body), (False, node.orelse)):
            with self.facts.scope():
                self.facts.holds(test, truth)
                blocks.append(self.block(partial(self._value_to, part, found)))
        sides = [v if isinstance(v, tuple) else (v,) for v in found]
        if len(sides[0]) != len(sides[1]) or isinstance(found[0], tuple) != isinstance(found[1], tuple):
            self.refuse(node, "two numbers, or tuples of equally many", " and ".join(map(shown, found)), "write equally many")
        for v in (*sides[0], *sides[1]):
            if not isinstance(v, Expr | Weak | Open):
                self.refuse(node, "a number is needed here", shown(v), "write one")
        out = [self.chosen(test, a, b) for a, b in zip(*sides, strict=True)]
        if any(blocks) or any(
            reads(v.expr if isinstance(v, Open) else v) for v in (*sides[0], *sides[1]) if not isinstance(v, Weak)
        ):
            out = self._by_branches(test, blocks, sides, out)
        return tuple(out) if isinstance(found[0], tuple) else out[0]

    def _by_branches(
        self, test: Expr, blocks: Sequence[tuple[Statement, ...]], sides: Sequence[tuple[Value, ...]], like: Sequence[Value]
    ) -> list[Value]:
        """One of two tuples, whose elements only a branch may evaluate."""
        out: list[Value] = []
        made: list[list[Statement]] = [list(b) for b in blocks]
        for k, both in enumerate(like):
            e = both.expr if isinstance(both, Open) else both
            assert isinstance(e, Expr)
            name = self.fresh("chosen")
            self.emit(Let(name, const(0, e.dtype), line=self.line))
            for block, side in zip(made, sides, strict=True):
                block.append(Assign(name, as_dtype(side[k], dtype(e.dtype)), line=self.line))
            chosen = local(name, e.dtype)
            out.append(Open(chosen, both.kind) if isinstance(both, Open) else chosen)
        self.emit(If(test, tuple(made[0]), tuple(made[1]), line=self.line))
        return out

    def _value_to(self, node: ast.expr, found: list[Value]) -> None:
        found.append(self.value(node))

    def chosen(self, test: Expr, a: Value, b: Value) -> Value:
        """One of two numbers; of two Python numbers, the dtype is not decided."""
        both = self.apply("where", test, a, b)
        if isinstance(a, Weak | Open) and isinstance(b, Weak | Open):
            kinds = [type(v.value) if isinstance(v, Weak) else v.kind for v in (a, b)]
            assert isinstance(both, Expr | Open)
            expr = both.expr if isinstance(both, Open) else both
            return Open(expr, max(kinds, key=(bool, int, float).index), (test, a, b))
        return both

    def _subscript(self, node: ast.Subscript) -> Value:
        of = self.value(node.value)
        if isinstance(of, tuple):
            number = self.constant(node.slice, "the index of a tuple")
            if not -len(of) <= number < len(of):
                self.refuse(node, f"a tuple of {len(of)} has this element", str(number), "correct the index")
            return of[number]  # type: ignore[no-any-return]
        if isinstance(of, Registers):
            return self.read(self.register(node, of))
        if not isinstance(of, ArrayValue):
            self.refuse(node, "arrays, registers and tuples are indexed", shown(of), "index an array")
        if of.role == "Out" and of.name not in self.initial:
            self.refuse(
                node, f"{of.name} is read, so its elements have a value before", f"{of.name} is an Out without one",
                f"annotate it as InOut, or give a first value: Out[fb.{of.dtype.name}, …, 0]",
            )  # fmt: skip
        return self.element_of(node, of, self.indices(node, of))

    def element_of(self, node: ast.AST, of: ArrayValue, indices: Sequence[Expr]) -> Expr:
        """The value of an element."""
        place = self.place(node, of, indices)
        self.reads.add(of.name)
        read: Expr = element(of.name, computed(of.dtype.name), place.at)
        if place.inside is None:
            return read
        name = self.fresh(f"{of.name}_at")
        self.emit(Let(name, const(0, read.dtype), line=self.line))
        self.access(place, (Assign(name, read, line=self.line),))
        return local(name, read.dtype)

    def indices(self, node: ast.Subscript, of: ArrayValue) -> list[Expr]:
        """The indices of an element, one for each axis."""
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        for p in parts:
            if isinstance(p, ast.Slice) or (isinstance(p, ast.Constant) and p.value in (None, Ellipsis)):
                self.refuse(
                    node, "an array is indexed by an integer for each axis", ast.unparse(p), "write a loop over the elements"
                )
        found: list[tuple[ast.expr, Value]] = []
        for part, v in zip(parts, self.values(parts), strict=True):
            found += [(part, w) for w in v] if isinstance(v, tuple) else [(part, v)]
        if len(found) != len(of.sizes):
            self.refuse(
                node, f"{of.name} has {counted(len(of.sizes), 'axis')}", counted(len(found), "index"), "write an index for each"
            )  # fmt: skip
        out = []
        for axis, (part, v) in enumerate(found):
            e = self.as_integer(part, v, "an index")
            if e.op == "const" and int(e.value or 0) < 0:
                self.refuse(
                    node, "an index is at least 0: negative ones do not count from the end", str(e.value),
                    f"write {of.name}.shape[{axis}] - {-int(e.value or 0)}",
                )  # fmt: skip
            out.append(e)
        return out

    def place(self, node: ast.AST, of: ArrayValue, indices: Sequence[Expr]) -> ElementPlace:
        """Where an element lies; the access is emitted by ``access``."""
        inside: Expr | None = None
        checks: list[Statement] = []
        at: Expr | None = None
        settled = []
        for axis, (e, n) in enumerate(zip(indices, of.sizes, strict=True)):
            zero = const(0, "int64")
            if n.op == "const" and e.op == "const" and int(e.value or 0) >= int(n.value or 0):
                self.refuse(node, f"an index of {of.name} is below {n.value}", str(e.value), "correct the index")
            if not self.unchecked and not (self.facts.prove(e, zero) and self.facts.prove(n, e, -1)):
                e = self.let(e, "index")
                fits = self.facts.checked.get((e, n))
                if fits is None:
                    fits = self.let((e >= 0) & (e < n), "inside")
                    checks.append(Check(fits, self.site(of.name, axis, str(n.value)), e, line=self.line))
                    self.facts.checked[e, n] = fits  # `let` gives a name that is never assigned again
                inside = fits if inside is None else inside & fits
            settled.append(e)
        for e, n in zip(settled, of.sizes, strict=True):
            at = e if at is None else at * n + e
        return ElementPlace(const(0, "int64") if at is None else at, inside, tuple(checks))

    def store(self, node: ast.AST, of: ArrayValue, indices: Sequence[Expr], value: Value) -> None:
        """Write an element."""
        if of.role == "In":
            self.refuse(node, f"{of.name} is read only", "an assignment to its element", f"annotate {of.name} as InOut")
        want = dtype(computed(of.dtype.name))
        held = self.fitting(node, value, want, f"an element of {of.name}")
        place = self.place(node, of, indices)
        self.access(place, (Store(of.name, place.at, held, line=self.line),))

    def fitting(self, node: ast.AST, value: Value, to: DType, what: str) -> Expr:
        """A value in the dtype of what it is assigned to; only Python numbers are converted."""
        if isinstance(value, Expr) and value.dtype == to.name:
            return value
        if isinstance(value, Weak | Open):
            kind = type(value.value) if isinstance(value, Weak) else value.kind
            fits = {bool: ("bool",), int: ("int", "uint", "float"), float: ("float",)}[kind]
            if to.kind in fits:
                if kind is int and to.kind in ("int", "uint"):
                    check_number(value, to)
                return as_dtype(value, to)
        s = self.statement
        text = ast.unparse(s.value) if isinstance(s, ast.Assign) and not isinstance(s.value, ast.Tuple) else "…"
        self.refuse(node, f"{what} is {to.name}", shown(value), f"cast it: fb.{to.name}({text if len(text) < 40 else '…'})")

    def register(self, node: ast.Subscript, of: Registers) -> Value | Variable:
        """The variable of an element of registers."""
        parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        at = [self.constant(p, "an index of registers") for p in parts]
        if len(at) != len(of.shape) or any(not 0 <= i < n for i, n in zip(at, of.shape, strict=False)):
            self.refuse(node, f"registers of shape {of.shape} have this element", str(tuple(at)), "correct the index")
        return self.frame_of(of).names[".".join([of.name, *map(str, at)])]

    def frame_of(self, of: Registers) -> Frame:
        """The function whose registers these are."""
        return self.registers[of.name]

    @abstractmethod
    def _call(self, node: ast.Call) -> Value:
        """What a call stands for."""

    _rules: ClassVar[dict[type, Callable[[Any, Any], Value]]] = {
        ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.Tuple: _tuple, ast.List: _tuple,
        ast.BinOp: _binary, ast.UnaryOp: _unary, ast.Compare: _compare, ast.BoolOp: _bool, ast.IfExp: _conditional,
        ast.Subscript: _subscript, ast.Call: lambda self, node: self._call(node),
    }  # fmt: skip


REFUSED: dict[type, tuple[str, str]] = {
    ast.Lambda: ("functions of kernels are decorated with @fb.kernel.function", "define one"),
    ast.ListComp: ("kernels have no lists", "write a loop, and variables or fb.kernel.registers"),
    ast.SetComp: ("kernels have no sets", "write a loop"),
    ast.GeneratorExp: ("kernels have no generators", "write a loop"),
    ast.DictComp: ("kernels have no dictionaries", "use arrays"),
    ast.Dict: ("kernels have no dictionaries", "use arrays"),
    ast.Set: ("kernels have no sets", "use arrays"),
    ast.JoinedStr: ("kernels have no text", "remove it"),
    ast.NamedExpr: ("an assignment is a statement of its own", "assign in the line before"),
    ast.Await: ("kernels are not asynchronous", "remove it"),
    ast.Yield: ("a kernel yields nothing", "store to an Out array"),
    ast.YieldFrom: ("a kernel yields nothing", "store to an Out array"),
    ast.Starred: ("tuples are not unpacked in place", "write the elements"),
}  # fmt: skip
"""Expressions that the language does not have: what is expected, and what to do."""


def _not(e: Expr) -> Expr:
    found = apply(OPS["logical_not"], (e,))
    assert isinstance(found, Expr)
    return found
