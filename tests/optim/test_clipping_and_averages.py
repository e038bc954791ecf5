"""Clipping of gradients and averages of parameters: torch's values, any engine, and what is refused."""

from __future__ import annotations

import math
import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest
from rounding import within

import firebrick as fb
from firebrick import nn, optim
from firebrick.core.errors import ConfigError, GradientError, OperandError

SHAPES = [(3, 2), (4,), (), (0, 3)]


class Bag(nn.Module):
    """Parameters of several shapes."""

    def __init__(self, device: Any = None, dtype: Any = None, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.p = [nn.Parameter(fb.asarray(np.asarray(rng.normal(size=s)), device=device, dtype=dtype)) for s in SHAPES]


def grads_of(bag: Bag, scale: float = 3.0) -> fb.Gradients:
    def loss(b: Bag) -> fb.Tensor:
        total = fb.sum(b.p[0] * b.p[0]) * scale
        for p in b.p[1:]:
            total = total + fb.sum(p * p) * scale
        return total

    return fb.grad(loss)(bag)


def torchs(bag: Bag, grads: fb.Gradients) -> list[Any]:
    torch = pytest.importorskip("torch", reason="torch, to compare clipping with")
    out = []
    for p in bag.p[:3]:  # torch has no largest element of no elements
        t = torch.zeros(tuple(p.shape), dtype=torch.float64)
        t.grad = torch.tensor(grads[p].numpy().copy())
        out.append(t)
    return out


@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, math.inf])
@pytest.mark.parametrize("limit", [0.5, 1e3])
def test_clip_norm_equals_torchs(limit: float, p: float, device: str) -> None:
    bag = Bag(device)
    grads = grads_of(bag)
    theirs = torchs(bag, grads)
    import torch

    want = torch.nn.utils.clip_grad_norm_(theirs, limit, norm_type=p)
    norm = optim.clip_norm(grads, limit, p=p)
    assert norm.device is fb.device(device)
    np.testing.assert_allclose(norm.item(), want.item(), rtol=1e-12)
    for q, t in zip(bag.p[:3], theirs, strict=True):
        np.testing.assert_allclose(grads[q].numpy(), t.grad.numpy(), rtol=1e-12)


def test_clip_value_equals_torchs(device: str) -> None:
    bag = Bag(device)
    grads = grads_of(bag)
    theirs = torchs(bag, grads)
    import torch

    torch.nn.utils.clip_grad_value_(theirs, 0.7)
    optim.clip_value(grads, 0.7)
    for q, t in zip(bag.p[:3], theirs, strict=True):
        np.testing.assert_array_equal(grads[q].numpy(), t.grad.numpy())


def test_the_norm_is_over_all_devices() -> None:
    bag, plain = Bag("cpu"), Bag("cpu")
    bag.p[1] = nn.Parameter(bag.p[1].to("cpu:1"))
    grads = fb.grad(lambda b: fb.sum(b.p[0] * b.p[0]) * 3.0 + (fb.sum(b.p[1] * b.p[1]) * 3.0).to("cpu:0"))(bag)
    same = fb.grad(lambda b: fb.sum(b.p[0] * b.p[0]) * 3.0 + fb.sum(b.p[1] * b.p[1]) * 3.0)(plain)
    np.testing.assert_allclose(optim.clip_norm(grads, 0.1).item(), optim.clip_norm(same, 0.1).item(), rtol=1e-15)
    assert grads[bag.p[1]].device is fb.device("cpu:1")
    np.testing.assert_allclose(grads[bag.p[1]].numpy(), same[plain.p[1]].numpy(), rtol=1e-15)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_gradients_are_measured_and_scaled_in_float32(dtype: str, device: str) -> None:
    bag = Bag(device)
    bag.p = [nn.Parameter(fb.full((1000,), 100.0, dtype=dtype, device=device))]
    grads = fb.grad(lambda b: fb.sum(b.p[0] * 300.0))(bag)
    norm = optim.clip_norm(grads, 1e-3)  # the factor itself is below what float16 can tell from 0
    assert norm.dtype is fb.float32
    within(norm, 300.0 * math.sqrt(1000.0), 8)  # of float32, as a sum
    within(grads[bag.p[0]], 1e-3 / math.sqrt(1000.0), 1)  # rounded once to the narrow dtype


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_no_number_raises_on_request_and_changes_nothing(bad: float, device: str) -> None:
    bag = Bag(device)
    grads = grads_of(bag)
    grads.replace(bag.p[1], fb.full((4,), bad, dtype=fb.float64, device=device))
    before = grads[bag.p[0]].tolist()
    with pytest.raises(GradientError, match="the norm of the gradients is finite"):
        optim.clip_norm(grads, 1.0, error_if_nonfinite=True)
    assert grads[bag.p[0]].tolist() == before
    assert not math.isfinite(optim.clip_norm(grads, 1.0).item())


