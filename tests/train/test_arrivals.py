"""Gradients in buckets: told of during the backward pass, once each, and the same ones that the pass returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import in_threads

import firebrick as fb
from firebrick.autodiff import reducing, set_distributed_params
from firebrick.testing import engines
from firebrick.train.parallel.arrivals import Arrivals
from firebrick.train.parallel.passes import Pass, add, take_share
from firebrick.train.parallel.sending import Sending
from firebrick.train.steps import Forward

DEVICES = [d for d in ("numpy", "cpu", "torch:cpu") if d.partition(":")[0] not in engines().missing]


class Net(fb.nn.Module):
    """Three dense layers."""

    def __init__(self, device: str = "cpu") -> None:
        fb.random.seed(5)
        self.first = fb.nn.Linear(6, 16, device=device)
        self.middle = fb.nn.Linear(16, 16, device=device)
        self.last = fb.nn.Linear(16, 3, device=device)

    def forward(self, x: Any) -> Any:
        return self.last(fb.tanh(self.middle(fb.tanh(self.first(x)))))


loss = Forward(fb.cross_entropy)


def batch(device: str = "cpu", rows: int = 10) -> tuple[fb.Tensor, fb.Tensor]:
    x = np.random.default_rng(3).normal(size=(rows, 6)).astype(np.float32)
    return fb.asarray(x, device=device), fb.asarray(x[:, :3].argmax(1), device=device)


def told(model: Any, fn: Any = loss, most: int = 200) -> tuple[Arrivals, Pass, dict[int, Any]]:
    """Arrivals, a pass that tells of them, and what is heard."""
    arrivals = Arrivals(most)
    arrivals.of(model)
    heard: dict[int, Any] = {}

    def listen(bucket: int, gradients: Any) -> None:
        assert bucket not in heard
        heard[bucket] = {n: g.numpy().copy() for n, g in gradients.items()}

    arrivals.listener = listen
    return arrivals, Pass(fn, model, False, arrivals), heard


def same(device: str, a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bits, or for kernels that are fused otherwise in stages, within float32's precision."""
    return bool(np.allclose(a, b, rtol=1e-5, atol=1e-6)) if device == "cpu" else a.tobytes() == b.tobytes()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("compiled", [False, True])
def test_buckets_are_those_of_the_gradients(device: str, compiled: bool) -> None:
    model = Net(device)
    expected = Pass(loss, model, False)(batch(device))
    arrivals, run, heard = told(model)
    assert arrivals.buckets == tuple((f"{n}.bias", f"{n}.weight") for n in ("last", "middle", "first"))
    call: Any = fb.jit(run) if compiled else run
    for _ in range(2):
        heard.clear()
        found = call(batch(device))
        assert same(device, found[0].numpy(), expected[0].numpy())
        assert sorted(heard) == [0, 1, 2]
        joined = {n: g for gradients in heard.values() for n, g in gradients.items()}
        assert list(joined) == [n for names in arrivals.buckets for n in names]
        for gradients in (found[2], expected[2]):
            assert all(same(device, joined[n], g.numpy()) for n, g in gradients.items())
            assert len(gradients) == len(joined)
        assert all(joined[n].tobytes() == g.numpy().tobytes() for n, g in found[2].items())
    if compiled:
        assert call.traces == 1
        assert "stage 3 of 3" in call.explain(batch(device))


def test_the_last_layers_are_told_of_before_the_first_one_is_reached() -> None:
    there: list[Any] = []

    def hooked(model: Any, x: Any, y: Any) -> Any:
        h = model.first(x)
        fb.register_hook(h, lambda g: there.append(sorted(heard)))
        return fb.cross_entropy(model.last(fb.tanh(model.middle(fb.tanh(h)))), y), {}

    _, run, heard = told(Net(), hooked)
    run(batch())
    assert there == [[0, 1]]
    assert sorted(heard) == [0, 1, 2]


def test_parts_are_told_of_once_as_their_sum() -> None:
    model, rows = Net("numpy"), batch("numpy")
    plain = take_share(Pass(loss, model, False), add, model, rows, 0, 3)
    arrivals, run, heard = told(model)
    for way in (run, fb.jit(run)):
        heard.clear()
        share = take_share(way, add, model, rows, 0, 3, arrivals)
        assert sorted(heard) == [0, 1, 2]
        joined = {n: g for gradients in heard.values() for n, g in gradients.items()}
        for n, g in plain.gradients.items():
            assert joined[n].tobytes() == g.numpy().tobytes() == share.gradients[n].numpy().tobytes()


def test_parameters_without_a_gradient_are_not_waited_for() -> None:
    model = Net()

    def part(model: Any, x: Any, y: Any) -> Any:
        return fb.cross_entropy(model.last(fb.tanh(model.first(x))), y), {}

    for compiled in (False, True):
        _, run, heard = told(model, part)
        (fb.jit(run) if compiled else run)(batch())
        assert {k: sorted(v) for k, v in heard.items()} == {
            0: ["last.bias", "last.weight"],
            1: [],
            2: ["first.bias", "first.weight"],
        }


