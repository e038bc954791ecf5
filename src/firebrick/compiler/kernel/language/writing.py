"""Statements of kernel IR as they are written: names, lines, blocks, and what is known of variables."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from firebrick.compiler.kernel.ir import Assign, Check, If, Let, Statement, Store
from firebrick.compiler.kernel.language.bounds import IntegerFacts
from firebrick.compiler.kernel.language.homes import Home
from firebrick.compiler.kernel.language.outside import Outside, Place
from firebrick.compiler.kernel.language.source import Source
from firebrick.compiler.kernel.language.values import (
    Open,
    Origins,
    Value,
    apply,
)
from firebrick.core.dtypes import DType
from firebrick.ops.table import OPS
from firebrick.scalar.expr import Expr, local, walk


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable that is a local of the kernel.

    Attributes:
        name: In the kernel.
        dtype: What it is computed in.
        kind: bool, int or float as long as its dtype is not decided, since only Python numbers were assigned to it so far.
    """

    name: str
    dtype: DType
    kind: type | None = None

    @property
    def value(self) -> Value:
        """Its value now."""
        read = local(self.name, self.dtype.name)
        return read if self.kind is None else Open(read, self.kind)


@dataclass(slots=True)
class Frame:
    """A function that is being translated: the kernel's, or one that it calls.

    Attributes:
        source: Its text.
        path: Which call it is: what ``decided`` variables are known by.
        homes: Where its variables are defined.
        names: What its names stand for now.
        assigned: Those of its variables that have a value on all paths to here.
        counters: Names of the counters of its loops so far.
        changed: Names of the parameters that it assigns to; ``%`` and the name is the argument.
    """

    source: Source
    path: tuple[int, ...]
    homes: dict[str, Home]
    names: dict[str, Value | Variable] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)
    counters: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class ElementPlace:
    """An element of an array.

    Attributes:
        at: Its position in memory.
        inside: Whether it exists; None if that is proved.
        checks: What reports a fault if it does not.
    """

    at: Expr
    inside: Expr | None
    checks: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class CheckSite:
    """A check of a kernel.

    Attributes:
        array: The array that is indexed; empty for an assertion.
        axis: Which of its axes.
        size: Name or text of the axis's size, for assertions their message.
        line: Of the user's function.
    """

    array: str
    axis: int
    size: str
    line: str


class StatementWriter:
    """Appends statements to ``out``.

    Attributes:
        out: The block that is being written.
        facts: What is known here.
        frame: The function that is being translated.
        sites: The checks of the kernel so far.
        origins: The operations that expressions are results of.
        captures: Objects from outside of the kernel that it uses.
        known: Those to use for some places.
        initial: The arrays whose elements have values before they are stored.
        reads: The arrays that are read.
        registers: The function in which each array of registers was made.
        line: Of the statement that is being translated.
        statement: That statement.
        texts: By line and kind in kernel IR: first lines, as they were written, of statements that no operations stand for.
    """

    def __init__(self, unchecked: bool) -> None:
        self.unchecked = unchecked
        self.out: list[Statement] = []
        self.facts = IntegerFacts()
        self.frame: Frame
        self.sites: list[CheckSite] = []
        self.origins: Origins = {}
        self.captures: dict[Place, Any] = {}
        self.known = Outside()
        self.initial: set[str] = set()
        self.reads: set[str] = set()
        self.registers: dict[str, Frame] = {}
        self.line = ""
        self.statement: ast.stmt | None = None
        self.texts: dict[tuple[str, type[Statement]], str] = {}
        self._names: set[str] = set()
        self._counts: dict[str, int] = {}

    def apply(self, name: str, *operands: Value) -> Value:
        """The result of an operation of the op table, whose origin is noted."""
        return apply(OPS[name], operands, self.origins)

    # names and statements

    def fresh(self, stem: str) -> str:
        """A name of the kernel that is not in use."""
        stem = "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in stem)
        stem = stem if stem and not stem[0].isdigit() else f"_{stem}"
        name, count = stem, self._counts.get(stem, 1)
        while name in self._names:
            count += 1
            name = f"{stem}_{count}"
        self._counts[stem] = count  # all smaller ones are in use
        self._names.add(name)
        return name

    def refuse(self, node: ast.AST, expected: str, received: str, remedy: str) -> NoReturn:
        """Raise a KernelCompileError at a part of the user's function; of an assignment, at the whole statement."""
        if isinstance(getattr(node, "ctx", None), ast.Store) and isinstance(self.statement, ast.Assign | ast.AugAssign):
            node = self.statement
        self.frame.source.refuse(node, expected, received, remedy)

    def emit(self, s: Statement) -> None:
        """Append a statement."""
        self.out.append(s)
        for part in s.then if isinstance(s, If) else (s,):  # an access where its index is inside of the array
            key = part.line, type(part)
            if not isinstance(part, Let | Assign | If | Store | Check) and key not in self.texts and self.statement is not None:
                self.texts[key] = ast.unparse(self.statement).split("\n")[0]

    def block(self, write: Callable[[], None]) -> tuple[Statement, ...]:
        """The statements that a function appends."""
        outer, self.out = self.out, []
        write()
        inner, self.out = tuple(self.out), outer
        return inner

    def let(self, value: Expr, stem: str) -> Expr:
        """A value now, whatever is assigned later; constants and names that never change are taken as they are."""
        if value.op == "const" or (value.op == "local" and value.value in self.facts.fixed):
            return value
        name = self.fresh(stem)
        self.emit(Let(name, value, line=self.line))
        self.facts.fixed.add(name)
        if not reads(value):
            self.facts.define(name, value)
        return local(name, value.dtype)

    def access(self, place: ElementPlace, body: Sequence[Statement]) -> None:
        """Append statements that access an element, where it exists; elsewhere its checks report faults."""
        for s in body if place.inside is None else (If(place.inside, tuple(body), place.checks, line=self.line),):
            self.emit(s)

    def site(self, array: str, axis: int, size: str) -> int:
        """The number of a check."""
        self.sites.append(CheckSite(array, axis, size, self.line))
        return len(self.sites) - 1


def reads(e: Expr | bool) -> bool:
    """Whether an expression reads an element of an array."""
    return isinstance(e, Expr) and any(x.op == "element" for x in walk([e]))
