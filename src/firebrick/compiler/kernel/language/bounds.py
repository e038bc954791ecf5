"""``IntegerFacts``: what is known of integers at a place of a kernel, to prove that an index needs no check.

The facts are linear forms that are not negative: of indices of the grid, sizes, counters, and of what conditions compare. A
form is proved by subtracting at most two facts, after which a constant of at least 0 is left.

Arithmetic of int64 may wrap around, and forms do not. So a sum is taken apart only where its terms are small for certain
(indices, sizes and counters from small numbers); any other expression is a term of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from firebrick.scalar.expr import Expr, walk

_SMALL = 1 << 40
_SMALL_STEP = 1 << 8
"""The largest step of a counter that is small because nobody waits until it is not: 2^32 rounds at least."""
_ORDER = {"lt": (1, -1), "le": (1, 0), "gt": (-1, -1), "ge": (-1, 0)}
"""Comparison of a and b → the sign and the constant of the form sign · (b - a) + constant that it makes not negative."""
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True, slots=True)
class AffineForm:
    """A linear form: a constant and terms.

    Attributes:
        terms: Coefficient of each expression, none of them 0.
        constant: The constant.
    """

    terms: tuple[tuple[Expr, int], ...]
    constant: int

    def plus(self, other: AffineForm, factor: int = 1) -> AffineForm:
        """The sum with a multiple of another form."""
        terms = dict(self.terms)
        for e, c in other.terms:
            terms[e] = terms.get(e, 0) + factor * c
        return AffineForm(tuple((e, c) for e, c in terms.items() if c), self.constant + factor * other.constant)


class IntegerFacts:
    """What is known at a place of a kernel.

    Attributes:
        small: Names of integers that are small for certain.
        fixed: Names that are never assigned again.
        defined: The values of some of these.
        checked: (index, size) → the local that tells whether 0 ≤ index < size.
    """

    def __init__(self) -> None:
        self.small: set[str] = set()
        self.fixed: set[str] = set()
        self.defined: dict[str, Expr] = {}
        self.checked: dict[tuple[Expr, Expr], Expr] = {}
        self._known: list[tuple[AffineForm, frozenset[str]]] = []  # each with the names that it reads
        self._changed: list[set[str]] = []
        self._names: dict[Expr, frozenset[str]] = {}  # those that an expression reads
        self._readers: dict[str, set[str]] = {}  # names whose values read a name, or did when they were defined

    def form(self, e: Expr) -> AffineForm:
        """An int64 expression as a linear form."""
        found = self._form(e)
        return found if found is not None else AffineForm(((e, 1),), 0)

    def _form(self, e: Expr) -> AffineForm | None:
        """The form of an expression that cannot wrap around; None for others."""
        if e.dtype != "int64":
            return None
        if e.op == "const":
            value = int(e.value or 0)
            return AffineForm((), value) if abs(value) < _SMALL else None
        if e.op == "local":
            name = str(e.value)
            if name in self.defined:
                return self._form(self.defined[name])
            return AffineForm(((e, 1),), 0) if name in self.small else None
        if e.op in ("add", "sub"):
            a, b = self._form(e.args[0]), self._form(e.args[1])
            return None if a is None or b is None else _bounded(a.plus(b, 1 if e.op == "add" else -1))
        if e.op == "neg":
            a = self._form(e.args[0])
            return None if a is None else AffineForm((), 0).plus(a, -1)
        if e.op == "mul":
            a, b = self._form(e.args[0]), self._form(e.args[1])
            if a is not None and b is not None and not (a.terms and b.terms):
                return _bounded(AffineForm((), 0).plus(a, b.constant) if a.terms else AffineForm((), 0).plus(b, a.constant))
        return None

    def counts_small(self, start: Expr, step: int) -> bool:
        """Whether a counter is small for certain."""
        return abs(step) <= _SMALL_STEP and self._form(start) is not None

    def know(self, e: Expr, less: Expr | None = None, constant: int = 0) -> None:
        """Note that e - less + constant is not negative."""
        found = self.form(e).plus(AffineForm((), constant))
        if less is not None:
            found = found.plus(self.form(less), -1)
        if not any(x.op == "element" for t, _ in found.terms for x in walk([t])):  # which a store may change
            self._known.append((found, frozenset().union(*(self._read(t) for t, _ in found.terms))))

    def holds(self, condition: Expr, truth: bool = True) -> None:
        """Note that a condition is true, or false."""
        op = condition.op
        if op == "local" and str(condition.value) in self.defined:
            self.holds(self.defined[str(condition.value)], truth)
        elif op == "not" and condition.dtype == "bool":
            self.holds(condition.args[0], not truth)
        elif op == ("and" if truth else "or") and condition.dtype == "bool":
            for part in condition.args:
                self.holds(part, truth)
        elif op in _OPPOSITE and condition.args[0].dtype == "int64":
            a, b = condition.args
            op = op if truth else _OPPOSITE[op]
            if op == "eq":
                self.know(a, b)
                self.know(b, a)
            elif op in _ORDER:
                sign, constant = _ORDER[op]
                self.know(*((b, a) if sign > 0 else (a, b)), constant)

    def prove(self, e: Expr, less: Expr | None = None, constant: int = 0) -> bool:
        """Whether e - less + constant is not negative, as far as is known."""
        goal = self.form(e).plus(AffineForm((), constant))
        if less is not None:
            goal = goal.plus(self.form(less), -1)
        return self._proved(goal, 2)

    def _proved(self, goal: AffineForm, steps: int) -> bool:
        if not goal.terms:
            return goal.constant >= 0
        if not steps:
            return False
        terms = dict(goal.terms)
        for fact, _ in reversed(self._known):
            if any(terms.get(e, 0) * c > 0 for e, c in fact.terms) and self._proved(goal.plus(fact, -1), steps - 1):
                return True
        return False

    @contextmanager
    def scope(self, forgotten: Iterable[str] = ()) -> Iterator[None]:
        """A block: what is noted in it is forgotten after it; what depends on names that get other values in it, too.

        Args:
            forgotten: Names that get other values in the block; for a loop, which may execute it again.
        """
        self.forget(forgotten)
        kept, defined, small, checked = list(self._known), dict(self.defined), set(self.small), dict(self.checked)
        changed: set[str] = set()
        self._changed.append(changed)
        yield
        self._changed.pop()
        self._known, self.defined, self.small, self.checked = kept, defined, small, checked
        self.forget(changed)

    def forget(self, names: Iterable[str]) -> None:
        """Drop what depends on names that get other values."""
        gone = set(names)
        for changed in self._changed:
            changed |= gone
        if gone:
            self._known = [known for known in self._known if known[1].isdisjoint(gone)]
            for name in gone.union(*(self._readers.get(n, ()) for n in gone)):
                if name in self.defined and (name in gone or self._reads(self.defined[name], gone)):
                    del self.defined[name]

    def define(self, name: str, value: Expr) -> None:
        """Note the value of a name that is never assigned again."""
        self.defined[name] = value
        for read in self._read(value):
            self._readers.setdefault(read, set()).add(name)

    def _reads(self, e: Expr, names: set[str]) -> bool:
        return not self._read(e).isdisjoint(names)

    def _read(self, e: Expr) -> frozenset[str]:
        """The names that an expression reads."""
        found = self._names.get(e)
        if found is None:
            found = self._names[e] = frozenset(str(x.value) for x in walk([e]) if x.op == "local")
        return found


def _bounded(form: AffineForm) -> AffineForm | None:
    """A form, if its coefficients are small."""
    return form if all(abs(c) < 1 << 20 for c in (form.constant >> 20, *(c for _, c in form.terms))) else None