def test_gradients_inside_of_the_loss_are_parts_of_it() -> None:
    """A penalty on the norm of a gradient: what is told is the gradient of the whole."""

    def penalised(model: Any, x: Any, y: Any) -> Any:
        def plain(model: Any) -> Any:
            return fb.cross_entropy(model(x), y)

        value, g = fb.value_and_grad(plain)(model)
        return value + fb.sum(g[model.last.weight] ** 2.0), {}

    model = Net("numpy")
    expected = Pass(penalised, model, False)(batch("numpy"))[2]
    for compiled in (False, True):
        _, run, heard = told(model, penalised)
        (fb.jit(run) if compiled else run)(batch("numpy"))
        joined = {n: g for gradients in heard.values() for n, g in gradients.items()}
        assert all(joined[n].tobytes() == g.numpy().tobytes() for n, g in expected.items())


def test_gradients_inside_of_a_checkpointed_part_or_a_hook_are_their_own() -> None:
    """Both run during the backward pass, when gradients are told of."""
    model = Net("numpy")
    other = fb.nn.Linear(16, 1, device="numpy")

    class Both(fb.nn.Module):
        def __init__(self) -> None:
            self.net, self.other = model, other

    both = Both()

    def inner(h: Any) -> Any:
        g = fb.grad(lambda m: fb.sum(m(h)))(both.other)  # by a part of the model that the loss does not depend on
        return h * fb.sum(g[both.other.weight].detach())

    def outer(m: Any, x: Any, y: Any) -> Any:
        h = fb.checkpoint(inner)(fb.tanh(m.net.first(x)))
        fb.register_hook(h, lambda g: fb.grad(lambda n: fb.sum(n(x)))(m.net.first) and None)
        return fb.cross_entropy(m.net.last(fb.tanh(m.net.middle(h))), y), {}

    expected = Pass(outer, both, False)(batch("numpy"))[2]
    assert "other.weight" not in expected
    _, run, heard = told(both, outer)
    run(batch("numpy"))
    joined = {n: g for gradients in heard.values() for n, g in gradients.items()}
    assert sorted(joined) == sorted(expected)
    assert all(joined[n].tobytes() == g.numpy().tobytes() for n, g in expected.items())


def test_a_compiled_call_within_reducing_is_reduced_once() -> None:
    w = set_distributed_params(fb.asarray(3.0).require_grad(), "w")
    with reducing(lambda name, g: g * 10.0):
        assert fb.backward(w * w)[w].item() == 60.0
        assert fb.backward(fb.jit(lambda x: x * x)(w))[w].item() == 60.0


def test_a_leaf_that_is_not_distributed_keeps_its_gradient_within_reducing() -> None:
    w = set_distributed_params(fb.asarray(3.0).require_grad(), "w")
    other = fb.asarray(5.0).require_grad()
    with reducing(lambda name, g: g * 10.0):
        found = fb.backward(w * other)
    assert (found[w].item(), found[other].item()) == (50.0, 3.0)


def test_parameters_that_are_tracked_already_are_no_matter() -> None:
    model = Net("numpy")
    for _, p in model.named_parameters():
        p.require_grad()
    expected = Pass(loss, model, False)(batch("numpy"))[2]
    arrivals, run, heard = told(model)
    for call in (run, fb.jit(run)):
        heard.clear()
        take_share(call, add, model, batch("numpy"), 0, 1, arrivals)
        joined = {n: g for gradients in heard.values() for n, g in gradients.items()}
        assert all(joined[n].tobytes() == g.numpy().tobytes() for n, g in expected.items())


def test_a_rank_that_left_a_step_in_its_middle_is_found_out() -> None:
    pytest.importorskip("torch")
    like = {n: fb.ones(3) for n in "abc"}

    def body(group: Any) -> str:
        if group.rank == 0:
            Sending(group, like, [["a"], ["b"], ["c"]], 0.5)(0, like)  # and no more of this step
        sending = Sending(group, like, [["a"], ["b"], ["c"]], 0.5)
        sending.rest(like, b"done")
        with pytest.raises(fb.CollectiveMismatchError) as caught:
            sending.reduced()
        if group.rank == 1:  # as many calls as the other
            with pytest.raises(fb.CollectiveMismatchError):
                group.barrier()
        return str(caught.value)

    for said in in_threads(2, body):
        assert "all_reduce(sum, noted)" in said


def test_a_frozen_layer_makes_other_buckets_and_another_graph() -> None:
    model = Net()
    arrivals, run, heard = told(model)
    call = fb.jit(run)
    call(batch())
    model.middle.freeze()
    arrivals.of(model)
    heard.clear()
    call(batch())
    assert call.traces == 2
    assert sorted(n for g in heard.values() for n in g) == ["first.bias", "first.weight", "last.bias", "last.weight"]


def test_two_gradients_of_a_model_in_one_pass_are_refused() -> None:
    model = Net()
    arrivals, _, _ = told(model)
    x, y = batch()
    differentiate = fb.value_and_grad(loss, has_aux=True)
    with arrivals.told():
        differentiate(model, x, y)
        with pytest.raises(fb.GradientError, match="finishes each gradient once"):
            differentiate(model, x, y)
