"""The names that a kernel may still read after each statement: locals and counters, and nothing else that expressions hold."""

from __future__ import annotations

from firebrick.compiler.kernel.ir import Assign, For, If, Let, Store, While
from firebrick.compiler.kernel.live import live_after, live_at_head, live_before
from firebrick.scalar.expr import const, load, local

A, B, AT = (local(name, "int64") for name in "abi")
FOUR, ZERO = const(4, "int64"), const(0, "int64")


def test_a_statement_reads_locals_and_no_constants_or_operands() -> None:
    assert live_before(Let("c", A + B * FOUR), frozenset({"c", "d"})) == {"a", "b", "d"}
    assert live_before(Assign("a", A + FOUR), frozenset()) == {"a"}
    assert live_before(Let("c", load(0, "int64") + FOUR), frozenset({"c"})) == frozenset()
    assert live_before(Store("out", AT, B), frozenset({"out"})) == {"b", "i", "out"}


def test_names_of_a_block_live_until_they_are_read_last() -> None:
    body = (Let("a", FOUR), Let("b", A + FOUR), Store("out", A, B))
    assert live_after(body, frozenset()) == [{"a"}, {"a", "b"}, frozenset()]


def test_a_branch_reads_what_either_block_reads() -> None:
    branch = If(A < FOUR, (Store("out", ZERO, B),), (Assign("c", AT),))
    assert live_before(branch, frozenset({"c"})) == {"a", "b", "c", "i"}


def test_a_loop_may_read_in_its_next_round_what_it_has_assigned() -> None:
    counted = For("i", ZERO, B, 1, (Assign("a", A + AT),))
    assert live_at_head(counted, frozenset()) == {"a"}, "bounds are read once, before the first round"
    assert live_before(counted, frozenset({"c"})) == {"a", "b", "c"}
    assert live_at_head(While(A < B, (Assign("a", A + FOUR),)), frozenset()) == {"a", "b"}
