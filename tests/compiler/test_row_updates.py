"""Steps of descent on tables whose rows are looked up: they write the rows alone, with the bits of the dense update."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.compiler.fusion import row_updates

ROWS, RATE = 5000, 0.05


class Table(nn.Module):
    """A parameter whose rows are looked up."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.weight = nn.Parameter(fb.asarray(np.random.default_rng(0).standard_normal(shape).astype(np.float32)))


def numbers(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Indices with many repeats, some of them counted from the end."""
    found = np.random.default_rng(1).integers(-ROWS, ROWS, shape)
    flat = found.reshape(-1)
    flat[: flat.size // 3] = 7
    flat[-4:] = (-1, ROWS - 1, 0, -ROWS)
    return found


def squared(table: Table, at: fb.Tensor) -> fb.Tensor:
    found: fb.Tensor = fb.sum(fb.take(table.weight, at, axis=0) ** 3.0)
    return found


def trained(
    shape: tuple[int, ...],
    indices: tuple[int, ...],
    loss: Callable[..., fb.Tensor] = squared,
    threads: int = 1,
    kind: Any = fb.optim.SGD,
    **settings: Any,
) -> tuple[bytes, str]:  # fmt: skip
    """The parameter after some steps, and what the program does."""
    with fb.config.scope(num_threads=threads):
        table, at = Table(shape), fb.asarray(numbers(indices))
        optimizer = kind(table, lr=RATE, **settings)

        @fb.jit
        def step(at: fb.Tensor) -> fb.Tensor:
            value, grads = fb.value_and_grad(loss)(table, at)
            optimizer.update(table, grads)
            return value

        for _ in range(3):
            step(at)
        return table.weight.numpy().tobytes(), step.explain(at)


def dense(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_updates, "MINIMUM", 1 << 60)


@pytest.mark.parametrize(
    ("shape", "indices"), [((ROWS, 32), (300,)), ((ROWS, 17), (20, 30)), ((ROWS, 4, 5), (3, 2, 7)), ((100_000,), (200,))]
)
def test_rows_are_updated_with_the_bits_of_the_dense_update(
    shape: tuple[int, ...], indices: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, how = trained(shape, indices)
    assert "put_rows" in how
    assert trained(shape, indices, threads=2)[0] == found
    dense(monkeypatch)
    want, how = trained(shape, indices)
    assert "put_rows" not in how
    assert found == want


def test_the_comparison_of_bits_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = trained((ROWS, 32), (300,))
    right = row_updates._Rewriter._update

    def without_repeats(self: Any, array: int, added: Any, factor: int) -> int:
        made = right(self, array, added, factor)
        put = self.into.nodes[-1]
        difference = next(n for n in self.into.nodes if put.inputs[2] in n.results)
        product = next(n for n in self.into.nodes if difference.inputs[1] in n.results)
        product.inputs = (self.number[added.inputs[2]], product.inputs[1])  # the gradient of one index, not the sum
        return made

    monkeypatch.setattr(row_updates._Rewriter, "_update", without_repeats)
    assert trained((ROWS, 32), (300,))[0] != found


UPDATES: list[tuple[Any, dict[str, Any]]] = [
    (fb.optim.Adam, {}), (fb.optim.AdamW, {"weight_decay": 0.1}), (fb.optim.SGD, {"momentum": 0.9}),
    (fb.optim.SGD, {"weight_decay": 0.1}), (fb.optim.RMSprop, {}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "settings"), UPDATES, ids=lambda x: getattr(x, "__name__", str(x)))
@pytest.mark.parametrize(("shape", "indices"), [((ROWS, 32), (300,)), ((ROWS, 3, 5), (3, 2, 7))])
def test_updates_of_all_rows_read_the_sums_for_few_of_them(
    kind: Any, settings: dict[str, Any], shape: tuple[int, ...], indices: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found, how = trained(shape, indices, kind=kind, **settings)
    assert "take_rows" in how
    assert "without a proof" not in how
    assert "outside of them: nothing" in how
    assert trained(shape, indices, threads=2, kind=kind, **settings)[0] == found
    dense(monkeypatch)
    want, how = trained(shape, indices, kind=kind, **settings)
    assert "take_rows" not in how
    assert found == want


def test_updates_of_all_rows_are_written_over_donated_memory_and_only_after_all_checks() -> None:
    table = Table((ROWS, 32))
    optimizer = fb.optim.Adam(table, lr=RATE)

    @fb.jit
    def step(at: fb.Tensor) -> None:
        optimizer.update(table, fb.grad(squared)(table, at))

    before = table.weight.numpy().copy()
    with pytest.raises(IndexError, match="take"):
        step(fb.asarray([0, ROWS]))
    assert (table.weight.numpy() == before).all()
    assert optimizer.step == 0
    step(fb.asarray([0, ROWS - 1]))
    assert np.flatnonzero((table.weight.numpy() != before).any(1)).tolist() == [0, ROWS - 1]
    how = step.explain(fb.asarray([0, ROWS - 1]))
    assert "take_rows" in how
    memory = re.search(r"memory: at most ([\d.]+) KiB", how)
    assert memory is not None
    assert float(memory[1]) < ROWS * 32 * 4 / 1024, "an array of all rows"


def test_sums_that_are_a_result_or_short_are_an_array_of_all_rows() -> None:
    table, at = Table((ROWS, 32)).weight, fb.asarray(numbers((60,)))

    def both(table: fb.Tensor, at: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        slope = fb.grad(lambda t: fb.sum(fb.take(t, at, axis=0) ** 2.0))(table)
        return slope, table + slope * table

    assert "take_rows" not in fb.jit(both).explain(table, at)
    assert "take_rows" in fb.jit(lambda t, at: both(t, at)[1]).explain(table, at)
    line = Table((100_000,)).weight
    assert "take_rows" not in fb.jit(lambda t, at: both(t, at)[1]).explain(line, at)
    wide = fb.jit(lambda t, at: fb.sum(both(t, at)[0], axis=0))
    assert "take_rows" not in wide.explain(table, at)
    want = fb.sum(both(table, at)[0], axis=0)
    assert np.allclose(wide(table, at).numpy(), want.numpy(), rtol=1e-5, atol=1e-4)


def test_a_gradient_that_is_read_elsewhere_or_has_a_moment_is_no_update_of_rows() -> None:
    def clipped(table: Table, at: fb.Tensor) -> fb.Tensor:
        return squared(table, at) + fb.sum(table.weight)

    assert "put_rows" not in trained((ROWS, 32), (300,), momentum=0.9)[1]
    assert "put_rows" not in trained((ROWS, 32), (300,), weight_decay=0.1)[1]
    assert "put_rows" not in trained((ROWS, 32), (300,), clipped)[1]
    assert "put_rows" not in trained((ROWS, 32), (ROWS,))[1], "as many indices as rows"
    assert "put_rows" not in trained((ROWS, 8), (10,))[1], "a small table"


def test_a_table_that_is_not_donated_keeps_its_values() -> None:
    table = fb.asarray(np.random.default_rng(0).standard_normal((ROWS, 32)).astype(np.float32))
    at = fb.asarray(numbers((100,)))
    before = table.numpy().copy()

    def descended(table: fb.Tensor, at: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        slope = fb.grad(lambda t: fb.sum(fb.take(t, at, axis=0) ** 2.0))(table)
        return table - slope * 0.5, table[:3]

    compiled = fb.jit(descended)
    assert "put_rows" in compiled.explain(table, at)
    for _ in range(2):
        new, first = compiled(table, at)
        assert (table.numpy() == before).all()
        assert (first.numpy() == before[:3]).all()
        want = descended(table, at)[0]
        assert np.allclose(new.numpy(), want.numpy(), rtol=1e-6, atol=1e-6)


def test_an_index_outside_the_table_raises_and_changes_nothing() -> None:
    table = Table((ROWS, 32))
    optimizer = fb.optim.SGD(table, lr=RATE)

    @fb.jit
    def step(at: fb.Tensor) -> None:
        optimizer.update(table, fb.grad(squared)(table, at))

    before = table.weight.numpy().copy()
    with pytest.raises(IndexError):
        step(fb.asarray([0, ROWS]))
    assert (table.weight.numpy() == before).all()
    assert optimizer.step == 0
    step(fb.asarray([0, ROWS - 1]))
    changed = np.flatnonzero((table.weight.numpy() != before).any(1))
    assert changed.tolist() == [0, ROWS - 1]


def test_steps_on_rows_pass_verification_and_have_forms() -> None:
    table, at = Table((ROWS, 32)), fb.asarray(numbers((60,)))
    optimizer = fb.optim.SGD(table, lr=RATE)

    @fb.jit
    def step(at: fb.Tensor) -> None:
        optimizer.update(table, fb.grad(squared)(table, at))

    with fb.verify():
        step(at)
    forms = fb.device("cpu").backend.forms(step.graph(at), ("groups", "specs", "naive", "code"))
    assert "put_rows" in forms