def test_clipping_refuses_what_has_no_meaning() -> None:
    grads = grads_of(Bag())
    with pytest.raises(OperandError, match=r"clip_norm: grads are fb.Gradients\nReceived: dict"):
        optim.clip_norm({}, 1.0)  # type: ignore[arg-type]
    for call in (
        lambda: optim.clip_norm(grads, 0.0),
        lambda: optim.clip_value(grads, -1.0),
        lambda: optim.clip_norm(grads, 1.0, p=0.0),
    ):
        with pytest.raises(ConfigError, match="is a number > 0"):
            call()


def test_a_change_of_gradients_keeps_their_kind() -> None:
    bag = Bag()
    grads = grads_of(bag)
    with pytest.raises(fb.DTypeError, match="the shape, dtype and device it had"):
        grads.change(lambda g: fb.astype(g, fb.float32))
    with pytest.raises(fb.ShapeError, match="the shape, dtype and device it had"):
        grads.change(lambda g: g[None])
    assert grads[bag.p[0]].dtype is fb.float64


# averages


def step(bag: Bag, seed: int) -> None:
    for i, p in enumerate(bag.p):
        p._rebind(fb.asarray(np.random.default_rng(seed * 10 + i).normal(size=p.shape), dtype=p.dtype, device=p.device))


@pytest.mark.parametrize("warmup", [False, True])
def test_averages_follow_their_formula(warmup: bool, device: str) -> None:
    bag = Bag(device)
    ema = optim.EMA(bag, 0.6, warmup=warmup)
    want = [p.numpy().copy() for p in bag.p]
    for t in range(20):
        step(bag, t)
        ema.update()
        d = min(0.6, (1 + t) / (10 + t)) if warmup else 0.6
        want = [d * a + (1 - d) * p.numpy() for a, p in zip(want, bag.p, strict=True)]
    for a, got in zip(want, ema.averages.values(), strict=True):
        np.testing.assert_allclose(got.numpy(), a, rtol=1e-12)
    assert ema.step == 20


