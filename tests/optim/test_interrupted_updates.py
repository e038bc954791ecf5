"""Updates that are interrupted at every line: parameters, moments, counters and averages are those of before, or of after."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted

import firebrick as fb
from firebrick import nn, optim
from firebrick.autodiff import Gradients
from firebrick.core.tensor import Tensor
from firebrick.train import LossScaler

ENGINES = ["numpy", "cpu", "torch:cpu"]
OWN = ("optim", "core/commit.py", "core/journal.py", "core/tensor.py", "autodiff", "train/precision.py")
OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "SGD": lambda m: optim.SGD(m, 0.1, momentum=0.9),
    **{n: getattr(optim, n) for n in ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "Adadelta", "LAMB", "Lion", "Muon")},
    "RMSprop": lambda m: optim.RMSprop(m, 0.1, momentum=0.9, centered=True),
    "Adagrad": lambda m: optim.Adagrad(m, 0.1),
}

pytestmark = pytest.mark.usefixtures("numpy_kernels")


def bits(tree: Any) -> Any:
    """A tree of tensors as values that compare."""
    if isinstance(tree, dict):
        return {k: bits(v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [bits(v) for v in tree]
    return (str(tree.dtype), tree.shape, tree.numpy().tobytes()) if isinstance(tree, Tensor) else repr(tree)


def small(device: str) -> nn.Module:
    fb.random.seed(0)
    return nn.Linear(3, 2).to(device)


def gradients(model: nn.Module) -> Gradients:
    return Gradients.of([(p, p.detach() * 0.5) for p in model.parameters()])


def sweep(make: Callable[[], tuple[Callable[[], Any], Callable[[], Any]]], *files: str, step: int = 1) -> int:
    """Interrupt a call at every place; its state is the one before or the one after. Returns how many places there are.

    Args:
        make: Makes the call and the function that gives its state, always in the same state.
        files: Where to interrupt.
        step: Every how many of the places.
    """
    call, state = make()
    before = state()
    count = interrupted(call, None, *files)
    after = state()
    assert before != after
    for at in range(1, count + 1, step):
        call, state = make()
        assert state() == before
        interrupted(call, at, *files)
        assert state() in (before, after), f"at place {at} of {count}"
        assert fb.autodiff.grad_enabled()
    return count


def in_turn() -> Iterator[Any]:
    """Each optimizer on each engine: each run takes one engine, in turn, and Adam on numpy, which is interrupted everywhere."""
    for turn, name in enumerate(OPTIMIZERS):
        for k, device in enumerate(ENGINES):
            own = k == turn % len(ENGINES) or (name, device) == ("Adam", "numpy")
            yield pytest.param(name, device, marks=() if own else pytest.mark.soak)


@pytest.mark.parametrize(("name", "device"), list(in_turn()))
def test_an_interrupted_update_has_changed_all_of_its_state_or_nothing(name: str, device: str) -> None:
    model = small(device)
    values = [p.detach() for p in model.parameters()]

    def make() -> tuple[Callable[[], Any], Callable[[], Any]]:
        for p, value in zip(model.parameters(), values, strict=True):
            p._rebind(value)
        opt = OPTIMIZERS[name](model)
        grads = gradients(model)
        return lambda: opt.update(model, grads), lambda: bits([model.state_dict(), opt.state_dict()])

    # the others differ in what they compute only
    every = 1 if (name, device) == ("Adam", "numpy") else 11 if device == "numpy" else 31
    assert sweep(make, *OWN, step=every) > 100


def test_an_interrupted_update_leaves_the_counts_of_parameters_without_a_gradient() -> None:
    def make() -> tuple[Callable[[], Any], Callable[[], Any]]:
        model = small("numpy")
        opt = optim.Adam(model)
        grads = gradients(model)
        grads.remove(model.bias)
        return lambda: opt.update(model, grads), lambda: bits([model.state_dict(), opt.state_dict()])

    sweep(make, "optim", "core/commit.py")


@pytest.mark.parametrize("device", ENGINES)
def test_interrupted_averages_are_all_of_before_or_all_of_after(device: str) -> None:
    model = small(device)

    def make() -> tuple[Callable[[], Any], Callable[[], Any]]:
        ema = optim.EMA(model, 0.5, warmup=True)
        for a in ema._averages.values():
            a._rebind(a + 1.0)
        return ema.update, lambda: bits(ema.state_dict())

    sweep(make, *OWN)


def test_a_model_has_its_own_values_again_after_averages_that_were_interrupted() -> None:
    model = small("numpy")
    ema = optim.EMA(model, 0.5)
    model.load_state_dict({n: t * 2.0 for n, t in model.state_dict().items()})
    values = bits(model.state_dict())

    def applied() -> None:
        with ema.applied(checked=False):
            assert bits(model.state_dict()) != values
            model.weight[...] = model.weight * 2.0

    places = "optim", "core/commit.py"
    for at in range(1, interrupted(applied, None, *places) + 1):
        interrupted(applied, at, *places)
        assert bits(model.state_dict()) == values, f"at place {at}"


@pytest.mark.parametrize("device", ENGINES)
def test_an_interrupted_unscaling_has_changed_gradients_and_scale_or_neither(device: str) -> None:
    model = small(device)

    def make() -> tuple[Callable[[], Any], Callable[[], Any]]:
        scaler = LossScaler([fb.device(device)], scale=8.0, interval=1)
        grads = gradients(model)

        def state() -> Any:
            return bits([scaler.state_dict(), {str(i): g for i, (_, g) in enumerate(grads.items())}, grads.valid is None])

        return lambda: scaler.unscale(grads), state

    sweep(make, *OWN)


def test_an_interrupted_step_of_lbfgs_has_changed_model_and_history_or_neither() -> None:
    x = fb.asarray(np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32), device="numpy")

    def make() -> tuple[Callable[[], Any], Callable[[], Any]]:
        model = small("numpy")
        opt = optim.LBFGS(model, iterations=2, line_search="strong_wolfe")

        def state() -> Any:
            return bits([model.state_dict(), opt.state_dict()])

        return lambda: opt.step(model, lambda m: fb.mean(m(x) ** 2.0)), state

    sweep(make, "optim", "core/commit.py", "core/journal.py", step=2)


def test_a_failing_loss_leaves_lbfgs_and_its_model_as_they_were() -> None:
    model = small("numpy")
    opt = optim.LBFGS(model, iterations=3)
    calls = []

    def loss(m: nn.Module) -> fb.Tensor:
        calls.append(1)
        if len(calls) == 3:
            raise ValueError("no more data")
        return fb.mean(m(fb.ones((4, 3), device="numpy")) ** 2.0)

    before = bits([model.state_dict(), opt.state_dict()])
    with pytest.raises(ValueError, match="no more data"):
        opt.step(model, loss)
    assert bits([model.state_dict(), opt.state_dict()]) == before


@pytest.mark.parametrize("change", ["to", "astype", "load_state_dict"])
def test_a_module_that_is_moved_cast_or_loaded_is_changed_as_a_whole(change: str) -> None:
    def make() -> tuple[Callable[[], Any], Callable[[], Any]]:
        model = small("numpy")
        argument = {"to": "cpu", "astype": fb.float64, "load_state_dict": {n: t * 2.0 for n, t in model.state_dict().items()}}
        state = lambda: [(str(p.device), *bits(p)) for p in model.parameters()]  # noqa: E731
        return lambda: getattr(model, change)(argument[change]), state

    sweep(make, "nn", "core/commit.py", "core/tensor.py")
