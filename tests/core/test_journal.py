"""Journals of what handles, generators and dicts were: blocks within blocks, what is put back, and what is left as it is."""

from __future__ import annotations

import gc
from typing import Any

import pytest

import firebrick as fb
from firebrick.core.commit import Commit
from firebrick.core.hooks import hooks
from firebrick.core.journal import Journal, all_or_none, correct, journaled, note_dict
from firebrick.random import Generator


def drawn(g: Generator) -> float:
    return float(g.uniform(()).item())


def failing(*steps: Any) -> None:
    def body() -> None:
        for step in steps:
            step()
        raise RuntimeError("it failed")

    with pytest.raises(RuntimeError, match="it failed"):
        all_or_none(body)


def test_handles_show_what_they_showed_before_the_first_change_in_the_block() -> None:
    x, y, other = fb.zeros(2), fb.zeros(2), fb.ones(3, dtype=fb.int32)
    x.label = "w"
    with journaled() as journal:
        x += 1.0
        x += 1.0
        y += 3.0
        x._rebind(other)
        assert {id(t) for t in journal.rebound()} == {id(x), id(y)}
        assert [(t is x or t is y, s.data.tolist()) for t, s in journal.rebound_from()] == [(True, [0.0, 0.0])] * 2
        before = hooks.version
        journal.restore()
    assert hooks.version > before  # x had another dtype and shape
    assert (x.tolist(), x.dtype, x.shape, x.label) == ([0.0, 0.0], fb.float32, (2,), "w")
    assert y.tolist() == [0.0, 0.0]
    x += 5.0
    assert len(journal.rebound()) == 2
    journal.leave()
    assert journal not in hooks.journals


def test_a_block_within_a_block_notes_in_both() -> None:
    x, y, d = fb.zeros(1), fb.zeros(1), {"a": 1}
    with journaled() as outer:
        x += 1.0
        with journaled() as inner:
            x += 1.0
            y += 1.0
            note_dict(d)
            d["a"] = 2
            inner.restore()
            assert (x.item(), y.item(), d) == (1.0, 0.0, {"a": 1})
            d["a"] = 3
        y += 7.0
        outer.restore()
    assert (x.item(), y.item(), d) == (0.0, 0.0, {"a": 1})
    x += 1.0
    assert [t is x for t in inner.rebound()] == [True, False]


def test_what_a_block_puts_back_is_noted_in_the_one_around() -> None:
    x = fb.zeros(1)
    with journaled() as first:
        x += 1.0
    with journaled() as second:
        first.restore()
        assert x.item() == 0.0
        second.restore()
    assert x.item() == 1.0


def test_a_handle_that_nothing_holds_any_more_is_not_noted_any_more() -> None:
    x, y = fb.zeros(1), fb.zeros(1)
    with journaled() as journal:
        x += 1.0
        y += 1.0
        del x
        gc.collect()
        assert [t is y for t in journal.rebound()] == [True]
        assert len(journal.rebound_from()) == 1
        journal.restore()
    assert y.item() == 0.0


def test_what_was_noted_is_corrected_in_all_blocks_where_it_is_the_value_of_a_call_that_is_over() -> None:
    x, of_call, mine = fb.zeros(1), fb.ones(1), fb.full((1,), 2.0)
    with journaled() as outer:
        x._rebind(of_call)
        with journaled() as inner:
            x._rebind(mine)
            correct(x, "storage", of_call.storage, {"storage": fb.full((1,), 9.0).storage})
            correct(x, "dtype", fb.int32, {"dtype": fb.float64})  # it showed another one
            correct(mine, "storage", mine.storage, {})  # which no block has noted
            inner.restore()
            assert (x.item(), x.dtype) == (9.0, fb.float32)
            correct(x, "storage", outer.rebound_from()[0][1], {"storage": fb.full((1,), 8.0).storage})
        outer.restore()
    assert x.item() == 8.0
    correct(x, "storage", x.storage, {})  # outside of all blocks


def test_a_failed_block_leaves_dicts_as_they_were_in_their_order() -> None:
    d, attributes = {"b": 1, "a": 2}, {"x": 1}

    def change() -> None:
        note_dict(d)
        d.pop("b")
        d["c"] = 3
        note_dict(d)
        d["a"] = 9
        commit = Commit()
        commit.call(dict.__setitem__, attributes, "x", 5)
        commit.apply()

    before = hooks.version
    failing(change)
    assert list(d.items()) == [("b", 1), ("a", 2)]
    assert attributes == {"x": 1}
    assert hooks.version > before
    all_or_none(change)
    assert (d, attributes) == ({"a": 9, "c": 3}, {"x": 5})
    note_dict(d)  # outside of all blocks


def test_a_failed_block_draws_again_what_it_drew_and_an_inner_one_too() -> None:
    g, other = Generator(3), Generator(4)
    first = drawn(Generator(3))
    failing(lambda: drawn(g), lambda: drawn(g), lambda: failing(lambda: drawn(g), lambda: drawn(other)), lambda: drawn(other))
    assert (drawn(g), drawn(other)) == (first, drawn(Generator(4)))
    second = drawn(g)
    again = Generator(3)
    assert [drawn(again) for _ in range(2)] == [first, second]


def test_a_generator_that_others_moved_meanwhile_stays_where_they_moved_it() -> None:
    g = Generator(3)

    def moved_without_a_note() -> None:
        drawn(g)
        g._counter += 1000

    failing(moved_without_a_note)
    assert g.mark()[1] >= 1000
    at = g.mark()

    def moved_in_between() -> None:
        moved_without_a_note()
        drawn(g)

    failing(moved_in_between)
    assert g.mark()[1] > at[1] + 1000


def test_draws_are_noted_only_where_it_is_asked_for() -> None:
    g = Generator(3)
    with journaled() as journal:
        drawn(g)
        mark = g.mark()
        journal.restore()
    assert g.mark() == mark
    assert Journal(draws=True)._draws == {}


@pytest.mark.parametrize("fails", [False, True])
def test_a_block_is_released_also_where_it_fails(fails: bool) -> None:
    x, released = fb.zeros(1), []

    def body() -> str:
        nonlocal x
        x += 1.0
        if fails:
            raise KeyboardInterrupt
        return "done"

    if fails:
        with pytest.raises(KeyboardInterrupt):
            all_or_none(body, lambda: released.append(x.item()))
        assert (released, x.item()) == ([1.0, 0.0], 0.0)
    else:
        assert all_or_none(body, lambda: released.append(x.item())) == "done"
        assert (released, x.item()) == ([1.0], 1.0)
    assert not hooks.journals


def test_within_a_trace_nothing_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    all_or_none(lambda: kept.append(len(hooks.journals)))
    monkeypatch.setattr(hooks, "trace", object)
    all_or_none(lambda: kept.append(len(hooks.journals)))
    monkeypatch.undo()
    assert kept == [1, 0]
