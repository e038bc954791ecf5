"""``IntegerFacts``: what it proves is true of all integers that satisfy what it knows, those that wrap around among them."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import product
from random import Random
from typing import Any

import pytest

from firebrick.compiler.kernel.language.bounds import IntegerFacts
from firebrick.scalar.expr import Expr, const, node

SMALL, LARGE = ("i", "n", "k"), ("u",)
VALUES = {"small": (-3, -1, 0, 1, 2, 5), "large": (-(2**63), -(2**63) + 1, -2, 0, 1, 2, 2**62, 2**63 - 1)}
COMPARISONS = {
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b,
}  # fmt: skip


def local(name: str) -> Expr:
    return node("local", "int64", (), name)


class Known:
    """Facts, and all values that satisfy them; a name that gets another value is another axis of these."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.facts, self.scopes = rng, IntegerFacts(), ExitStack()
        self.facts.small |= set(SMALL)
        self.worlds: list[dict[str, int]] = [
            dict(zip((*SMALL, *LARGE), each, strict=True)) for each in product(*[VALUES["small"]] * len(SMALL), VALUES["large"])
        ]
        self.defined: dict[str, Expr] = {}

    def expression(self, depth: int = 2) -> Expr:
        draw = self.rng.random()
        if depth == 0 or draw < 0.3:
            return local(self.rng.choice([*SMALL, *SMALL, *LARGE, *self.defined]))
        if draw < 0.45:
            return const(self.rng.choice((-2, -1, 0, 1, 2, 3)), "int64")
        a = self.expression(depth - 1)
        if draw < 0.55:
            return node("neg", "int64", (a,))
        if draw < 0.65:
            return node("mul", "int64", (a, const(self.rng.choice((-2, 2, 3)), "int64")))
        return node(self.rng.choice(("add", "sub")), "int64", (a, self.expression(depth - 1)))

    def value(self, e: Expr, world: dict[str, int]) -> int:
        """An int64 expression, wrapping around."""
        if e.op == "const":
            return int(e.value or 0)
        if e.op == "local":
            return world[str(e.value)]
        args = [self.value(a, world) for a in e.args]
        exact = {"add": sum(args), "sub": args[0] - args[-1], "neg": -args[0], "mul": args[0] * args[-1]}[e.op]
        return (exact + 2**63) % 2**64 - 2**63

    def keep(self, fact: Any) -> None:
        self.worlds = [w for w in self.worlds if fact(w)]

    def step(self) -> None:
        kind = self.rng.choice(("know", "holds", "holds", "holds", "define", "assign", "scope"))
        if kind == "know":
            a, b, c = self.expression(), self.rng.choice([None, self.expression()]), self.rng.choice((-1, 0, 1))
            self.facts.know(a, b, c)
            self.keep(lambda w: self.value(a, w) - (0 if b is None else self.value(b, w)) + c >= 0)
        elif kind == "holds":
            condition, truth = self.condition(), self.rng.random() < 0.7
            self.facts.holds(condition, truth)
            self.keep(lambda w: self.true(condition, w) == truth)
        elif kind == "define" and len(self.defined) < 2:
            name, e = f"d{len(self.defined)}", self.expression()
            self.facts.defined[name] = self.defined[name] = e
            for w in self.worlds:
                w[name] = self.value(e, w)
        elif kind == "assign":
            name, e = self.rng.choice(SMALL), self.rng.choice([None, 0, 1, 2])
            self.facts.forget([name])
            if e is not None:
                for w in self.worlds:
                    w[name] = e
            else:
                self.worlds = [{**w, name: v} for w in self.worlds for v in (-1, 0, 4)]
        elif kind == "scope":
            self.scopes.enter_context(self.facts.scope())

    def condition(self, depth: int = 1) -> Expr:
        draw = self.rng.random()
        if depth == 0 or draw < 0.6:
            return node(self.rng.choice(tuple(COMPARISONS)), "bool", (self.expression(1), self.expression(1)))
        if draw < 0.7:
            return node("not", "bool", (self.condition(depth - 1),))
        return node(self.rng.choice(("and", "or")), "bool", (self.condition(depth - 1), self.condition(depth - 1)))

    def true(self, c: Expr, w: dict[str, int]) -> bool:
        if c.op in COMPARISONS:
            return bool(COMPARISONS[c.op](*(self.value(a, w) for a in c.args)))
        parts = [self.true(a, w) for a in c.args]
        return {"not": not parts[0], "and": all(parts), "or": any(parts)}[c.op]


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_what_is_proved_is_true_wherever_the_facts_are(first: int) -> None:
    proofs = 0
    for seed in range(first, first + 50):
        known = Known(Random(seed))
        for _ in range(known.rng.randint(1, 5)):
            known.step()
            for _ in range(6):
                a, b, c = known.expression(), known.rng.choice([None, known.expression()]), known.rng.choice((-2, -1, 0, 1))
                if known.facts.prove(a, b, c):
                    proofs += 1
                    for w in known.worlds:
                        assert known.value(a, w) - (0 if b is None else known.value(b, w)) + c >= 0, (seed, a, b, c, w)
        known.scopes.close()
    assert proofs > 20


