"""A program that type checkers accept. Where ``assert_type`` names another type than they find, they report an error; where it
names another than the value has, the test does that runs the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np

import firebrick as fb
from firebrick import nn, optim
from firebrick.data import ArrayDataset, DataLoader

x = fb.ones((2, 3, 3))


# layers and models


class Network(nn.Module):
    """What users write: no annotations but those of ``forward``."""

    def __init__(self, width: int, deep: bool = False) -> None:
        self.first = nn.Linear(3, width)
        self.pool = nn.MaxPool1d(1) if deep else nn.Identity()
        self.blocks = [nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(3)]
        self.attention = nn.MultiheadAttention(width, 1)
        self.scale = nn.Parameter(fb.ones(()))
        self.calls = nn.Buffer(fb.zeros(()))

    def forward(self, x: fb.Tensor, *, twice: bool = False) -> fb.Tensor:
        self.calls += 1.0
        x = self.pool(self.first(x))
        for block in self.blocks:
            x = block(x)
        y, _ = self.attention(x, need_weights=True)
        return self.attention(x) * self.scale + (y if twice else 0.0)


class Compiled(nn.Module):
    @fb.jit
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return x

    @fb.jit(static_argnames="times")
    def repeated(self, x: fb.Tensor, times: int = 1) -> list[fb.Tensor]:
        return [x] * times


class Recomputed(nn.Module):
    @fb.checkpoint
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return x


class Derived(nn.Linear):
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return fb.relu(super().forward(x))


class Layers(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 3), nn.ReLU())


def classifier(depth: int) -> nn.Sequential:
    return nn.Sequential(*[nn.Linear(3, 3) for _ in range(depth)])


network, some_module = Network(4), nn.Sequential(nn.Linear(3, 3))[0]
assert_type(nn.Linear(3, 3)(x), fb.Tensor)
assert_type(fb.nn.LSTM(3, 3)(x), tuple[fb.Tensor, tuple[fb.Tensor, fb.Tensor]])
assert_type(network(x), fb.Tensor)
assert_type(network(x, twice=True), fb.Tensor)
assert_type(network.train(), Network)
assert_type(network.attention(fb.ones((2, 3, 4))), fb.Tensor)
assert_type(Compiled()(x), fb.Tensor)
assert_type(Compiled().repeated(x, times=2), list[fb.Tensor])
assert_type(Compiled().repeated.traces, int)
assert_type(Recomputed()(x), fb.Tensor)
assert_type(Derived(3, 3)(x), fb.Tensor)
assert_type(Layers()(x), fb.Tensor)
assert_type(classifier(2)(x), fb.Tensor)
assert_type(nn.Sequential(nn.Linear(3, 3), nn.GELU())(x), fb.Tensor)
assert_type(nn.Sequential(nn.Linear(3, 3), nn.GRU(3, 3))(x), tuple[fb.Tensor, fb.Tensor])
assert_type(nn.MaxPool1d(2)(x), fb.Tensor)
assert_type(fb.max_pool1d(x, 2), fb.Tensor)
largest, places = nn.MaxPool1d(2, return_indices=True)(x)
function_of_tensors: Callable[[fb.Tensor], fb.Tensor] = network


def mean_of(module: nn.Module, x: fb.Tensor) -> fb.Tensor:
    """A module of which no more is known: its result is ``Any``."""
    return fb.mean(module(x))


# jit, checkpoint


@fb.jit
def squared(x: fb.Tensor, n: int = 2) -> tuple[fb.Tensor, dict[str, fb.Tensor]]:
    return x**n, {}


class Training:
    @staticmethod
    @fb.jit
    def distance(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(x * x)

    def __init__(self, model: Network) -> None:
        @fb.jit
        def step(x: fb.Tensor) -> fb.Tensor:
            return model(x)

        self.step = step


assert_type(squared(x, n=3), tuple[fb.Tensor, dict[str, fb.Tensor]])
assert_type(squared.traces, int)
assert_type(Training(network).step(x), fb.Tensor)
assert_type(Training(network).step.traces, int)
assert_type(Training.distance(x), fb.Tensor)
assert_type(fb.jit(network)(x, twice=True), fb.Tensor)
assert_type(fb.jit(fb.sin)(x), fb.Tensor)
assert_type(fb.checkpoint(network)(x), fb.Tensor)
assert_type(fb.checkpoint(squared)(x, n=3), tuple[fb.Tensor, dict[str, fb.Tensor]])


# gradients


def loss(model: Network, x: fb.Tensor, weight: float = 1.0) -> fb.Tensor:
    return fb.sum(model(x)) * weight


def loss_and_count(model: Network, x: fb.Tensor) -> tuple[fb.Tensor, int]:
    return loss(model, x), x.size


def of_pair(models: tuple[Network, nn.Linear], x: fb.Tensor) -> fb.Tensor:
    return fb.sum(models[0](x) + models[1](x))


def of_tree(weights: dict[str, fb.Tensor], x: fb.Tensor) -> fb.Tensor:
    return fb.sum(weights["a"] * x)


def of_tensors(*x: fb.Tensor) -> fb.Tensor:
    return fb.sum(x[0])


class Energy(nn.Module):
    def __init__(self) -> None:
        self.scale = nn.Parameter(fb.ones(()))

    @fb.value_and_grad
    def slope(self, x: fb.Tensor) -> fb.Tensor:
        return fb.sum(x) * self.scale


value, gradients = fb.value_and_grad(loss)(network, x, weight=2.0)
assert_type(value, fb.Tensor)
assert_type(gradients, fb.Gradients)
assert_type(gradients[network.scale], fb.Tensor)
optim.SGD(network, lr=0.1).update(network, gradients)
assert_type(fb.value_and_grad(loss_and_count, has_aux=True)(network, x), tuple[tuple[fb.Tensor, int], fb.Gradients])
assert_type(fb.value_and_grad(of_pair)((network, nn.Linear(3, 4)), x), tuple[fb.Tensor, fb.Gradients])
assert_type(fb.value_and_grad(of_tree)({"a": x}, x), tuple[fb.Tensor, dict[str, fb.Tensor]])
assert_type(fb.grad(loss)(network, x), fb.Gradients)
assert_type(fb.grad(loss_and_count, has_aux=True)(network, x), tuple[fb.Gradients, int])
assert_type(fb.grad(of_tensors)(x, x), fb.Tensor)
assert_type(fb.grad(fb.sum)(x), fb.Tensor)
assert_type(fb.jit(fb.grad(loss))(network, x), fb.Gradients)
assert_type(fb.grad(fb.jit(loss))(network, x), fb.Gradients)
assert_type(Energy().slope(x), tuple[fb.Tensor, fb.Gradients])


def unannotated() -> fb.Tensor:
    """Of lambdas nothing is known, so they may do everything; the value is a tensor still."""
    fb.grad(lambda x: fb.sum(x * x))(x)
    fb.grad(lambda x, y: fb.sum(x * y))(x, y=x)
    fb.grad(fb.grad(lambda x: x**3.0))(fb.asarray(2.0))
    fb.grad(lambda w: fb.sum(w["a"] * w["b"]))({"a": x, "b": x})["a"]
    fb.grad(lambda x: (fb.sum(x), 3), has_aux=True)(x)[1]
    fb.jit(lambda x: x.sum())(x)
    value, gradients = fb.value_and_grad(lambda model, x: fb.sum(model(x)))(network, x)
    optim.SGD(network, lr=0.1).update(network, gradients)
    return value


# control flow, contexts, data, names that are imported lazily

assert_type(fb.cond(x[0, 0, 0] > 0.0, lambda: x, lambda: -x), fb.Tensor)


def halved(total: fb.Tensor, element: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
    return total / 2.0 + element, total


assert_type(fb.scan(halved, fb.zeros(()), x[0, 0]), tuple[fb.Tensor, fb.Tensor])
fb.scan(lambda total, element: (total + element, total), fb.zeros(()), x[0, 0])[0].item()
fb.while_loop(lambda x: x < 100.0, lambda x: x * 3.0, fb.asarray(1.0)).item()


@fb.no_grad()
def predicted(x: fb.Tensor) -> fb.Tensor:
    return network.eval()(x)


assert_type(predicted(x), fb.Tensor)
loader: DataLoader[tuple[fb.Tensor, fb.Tensor]] = DataLoader(ArrayDataset(np.ones(8), np.ones(8)), batch_size=2)
for inputs, targets in loader:
    assert_type(fb.mse_loss(inputs, targets), fb.Tensor)
assert_type(loader.first(), tuple[fb.Tensor, fb.Tensor])


def any_batches(loader: DataLoader) -> list[Any]:
    return [batch for batch in loader]  # noqa: C416 - the type of a batch is Any


assert_type(fb.random.normal((2,)), fb.Tensor)
assert_type(fb.linalg.det(x), fb.Tensor)
assert_type(2 - x, fb.Tensor)
assert_type(x < 1.0, fb.Tensor)
assert_type(x.mT.sum(axis=0), fb.Tensor)