def test_averages_equal_torchs() -> None:
    torch = pytest.importorskip("torch", reason="torch, to compare averages with")
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    start = np.random.default_rng(0).normal(size=(2, 3))
    theirs = torch.nn.Linear(3, 2, bias=False, dtype=torch.float64)
    theirs.weight.data = torch.tensor(start)
    averaged = AveragedModel(theirs, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    averaged.update_parameters(theirs)  # torch's first update only copies
    layer = nn.Linear(3, 2, bias=False, dtype=fb.float64)
    layer.load_state_dict({"weight": fb.asarray(start)})
    ours = optim.EMA(layer, 0.9)
    for t in range(20):
        value = np.random.default_rng(t).normal(size=(2, 3))
        theirs.weight.data = torch.tensor(value)
        layer.load_state_dict({"weight": fb.asarray(value)})
        averaged.update_parameters(theirs)
        ours.update()
        np.testing.assert_allclose(ours.averages["weight"].numpy(), averaged.module.weight.detach().numpy(), rtol=1e-12)


def test_a_model_has_its_own_parameters_again_after_the_averages_also_after_an_error(device: str) -> None:
    bag = Bag(device)
    ema = optim.EMA(bag, 0.5)
    step(bag, 1)
    ema.update()
    own, held = [p.tolist() for p in bag.p], list(bag.p)

    def change() -> None:
        with ema.applied():
            assert bag.p[0].tolist() == ema.averages["p.0"].tolist() != own[0]
            bag.p[0] += 1.0
            raise KeyError

    with pytest.raises(KeyError):
        change()
    assert [p.tolist() for p in bag.p] == own
    assert all(a is b for a, b in zip(bag.p, held, strict=True))


@pytest.mark.parametrize("jit", [False, True])
def test_training_in_the_block_of_the_averages_raises_at_its_end_and_reading_does_not(device: str, jit: bool) -> None:
    fb.random.seed(0)
    model = nn.Linear(3, 2).to(device)
    optimizer, ema = optim.SGD(model, lr=0.1), optim.EMA(model, 0.5)
    x = fb.ones((4, 3), device=device)

    def plain(x: fb.Tensor) -> fb.Tensor:
        value, gradients = fb.value_and_grad(lambda m: fb.mean(m(x) * m(x)))(model)
        optimizer.update(model, gradients)
        return value

    train = fb.jit(plain) if jit else plain
    train(x)
    ema.update()
    own = model.weight.tolist()
    with ema.applied():
        (fb.jit(model) if jit else model)(x).numpy()
        model.astype(fb.float64).astype(fb.float32)  # shows the same values, and is given back
    assert model.weight.tolist() == own

    def within() -> None:
        with ema.applied():
            train(x)

    with pytest.raises(fb.ConfigError, match=r"changes of weight, bias, which are thrown away"):
        within()
    assert model.weight.tolist() == own


@pytest.mark.parametrize("goal", ["numpy", "torch:cpu", "float64", "float16"])
def test_a_model_that_is_moved_or_cast_among_its_averages_has_its_own_values_again_there(goal: str) -> None:
    if ":" in goal:
        pytest.importorskip("torch", reason="torch, an engine to move to")
    model = nn.Linear(2, 2)
    ema = optim.EMA(model, 0.5)
    model.weight *= 3.0
    ema.update()
    own = model.weight.tolist()
    with ema.applied():
        model.astype(goal) if "float" in goal else model.to(goal)
        averages = model.weight.tolist()
    assert goal in (model.weight.device.engine, model.weight.device.name.rsplit(":", 1)[0], model.weight.dtype.name)
    assert np.allclose(model.weight.tolist(), own, rtol=1e-3)
    assert not np.allclose(model.weight.tolist(), averages, rtol=1e-3)
    x = fb.ones((1, 2), device=model.weight.device, dtype=model.weight.dtype)
    assert np.allclose(model(x).tolist(), (np.asarray(own).sum(1) + model.bias.numpy())[None], rtol=1e-2)


def _updated(slope: fb.Tensor, model: nn.Module, change: str) -> fb.Tensor:
    model = model.fork("cpu")
    gradients = fb.grad(lambda m: fb.sum(m(fb.ones((3, 1)))) * slope)(model)
    if change == "update of constants":
        gradients.change(lambda g: g.detach())
    if change == "LBFGS.step":
        optim.LBFGS(model).step(model, lambda m: fb.sum(m(fb.ones((3, 1))) ** 2.0) * slope)
    elif change == "clip_norm":
        optim.clip_norm(gradients, 1.0)
    elif change == "clip_value":
        optim.clip_value(gradients, 1.0)
    else:
        optim.SGD(model, lr=0.1).update(model, gradients)
    return fb.sum(model(fb.ones((1, 1)))) + slope


@pytest.mark.parametrize("change", ["update", "clip_norm", "clip_value", "LBFGS.step"])
def test_an_update_within_a_function_that_is_differentiated_is_refused_not_taken_for_a_constant(change: str) -> None:
    model = nn.Linear(1, 1)
    fn, x = partial(_updated, model=model, change=change), fb.asarray(1.0)
    calls = [lambda: fb.grad(fn)(x), lambda: fb.jvp(fn, (x,), (x,))]
    if change != "LBFGS.step":  # which reads values
        calls += [lambda: fb.jit(fb.grad(fn))(x), lambda: fb.vmap(fb.grad(fn))(fb.ones(2))]
    for call in calls:
        with pytest.raises(fb.GradientError, match=rf"{change} is no operation that is differentiated[\s\S]*p - lr \* g"):
            call()
    assert fn(x).shape == ()  # by itself it is an update as any
    assert fb.grad(partial(_updated, model=model, change="update of constants"))(x).item() == 1.0


def test_averages_of_narrow_parameters_are_wide(device: str) -> None:
    bag = Bag(device, "bfloat16")
    ema = optim.EMA(bag, 0.999)
    assert ema.averages["p.0"].dtype is fb.float32
    ema.update()
    with ema.applied():
        assert bag.p[0].dtype is fb.bfloat16


def test_averages_go_with_a_model_that_moves() -> None:
    bag = Bag("cpu")
    ema = optim.EMA(bag, 0.5)
    bag.to("numpy")
    step(bag, 1)
    ema.update()
    assert ema.averages["p.0"].device is fb.device("numpy")


@pytest.mark.parametrize("through", ["tensors", "pickle"])
def test_averages_come_back_bit_for_bit(through: str) -> None:
    bag = Bag()
    ema = optim.EMA(bag, 0.7, warmup=True)
    for t in range(3):
        step(bag, t)
        ema.update()
    state = ema.state_dict()
    if through == "pickle":
        state = pickle.loads(pickle.dumps(fb.tree_map(lambda v: v.numpy() if isinstance(v, fb.Tensor) else v, state)))
    other = optim.EMA(bag, 0.1)
    other.load_state_dict(state)
    for t in range(3, 6):
        step(bag, t)
        ema.update()
        other.update()
    assert [a.numpy().tobytes() for a in ema.averages.values()] == [a.numpy().tobytes() for a in other.averages.values()]
    assert other.step == 6


def test_averages_of_another_model_are_refused() -> None:
    ema = optim.EMA(Bag())
    state = optim.EMA(nn.Linear(2, 3)).state_dict()
    with pytest.raises(nn.StateError, match=r"p\.0: not there(.|\n)*weight: there is no such parameter"):
        ema.load_state_dict(state)


def test_averages_of_other_shapes_are_refused() -> None:
    ema = optim.EMA(nn.Linear(2, 3))
    with pytest.raises(nn.StateError, match=r"weight: \[3, 4\] for \[3, 2\](.|\n)*Nothing was loaded"):
        ema.load_state_dict(optim.EMA(nn.Linear(4, 3)).state_dict())
    assert ema.averages["weight"].shape == (3, 2)


@pytest.mark.parametrize("change", [lambda s: s.pop("decay"), lambda s: s.update(decay=2.0)])
def test_an_incomplete_state_of_averages_changes_nothing(change: Any) -> None:
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    ema, state = optim.EMA(model, 0.5), optim.EMA(other, 0.9).state_dict()
    change(state)
    before = {n: a.numpy() for n, a in ema.averages.items()}
    with pytest.raises((nn.StateError, ConfigError), match="EMA: "):
        ema.load_state_dict(state)
    for n, a in ema.averages.items():
        np.testing.assert_array_equal(a.numpy(), before[n])
