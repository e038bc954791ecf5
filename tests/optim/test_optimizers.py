"""Optimizers: torch's updates step by step in float64, whole state in and out, and refusal of what does not fit."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from combinations import turns_of

import firebrick as fb
from firebrick import nn, optim
from firebrick.core.errors import ConfigError, GradientError, OperandError, ShapeError

SHAPES = [(3, 2), (4,), ()]


class Bag(nn.Module):
    """Parameters of several shapes."""

    def __init__(self, values: list[np.ndarray], device: str = "cpu", dtype: Any = None) -> None:
        self.p = [nn.Parameter(fb.asarray(v, device=device, dtype=dtype)) for v in values]


def _values(seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.normal(size=s)) for s in SHAPES]


def _loss(bag: Bag, seed: int, skip: tuple[int, ...] = ()) -> fb.Tensor:
    """Has gradients of every size, and none for the parameters in ``skip``."""
    total = None
    for i, (p, c) in enumerate(zip(bag.p, _values(seed), strict=True)):
        if i not in skip:
            c = fb.asarray(c, device=p.device, dtype=p.dtype)
            part = fb.sum(p * c * float(10.0**-i) + 0.5 * p * p * c * c)
            total = part if total is None else total + part
    assert total is not None
    return total


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.1}),
    "sgd with momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "sgd, nesterov, decay": ("SGD", {"lr": 0.05, "momentum": 0.8, "nesterov": True, "weight_decay": 0.1}),
    "sgd, dampening": ("SGD", {"lr": 0.05, "momentum": 0.8, "dampening": 0.3}),
    "adam": ("Adam", {"lr": 0.01}),
    "adam, decay": ("Adam", {"lr": 0.02, "betas": (0.8, 0.99), "eps": 1e-4, "weight_decay": 0.1}),
    "adam without memory": ("Adam", {"lr": 0.02, "betas": (0.0, 0.9)}),
    "adam, amsgrad": ("Adam", {"lr": 0.05, "betas": (0.9, 0.7), "amsgrad": True}),
    "adamw": ("AdamW", {"lr": 0.03}),
    "adamw, strong decay": ("AdamW", {"lr": 0.03, "weight_decay": 0.5}),
    "adamw, amsgrad": ("AdamW", {"lr": 0.03, "betas": (0.9, 0.8), "amsgrad": True}),
    "adamax": ("Adamax", {"lr": 0.02}),
    "adamax, decay": ("Adamax", {"lr": 0.02, "betas": (0.7, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    "nadam": ("NAdam", {"lr": 0.02}),
    "nadam, decay": ("NAdam", {"lr": 0.02, "betas": (0.8, 0.95), "weight_decay": 0.1, "momentum_decay": 0.1}),
    "nadam, decoupled": ("NAdam", {"lr": 0.02, "weight_decay": 0.2, "decoupled": True}),
    "radam": ("RAdam", {"lr": 0.02}),
    "radam, decay": ("RAdam", {"lr": 0.02, "betas": (0.8, 0.99), "weight_decay": 0.1}),
    "radam that never adapts": ("RAdam", {"lr": 0.02, "betas": (0.9, 0.5)}),
    "radam, decoupled": ("RAdam", {"lr": 0.02, "betas": (0.8, 0.9), "weight_decay": 0.2, "decoupled": True}),
    "rmsprop": ("RMSprop", {"lr": 0.02}),
    "rmsprop with momentum": ("RMSprop", {"lr": 0.02, "alpha": 0.9, "momentum": 0.7, "weight_decay": 0.1}),
    "rmsprop, centered": ("RMSprop", {"lr": 0.02, "alpha": 0.8, "eps": 1e-3, "centered": True, "momentum": 0.5}),
    "adagrad": ("Adagrad", {"lr": 0.1}),
    "adagrad, decays": ("Adagrad", {"lr": 0.1, "lr_decay": 0.2, "weight_decay": 0.1, "initial": 0.5, "eps": 1e-3}),
    "adadelta": ("Adadelta", {}),
    "adadelta, decay": ("Adadelta", {"lr": 0.5, "rho": 0.7, "eps": 1e-3, "weight_decay": 0.1}),
    "lamb": ("LAMB", {"lr": 0.02, "weight_decay": 0.1}),
    "lamb without ratio": ("LAMB", {"lr": 0.02, "betas": (0.8, 0.9), "adapt": False}),
    "lion": ("Lion", {"lr": 0.01}),
    "lion, decay": ("Lion", {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.3}),
    "muon": ("Muon", {"lr": 0.02}),
    "muon, plain": ("Muon", {"lr": 0.02, "nesterov": False, "momentum": 0.8, "adjust": "match_rms_adamw", "weight_decay": 0.0}),
    "muon as adamw": ("Muon", {"lr": 0.02, "orthogonal": False}),
}
THEIRS = {"decoupled": "decoupled_weight_decay", "initial": "initial_accumulator_value"}  # torch's names, where they differ
OWN_REFERENCE = ("LAMB", "Lion", "Muon")  # see test_against_papers.py


@pytest.fixture
def wide_torch() -> Iterator[Any]:
    """torch with float64 for scalars: NAdam keeps its product of momenta in the default dtype."""
    torch = pytest.importorskip("torch", reason="torch, to compare optimizers with")
    torch.set_default_dtype(torch.float64)
    try:
        yield torch
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    ("case", "device"),
    turns_of([c for c, (name, _) in CASES.items() if name not in OWN_REFERENCE], ["numpy", "cpu", "torch:cpu"]),
)
def test_every_step_equals_torchs(case: str, device: str, wide_torch: Any) -> None:
    torch = wide_torch
    name, settings = CASES[case]
    bag = Bag(_values(), device)
    ours = getattr(optim, name)(bag, **settings)
    params = [torch.tensor(v, requires_grad=True) for v in _values()]
    theirs = getattr(torch.optim, name)(params, **{THEIRS.get(k, k): v for k, v in settings.items()})
    for step in range(20):
        skip = (1,) if step in (0, 3) else ()  # a parameter without gradient is left as it is, and its step count with it
        theirs.zero_grad(set_to_none=True)
        total = sum(
            (p * torch.tensor(c) * 10.0**-i + 0.5 * p * p * torch.tensor(c) ** 2).sum()
            for i, (p, c) in enumerate(zip(params, _values(step + 1), strict=True))
            if i not in skip
        )
        total.backward()
        theirs.step()
        ours.update(bag, fb.grad(lambda b, s=step, k=skip: _loss(b, s + 1, k))(bag))
        for p, q in zip(bag.p, params, strict=True):
            np.testing.assert_allclose(p.numpy(), q.detach().numpy(), rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("case", CASES)
def test_every_engine_takes_the_same_steps(case: str) -> None:
    pytest.importorskip("torch", reason="torch, as an engine")
    name, settings = CASES[case]
    ends = []
    for device in ("numpy", "cpu", "torch:cpu"):
        bag = Bag(_values(), device)
        opt = getattr(optim, name)(bag, **settings)
        for step in range(20):
            opt.update(bag, fb.grad(lambda b, s=step: _loss(b, s + 1, (1,) if s in (0, 3) else ()))(bag))
        ends.append([p.numpy() for p in bag.p])
    for other in ends[1:]:
        for a, b in zip(ends[0], other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_a_comparison_with_torch_can_fail() -> None:
    bags = [Bag(_values()) for _ in range(2)]
    for bag, eps in zip(bags, (1e-8, 1e-4), strict=True):
        opt = optim.Adam(bag, lr=0.01, eps=eps)
        opt.update(bag, fb.grad(lambda b: _loss(b, 1))(bag))
    assert np.abs(bags[0].p[2].numpy() - bags[1].p[2].numpy()).max() > 1e-9


@pytest.mark.parametrize("case", CASES)
def test_an_update_is_a_function_of_values_only_and_keeps_handles_and_labels(case: str) -> None:
    name, settings = CASES[case]
    bag = Bag(_values())
    opt = getattr(optim, name)(bag, **settings)
    held, shown = list(bag.p), [p.detach() for p in bag.p]
    before = [s.tolist() for s in shown]
    opt.update(bag, fb.grad(lambda b: _loss(b, 1))(bag))
    assert all(p is q for p, q in zip(held, bag.p, strict=True))
    assert [p.label for p in bag.p] == ["p.0", "p.1", "p.2"]
    assert [s.tolist() for s in shown] == before  # other handles still show the old values
    assert not any(p.tracked for p in bag.p)


def test_a_shared_parameter_is_updated_once() -> None:
    shared = nn.Parameter(fb.asarray([1.0]))
    model = nn.Module()
    model.a, model.b = shared, shared
    opt = optim.SGD(model, lr=1.0)
    opt.update(model, fb.grad(lambda m: fb.sum(m.a + m.b))(model))
    assert shared.tolist() == [-1.0]


def test_frozen_parameters_stay_and_train_on_when_unfrozen() -> None:
    bag = Bag(_values())
    opt = optim.Adam(bag)
    bag.p[0].frozen = True
    before = bag.p[0].tolist()
    opt.update(bag, fb.grad(lambda b: _loss(b, 1))(bag))
    assert bag.p[0].tolist() == before
    bag.p[0].frozen = False
    opt.update(bag, fb.grad(lambda b: _loss(b, 1))(bag))
    step = np.abs(bag.p[0].numpy() - np.asarray(before))
    np.testing.assert_allclose(step, 1e-3, rtol=1e-6)  # Adam's first step is lr long, whenever it comes


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_narrow_parameters_are_updated_in_float32_and_rounded_once(narrow: str) -> None:
    start = Bag([np.asarray([1.0, -2.0])] * 3, dtype=narrow)
    wide = Bag([p.detach().astype(fb.float32).numpy() for p in start.p])
    opts = [optim.Adam(b, lr=0.01) for b in (start, wide)]
    grads = [fb.grad(lambda b: fb.sum(b.p[0] * 2.0))(b) for b in (start, wide)]
    for b, opt, g in zip((start, wide), opts, grads, strict=True):
        opt.update(b, g)
    assert start.p[0].dtype.name == narrow
    assert start.p[0].tolist() == fb.astype(wide.p[0], narrow).tolist()
    assert {t.dtype.name for t in opts[0].state_dict()["moments"]["first"].values()} == {"float32"}


def test_a_model_may_move_after_its_optimizer_was_made() -> None:
    bags = [Bag(_values()) for _ in range(2)]
    opts = [optim.Adam(b, lr=0.1) for b in bags]
    for step in range(4):
        if step == 2:
            bags[1].to("numpy")
        for b, opt in zip(bags, opts, strict=True):
            opt.update(b, fb.grad(lambda b, s=step: _loss(b, s))(b))
    for p, q in zip(bags[0].p, bags[1].p, strict=True):
        assert q.device is fb.device("numpy")
        np.testing.assert_allclose(p.numpy(), q.numpy(), rtol=1e-14)


def test_a_model_on_two_devices_is_updated_where_its_parts_are() -> None:
    bag, plain = Bag(_values()), Bag(_values())
    bag.p[1] = nn.Parameter(bag.p[1].to("cpu:1"))
    opt, reference = optim.Adam(bag), optim.Adam(plain)
    reference.update(plain, fb.grad(lambda b: _loss(b, 1))(plain))
    grads = fb.grad(lambda b: _loss(b, 1, (1,)) + fb.sum(b.p[1] * b.p[1]).to("cpu:0"))(bag)
    opt.update(bag, grads)
    assert bag.p[1].device is fb.device("cpu:1")
    np.testing.assert_allclose(bag.p[0].numpy(), plain.p[0].numpy(), rtol=1e-14)


# state


@pytest.mark.turns
@pytest.mark.parametrize("through", ["tensors", "numpy and pickle"])
@pytest.mark.parametrize("case", [*CASES, "schedule"])
def test_a_resumed_run_is_bit_identical(case: str, through: str) -> None:
    name, settings = CASES.get(case, ("Adam", {"lr": optim.cosine(0.1, 20, warmup=3, final=0.01)}))

    def run(bag: Bag, opt: optim.Optimizer, steps: range) -> None:
        for step in steps:
            opt.update(bag, fb.grad(lambda b, s=step: _loss(b, s, (2,) if s == 1 else ()))(bag))

    whole = Bag(_values())
    run(whole, getattr(optim, name)(whole, **settings), range(9))
    first = Bag(_values())
    opt = getattr(optim, name)(first, **settings)
    run(first, opt, range(4))
    saved, weights = opt.state_dict(), first.state_dict()
    if through != "tensors":
        saved = pickle.loads(pickle.dumps(fb.tree_map(lambda v: v.numpy() if isinstance(v, fb.Tensor) else v, saved)))
    run(first, opt, range(4, 6))  # what happens later does not reach what was saved
    second = Bag(_values(7))
    second.load_state_dict(weights)
    resumed = getattr(optim, name)(second, lr=123.0)  # the other settings come from the state too
    resumed.load_state_dict(saved)
    assert resumed.step == 4
    run(second, resumed, range(4, 9))
    assert [p.numpy().tobytes() for p in second.p] == [p.numpy().tobytes() for p in whole.p]


def test_a_state_that_does_not_fit_is_refused_and_nothing_changed() -> None:
    bag = Bag(_values())
    opt = optim.Adam(bag)
    opt.update(bag, fb.grad(lambda b: _loss(b, 1))(bag))
    before = pickle.dumps(fb.tree_map(lambda v: v.numpy() if isinstance(v, fb.Tensor) else v, opt.state_dict()))
    with pytest.raises(nn.StateError, match=r"Adam\.load_state_dict takes the state of Adam.*\nReceived: the state of SGD"):
        opt.load_state_dict(optim.SGD(bag, lr=0.1).state_dict())
    other = Bag([np.zeros((2, 2)), np.zeros(4), np.zeros(()), np.zeros(1)][:3])
    theirs = optim.Adam(other)
    theirs.update(other, fb.grad(lambda b: fb.sum(b.p[0]))(other))
    state = theirs.state_dict()
    state["moments"]["second"]["q"] = fb.zeros(1)
    with pytest.raises(nn.StateError) as e:
        opt.load_state_dict(state)
    assert "first of p.0: [2, 2] for [3, 2]; second of p.0: [2, 2] for [3, 2]" in str(e.value)
    assert "second of q: there is no such parameter" in str(e.value)
    assert pickle.dumps(fb.tree_map(lambda v: v.numpy() if isinstance(v, fb.Tensor) else v, opt.state_dict())) == before


# what does not fit


def test_another_model_is_refused() -> None:
    model = fb.models.mlp(4, (3,), 2)
    opt = optim.SGD(model, lr=0.1)
    twin = model.fork()
    grads = fb.grad(lambda m: fb.sum(m(fb.ones((1, 4)))))(twin)
    with pytest.raises(ConfigError, match=r"SGD\.update: the model holds the parameters that the optimizer was made for"):
        opt.update(twin, grads)
    with pytest.raises(GradientError, match=r"some parameter has a gradient\nReceived: 4 gradients, none of them of these 4"):
        opt.update(model, grads)


def test_a_layer_that_was_replaced_is_noticed_by_name() -> None:
    model = fb.models.cnn(image=8)
    opt = optim.Adam(model)
    model.linear2 = nn.Linear(128, 3)
    grads = fb.grad(lambda m: fb.sum(m(fb.ones((1, 1, 8, 8)))))(model)
    before = model.conv1.weight.tolist()
    with pytest.raises(ConfigError, match=r"Received: unknown to it: linear2.weight, linear2.bias; not there: linear2.weight"):
        opt.update(model, grads)
    assert model.conv1.weight.tolist() == before


def test_gradients_are_used_once() -> None:
    model = nn.Linear(2, 1)
    opt = optim.SGD(model, lr=0.1)
    grads = fb.grad(lambda m: fb.sum(m(fb.ones((1, 2)))))(model)
    opt.update(model, grads)
    with pytest.raises(GradientError, match="rebound since by an assignment, an update"):
        opt.update(model, grads)
    assert opt.step == 1


def test_a_gradient_of_another_shape_is_refused_before_anything_changes() -> None:
    bag = Bag(_values())
    opt = optim.SGD(bag, lr=0.1)
    grads = fb.grad(lambda b: _loss(b, 1))(bag)
    grads._found[bag.p[2].leaf] = fb.ones(2, dtype=fb.float64)
    before = [p.tolist() for p in bag.p]
    with pytest.raises(ShapeError, match=r"parameter: float64\[\] on cpu:0 \(p\.2\) and gradient: float64\[2\]"):
        opt.update(bag, grads)
    assert [p.tolist() for p in bag.p] == before


def test_gradients_must_be_gradients() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(OperandError, match=r"grads are fb.Gradients\nReceived: dict"):
        optim.SGD(model, lr=0.1).update(model, {})  # type: ignore[arg-type]


def test_a_list_of_parameters_is_updated_like_a_module() -> None:
    a, b = nn.Parameter(fb.asarray([1.0])), nn.Parameter(fb.asarray([2.0]), label="b")
    model = nn.Module()
    model.a, model.b = a, b
    opt = optim.SGD([b, b], lr=1.0, momentum=0.5)
    opt.update([b], fb.grad(lambda m: fb.sum(m.a * m.b))(model))
    assert (a.tolist(), b.tolist()) == ([1.0], [1.0])
    assert list(opt.state_dict()["moments"]["momentum"]) == ["b"]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda p: optim.SGD([], lr=0.1), "an optimizer needs parameters"),
        (lambda p: optim.SGD([fb.ones(1)], lr=0.1), r"parameters are updated\nReceived: parameters\[0\]: Tensor"),
        (lambda p: optim.SGD([p], lr=-0.1), "lr is a finite number ≥ 0\nReceived: lr = -0.1"),
        (lambda p: optim.SGD([p], lr="fast"), "a learning rate is a number or a schedule"),
        (lambda p: optim.SGD([p], lr=0.1, momentum=1.0), r"SGD: momentum lies in \[0, 1\)"),
        (lambda p: optim.SGD([p], lr=0.1, nesterov=True), "SGD: nesterov needs momentum"),
        (lambda p: optim.SGD([p], lr=0.1, dampening=2.0), r"SGD: dampening lies in \[0, 1\]"),
        (lambda p: optim.SGD([p], 0.1, 0.9, nesterov=True, dampening=0.1), "SGD: nesterov has no dampening"),
        (lambda p: optim.SGD([p], lr=optim.cosine), "a learning rate is a number or a schedule"),
        (lambda p: optim.Adam([p], betas=0.9), "Adam: betas are two numbers"),
        (lambda p: optim.Adamax([p], eps=0.0), "Adamax: eps is a finite number > 0"),
        (lambda p: optim.RMSprop([p], alpha=1.0), r"RMSprop: alpha lies in \[0, 1\)"),
        (lambda p: optim.Adagrad([p], initial=-1.0), "Adagrad: initial lies in"),
        (lambda p: optim.Lion([p], betas=(1.0, 0.9)), r"Lion: betas\[0\] lies in"),
        (lambda p: optim.Muon([p], adjust="none"), 'Muon: adjust is "original"'),
        (lambda p: optim.Muon([p], steps=0), r"Muon: steps is an int in \[1, 100\)"),
        (lambda p: optim.LBFGS([p], line_search="armijo"), 'LBFGS: line_search is "strong_wolfe" or None'),
        (lambda p: optim.LBFGS([p], history=0), "LBFGS: history is an int ≥ 1"),
        (lambda p: optim.EMA([p], decay=1.0), r"EMA: decay lies in \[0, 1\)"),
        (lambda p: optim.Adam([p], betas=(0.9, 1.0)), r"Adam: betas\[1\] lies in \[0, 1\)\nReceived: betas\[1\] = 1.0"),
        (lambda p: optim.AdamW([p], eps=-1.0), "AdamW: eps lies in"),
    ],
)
def test_settings_without_meaning_are_refused(make: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make(nn.Parameter(fb.zeros(1)))


# schedules


def test_a_schedule_is_read_at_the_number_of_updates_done() -> None:
    bag = Bag([np.zeros(1)] * 3)
    opt = optim.SGD(bag, lr=lambda step: step + 1.0)
    seen = []
    for _ in range(3):
        seen.append(opt.learning_rate)
        opt.update(bag, fb.grad(lambda b: fb.sum(b.p[0]))(bag))
    assert (seen, bag.p[0].tolist(), opt.step) == ([1.0, 2.0, 3.0], [-6.0], 3)


def test_the_learning_rate_can_be_changed_between_updates() -> None:
    bag = Bag([np.zeros(1)] * 3)
    opt = optim.SGD(bag, lr=0.1)
    opt.learning_rate = 2.0
    opt.update(bag, fb.grad(lambda b: fb.sum(b.p[0]))(bag))
    assert (opt.learning_rate, bag.p[0].tolist()) == (2.0, [-2.0])


def test_step_counter_and_rate_are_tensors_on_the_parameters_device() -> None:
    seen = []

    def rate(step: fb.Tensor) -> fb.Tensor:
        seen.append((step.shape, step.dtype, step.device))
        return step * 0.0 + 0.1

    bag = Bag(_values(), "cpu:1")
    opt = optim.Adam(bag, lr=rate)
    opt.update(bag, fb.grad(lambda b: _loss(b, 1))(bag))
    assert seen == [((), fb.float64, fb.device("cpu:1"))]  # once for all parameters of a device and dtype
    assert opt.state_dict()["step"].device is fb.device("cpu:1")


def test_a_second_optimizer_counts_its_own_steps() -> None:
    first, second = Bag(_values()), Bag(_values())
    used = optim.Adam(first, lr=0.1)
    used.update(first, fb.grad(lambda b: _loss(b, 1))(first))
    assert (used.step, optim.Adam(second, lr=0.1).step) == (1, 0)


def test_a_state_with_a_part_missing_or_of_integers_is_refused_before_anything_changes() -> None:
    bag = Bag(_values())
    opt = optim.Adam(bag, lr=0.1)
    opt.update(bag, fb.grad(lambda b: _loss(b, 1))(bag))
    state = opt.state_dict()
    with pytest.raises(nn.StateError, match="no missed"):
        opt.load_state_dict({k: v for k, v in state.items() if k != "missed"})
    moment = next(iter(state["moments"]))
    whole = {n: fb.astype(t, fb.int32) for n, t in state["moments"][moment].items()}
    with pytest.raises(nn.StateError, match="int32 for float64"):
        opt.load_state_dict({**state, "moments": {**state["moments"], moment: whole}})
    assert opt.step == 1


def test_an_optimizer_that_lacks_a_part_is_refused_by_the_parts_name() -> None:
    class Half(optim.Optimizer):
        @classmethod
        def check(cls, s: object) -> None:
            """No settings."""

    with pytest.raises(TypeError, match="new_values"):
        Half(fb.nn.Linear(1, 1), 0.1, None)


@pytest.mark.parametrize(
    "name", ["Adadelta", "Adagrad", "Adam", "Adamax", "LAMB", "Lion", "Muon", "NAdam", "RAdam", "RMSprop", "SGD"]
)
def test_settings_have_the_defaults_of_their_optimizer(name: str) -> None:
    settings = getattr(optim, name)(nn.Linear(2, 2), lr=0.1).settings
    assert settings == type(settings)()


def test_the_number_of_updates_is_an_int_that_is_answered_when_called() -> None:
    optimizer = optim.SGD(nn.Linear(2, 1), lr=0.1)
    assert optimizer.step == 0
    assert json.dumps([optimizer.step + 1, optimizer.step]) == "[1, 0]"
    assert type(pickle.loads(pickle.dumps(optimizer.step))) is int
    with pytest.raises(fb.ArgumentError, match=r"write optimizer\.update\(model, gradients\)"):
        optimizer.step()  # type: ignore[operator]


def test_the_number_of_updates_under_jit_is_answered_with_how_to_update() -> None:
    optimizer = optim.SGD(nn.Linear(2, 1), lr=0.1)
    for use in (lambda o: o.step(), lambda o: o.step + 1):
        with pytest.raises(fb.DataDependentError, match=r"optimizer\.update\(model, gradients\).* optimizer\.counter"):
            fb.jit(use)(optimizer)


@pytest.mark.parametrize("make", [optim.Adagrad, optim.Muon])
def test_squares_of_gradients_that_overflow_are_no_update_of_zero(make: Any) -> None:
    """The parameter stayed as it was, in Adagrad for good."""
    model = Bag([np.ones((2, 2), np.float32)])
    grads = fb.grad(lambda m: fb.sum(m.p[0] * 1e30))(model)
    make(model, lr=0.1).update(model, grads)
    assert np.isnan(model.p[0].numpy()).all()