def test_what_is_known_in_a_block_is_forgotten_behind_it() -> None:
    facts, i, n = IntegerFacts(), local("i"), local("n")
    facts.small |= {"i", "n"}
    facts.know(i)
    with facts.scope():
        facts.know(n, i, -1)
        assert facts.prove(n, i, -1)
        assert facts.prove(n)  # by both
    assert facts.prove(i)
    assert not facts.prove(n, i, -1)
    with facts.scope(forgotten=["i"]):
        assert not facts.prove(i)
    assert not facts.prove(i), "a loop gives it another value"
    facts.know(i)
    with facts.scope():
        facts.forget(["i"])
    assert not facts.prove(i), "the block gave it another value"


@pytest.mark.parametrize(("op", "truth", "proved"), [
    ("lt", True, [(1, 0, -1)]), ("le", True, [(1, 0, 0)]), ("gt", True, [(0, 1, -1)]), ("ge", True, [(0, 1, 0)]),
    ("eq", True, [(0, 1, 0), (1, 0, 0)]), ("ne", True, []),
    ("lt", False, [(0, 1, 0)]), ("le", False, [(0, 1, -1)]), ("gt", False, [(1, 0, 0)]), ("ge", False, [(1, 0, -1)]),
    ("eq", False, []), ("ne", False, [(0, 1, 0), (1, 0, 0)]),
])  # fmt: skip
def test_each_comparison_proves_what_it_says_and_no_more(op: str, truth: bool, proved: list[tuple[int, int, int]]) -> None:
    facts, names = IntegerFacts(), (local("i"), local("n"))
    facts.small |= {"i", "n"}
    facts.holds(node(op, "bool", names), truth)
    for a, b in ((0, 1), (1, 0)):
        best = min([c for x, y, c in proved if (x, y) == (a, b)], default=1 << 20)
        assert [facts.prove(names[a], names[b], c) for c in (-2, -1, 0, 1)] == [c >= best for c in (-2, -1, 0, 1)]


def test_conditions_and_defined_names_are_taken_apart() -> None:
    i, n, m = local("i"), local("n"), local("m")
    less = node("lt", "bool", (i, n))
    for condition, truth in (
        (node("and", "bool", (node("lt", "bool", (m, i)), less)), True),
        (node("or", "bool", (node("lt", "bool", (m, i)), node("ge", "bool", (i, n)))), False),
        (node("not", "bool", (node("ge", "bool", (i, n)),)), True),
        (node("local", "bool", (), "c"), True),
    ):
        facts = IntegerFacts()
        facts.small |= {"i", "n", "m"}
        facts.define("c", less)
        facts.holds(condition, truth)
        assert facts.prove(n, i, -1)
        assert not facts.prove(n, i, -2)
    wrong = IntegerFacts()
    wrong.small |= {"i", "n"}
    wrong.holds(node("or", "bool", (less, node("lt", "bool", (n, i)))))
    assert not wrong.prove(n, i, -1)


def test_sums_that_may_wrap_around_are_terms_of_their_own() -> None:
    facts, u, one = IntegerFacts(), local("u"), const(1, "int64")
    facts.know(u)
    assert facts.prove(u)
    assert not facts.prove(node("add", "int64", (u, one)))  # 2⁶³ - 1 + 1 is negative
    assert facts.form(node("mul", "int64", (local("u"), const(2, "int64")))).constant == 0
    facts.small.add("u")
    assert facts.prove(node("add", "int64", (u, one)), constant=-1)
    many = node("mul", "int64", (u, const(1 << 30, "int64")))
    assert not facts.prove(many), "products of large numbers may wrap around"
