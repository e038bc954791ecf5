"""Backward passes that run as one function: the bits of the pass node by node, and everything that looks at single steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn
from firebrick.core import planned
from firebrick.graph import replays, whole_passes
from firebrick.graph.whole_passes import PASSES

ENOUGH = planned.BEFORE + replays.BEFORE + whole_passes.MORE + 2
NEVER = 1 << 60


@pytest.fixture(autouse=True)
def no_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs of this test alone."""
    for held in (replays.RULES, replays.UPDATES):
        monkeypatch.setattr(held, "_entries", {})


def node_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_passes, "MORE", NEVER)


class Tied(nn.Module):
    """Convolution, attention, norms, and a weight that is used twice, once transposed."""

    def __init__(self) -> None:
        fb.random.seed(0)
        self.conv, self.norm = nn.Conv1d(3, 8, 3, padding=1), nn.LayerNorm(8)
        self.attend, self.square = nn.MultiheadAttention(8, 2), nn.Parameter(fb.ones((8, 8)) * 0.1)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        y = fb.permute_dims(fb.relu(self.conv(x)), (0, 2, 1))
        y = y + self.attend(self.norm(y))
        a, b = fb.split(y @ self.square, 4, axis=-1)
        return fb.mean(fb.concat([a, b * 2.0], axis=-1) @ self.square.T, axis=1)


def trained(device: str) -> list[bytes]:
    """The parameters after some steps, as bits."""
    with fb.use_device(device):
        model = Tied()
        optimizer = fb.optim.Adam(model, lr=0.01)
        rng = np.random.default_rng(0)
        x, y = fb.asarray(rng.standard_normal((2, 3, 5)), dtype=fb.float32), fb.asarray([3, 6])
        for _ in range(ENOUGH + 3):
            _, grads = fb.value_and_grad(lambda m: fb.cross_entropy(m(x), y))(model)
            optimizer.update(model, grads)
        return [p.numpy().tobytes() for p in model.parameters()]


