"""Gradients that are interrupted, or whose function raises: the module, its buffers and the generators are as they were
before, and can be differentiated again."""

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted

import firebrick as fb
from firebrick import nn

ENGINES = ["numpy", "cpu", "torch:cpu"]
OWN = ("autodiff/transforms.py", "core/journal.py", "core/commit.py", "random/generator.py", "nn/normalisation.py")

pytestmark = pytest.mark.usefixtures("numpy_kernels")


class Net(nn.Module):
    """Everything that a forward pass changes: running statistics, a generator of its own and the default one."""

    def __init__(self) -> None:
        self.first, self.norm, self.second = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
        self.dropout = nn.Dropout(0.5)
        self.seen = nn.Buffer(fb.zeros(()))

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        self.seen += 1.0
        h = self.dropout(self.norm(self.first(x))) + fb.random.uniform((1, 4), device=x.device)
        self.seen += 1.0
        return self.second(h)


def built(device: str) -> tuple[Net, fb.Tensor, Callable[[], Any]]:
    fb.random.seed(0)
    model = Net().to(device)
    x = fb.asarray(np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32), device=device)

    def state() -> Any:
        generators = [fb.random.default_generator(x.device), *model.generators().values()]
        values = {n: t.numpy().tobytes() for n, t in model.state_dict().items()}
        return values, [g.mark() for g in generators], [p.tracked for p in model.parameters()], fb.autodiff.grad_enabled()

    return model, x, state


def loss(model: nn.Module, x: fb.Tensor) -> fb.Tensor:
    return fb.mean(model(x) ** 2.0)


@pytest.mark.parametrize("device", ENGINES)
def test_a_gradient_interrupted_anywhere_leaves_the_module_as_it_was_and_free(device: str) -> None:
    model, x, state = built(device)
    before, start = state(), dict(model.state_dict())
    marks = [(g, g.mark()) for g in (fb.random.default_generator(x.device), *model.generators().values())]
    step = lambda: fb.value_and_grad(loss)(model, x)  # noqa: E731
    every = 1 if device == "numpy" else 5
    places = interrupted(step, None, *OWN)
    after = state()
    assert places > 100
    assert before != after
    for at in range(1, places + 1, every):
        model.load_state_dict(start)
        for g, mark in marks:
            g.return_to(mark)
        interrupted(step, at, *OWN)
        assert state() in (before, after), f"at place {at} of {places}"
    others = Thread(target=step)  # which shares no context with this thread
    others.start()
    others.join()
    assert state() != before


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
@pytest.mark.parametrize("device", ENGINES)
def test_a_function_that_raises_changes_nothing(device: str, error: type[BaseException]) -> None:
    model, x, state = built(device)
    before = state()

    def failing(m: nn.Module, x: fb.Tensor) -> fb.Tensor:
        m(x)
        m.first.bias[...] = 0.0
        raise error

    with pytest.raises(error):
        fb.value_and_grad(failing)(model, x)
    assert state() == before
    value = fb.value_and_grad(loss)(model, x)[0].item()
    after = state()
    whole, x, state = built(device)
    assert fb.value_and_grad(loss)(whole, x)[0].item() == value
    assert state() == after


def test_a_nested_gradient_that_raises_leaves_the_outer_one_as_it_was() -> None:
    model, x, state = built("numpy")

    def inner(m: nn.Module) -> fb.Tensor:
        m(x)
        raise ValueError

    def outer(m: nn.Module) -> fb.Tensor:
        value = loss(m, x)
        with pytest.raises(ValueError):  # noqa: PT011
            fb.grad(inner)(m)
        return value

    value, grads = fb.value_and_grad(outer)(model)
    after = state()
    again, x, state = built("numpy")
    expected, theirs = fb.value_and_grad(loss)(again, x)
    assert value.item() == expected.item()
    assert after == state()
    for p, q in zip(model.parameters(), again.parameters(), strict=True):
        assert grads[p].tolist() == theirs[q].tolist()


def test_numbers_that_another_thread_drew_meanwhile_are_not_drawn_again() -> None:
    generator, drawn = fb.random.Generator(0), []
    model, _, _ = built("numpy")

    def beside() -> None:
        drawn.append(generator.uniform((2,)).tolist())

    def failing(m: nn.Module) -> fb.Tensor:
        drawn.append(generator.uniform((2,)).tolist())
        other = Thread(target=beside)
        other.start()
        other.join()
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fb.value_and_grad(failing)(model)
    assert generator.uniform((2,)).tolist() not in drawn


def test_a_destination_that_was_written_before_the_failure_has_its_values_again() -> None:
    model, _, _ = built("numpy")
    out = fb.zeros((4,), device="numpy")

    def failing(m: nn.Module) -> fb.Tensor:
        fb.add(m.first.bias.detach(), 1.0, out=out)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        fb.value_and_grad(failing)(model)
    assert out.tolist() == [0.0] * 4


def test_a_module_in_use_by_another_thread_is_still_refused() -> None:
    model, x, _ = built("numpy")
    inside, over = Event(), Event()

    def slow(m: nn.Module) -> fb.Tensor:
        value = loss(m, x)
        inside.set()
        over.wait(30)
        return value

    other = Thread(target=lambda: fb.value_and_grad(slow)(model))
    other.start()
    assert inside.wait(30)
    with pytest.raises(fb.GradientError, match="one thread at a time"):
        fb.value_and_grad(loss)(model, x)
    over.set()
    other.join()
    fb.value_and_grad(loss)(model, x)