@pytest.mark.parametrize("device", ["cpu", "numpy"])
def test_a_whole_pass_gives_the_bits_of_its_nodes(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        node_by_node(patch)
        want = trained(device)
        assert len(PASSES) == 0
    assert trained(device) == want
    assert len(PASSES) == 1


def test_a_pass_that_drops_a_sum_of_cotangents_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        node_by_node(patch)
        want = trained("cpu")
    operation = whole_passes._Writer._operation

    def first_of_two(self: Any, op: Any, operands: Any, params: Any, avals: Any) -> list[int]:
        return [operands[0]] if op.name == "add" else operation(self, op, operands, params, avals)

    monkeypatch.setattr(whole_passes._Writer, "_operation", first_of_two)
    assert trained("cpu") != want


def repeated(fn: Callable[[], Any], times: int = ENOUGH) -> Any:
    """The last result of a function that runs often enough for its passes to be functions."""
    for _ in range(times):
        found = fn()
    return found


def test_gradients_that_share_memory_are_never_written_by_each_other() -> None:
    x, y = fb.asarray([[1.0, 2.0], [3.0, 4.0]]), fb.asarray([[5.0, 6.0], [7.0, 8.0]])
    c = fb.asarray([[1.0, 2.0], [3.0, 5.0]])
    a, b = repeated(lambda: fb.grad(lambda xs: fb.sum((xs[0] + xs[1].T) * c))([x, y]))
    assert len(PASSES) == 1
    assert not a.storage.unique()
    assert not b.storage.unique()
    a += 1.0
    b *= 0.0
    assert a.tolist() == [[2.0, 3.0], [4.0, 6.0]]
    assert b.tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert c.tolist() == [[1.0, 2.0], [3.0, 5.0]]


def test_a_cotangent_that_is_the_gradient_is_not_written() -> None:
    x = fb.ones(3)
    g = fb.asarray([1.0, 2.0, 3.0])

    def pulled() -> fb.Tensor:
        _, pull = fb.vjp(lambda t: fb.reshape(fb.reshape(t, (3, 1)), (3,)) + 0.0, x)
        (found,) = pull(g)
        return found

    found = repeated(pulled)
    found += 1.0
    assert g.tolist() == [1.0, 2.0, 3.0]
    assert found.tolist() == [2.0, 3.0, 4.0]


def test_hooks_anomaly_profiles_and_checkpoints_see_each_step() -> None:
    seen: list[float] = []

    def slope(hooked: bool = False) -> float:
        x = fb.asarray(0.5).require_grad()
        y = fb.exp(x * x)
        if hooked:
            fb.register_hook(y, lambda g: seen.append(g.item()))
        return float(fb.backward(y)[x].item())

    want = slope()
    assert repeated(slope) == want
    assert len(PASSES) == 1
    assert slope(hooked=True) == want
    assert seen == [1.0]
    with fb.profile() as profile:
        assert slope() == want
    assert "multiply" in str(profile)
    with fb.checkpointing("balanced"):
        assert slope() == want
    undefined = fb.grad(lambda t: fb.sum(fb.sqrt(t) * 0.0))
    assert np.isnan(repeated(lambda: undefined(fb.zeros(2))).numpy()).all()
    with fb.detect_anomaly(), pytest.raises(fb.GradientError, match="sqrt"):
        undefined(fb.zeros(2))


def test_a_graph_is_freed_or_kept_as_node_by_node() -> None:
    def twice(keep: bool) -> tuple[float, float]:
        x = fb.asarray(0.5).require_grad()
        y = fb.exp(x * x)
        return float(fb.backward(y, retain_graph=keep)[x].item()), float(fb.backward(y)[x].item())

    first, second = repeated(lambda: twice(True))
    assert first == second
    assert len(PASSES) == 1
    with pytest.raises(fb.GradientError, match="freed"):
        twice(False)


def test_a_pass_that_fails_runs_node_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def gradient() -> list[float]:
        found: list[float] = fb.grad(lambda t: fb.sum(fb.sin(t) * t))(fb.asarray([0.5, 2.0])).tolist()
        return found

    want = repeated(gradient)
    (entry,) = (e for e in PASSES._entries.values() if type(e) is whole_passes.WholePass)
    calls = []

    def broken(natives: Any) -> Any:
        calls.append(len(natives))
        raise RuntimeError("planted")

    monkeypatch.setattr(entry, "_run", broken)
    assert gradient() == want
    assert len(calls) == 1


def test_tapes_of_large_results_run_node_by_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_passes, "LARGEST", 1 << 10)
    repeated(lambda: fb.grad(lambda t: fb.sum(fb.sin(t)))(fb.ones(1 << 10)))
    assert len(PASSES) == 0
    repeated(lambda: fb.grad(lambda t: fb.sum(fb.sin(t)))(fb.ones(16)))
    assert len(PASSES) == 1
    with fb.config.scope(kernel_loop_limit=99):  # engines compile with other settings
        assert len(PASSES) == 0


def test_other_shapes_and_other_leaves_have_functions_of_their_own() -> None:
    x, y = fb.asarray([1.0, 2.0]), fb.asarray([3.0, 4.0])

    def product(xs: list[fb.Tensor]) -> fb.Tensor:
        return fb.sum(xs[0] * xs[-1])

    assert [g.tolist() for g in repeated(lambda: fb.grad(product)([x, y]))] == [[3.0, 4.0], [1.0, 2.0]]
    assert [g.tolist() for g in repeated(lambda: fb.grad(product)([x]))] == [[2.0, 4.0]]
    assert repeated(lambda: fb.grad(lambda t: fb.sum(t * y))(x)).tolist() == [3.0, 4.0]
    wide = fb.ones(5)
    assert [g.tolist() for g in repeated(lambda: fb.grad(product)([wide, wide * 2.0]))] == [[2.0] * 5, [1.0] * 5]
    assert len(PASSES) == 4


def test_a_result_that_leads_to_no_leaf_has_no_gradient() -> None:
    outside = fb.asarray([2.0, 3.0]).require_grad()

    def pulled() -> list[float]:
        def function(t: fb.Tensor) -> fb.Tensor:
            return outside * 2.0 + t.detach()

        _, pull = fb.vjp(function, fb.ones(2))
        found: list[float] = pull(fb.ones(2))[0].tolist()
        return found

    assert repeated(pulled) == [0.0, 0.0]
