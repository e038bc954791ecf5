"""Mistakes that type checkers find: both report an error on each line marked so, and on no other."""

from __future__ import annotations

from collections.abc import Callable

import firebrick as fb
from firebrick import nn


class Network(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(3, 4)

    def forward(self, x: fb.Tensor, *, twice: bool = False) -> fb.Tensor:
        return self.first(x) if twice else self.first([x])  # error


class Compiled(nn.Module):
    @fb.jit
    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return x

    @fb.jit
    def other(self, x: fb.Tensor) -> fb.Tensor:
        return x


@fb.jit
def step(x: fb.Tensor, n: int) -> fb.Tensor:
    return x * n


def loss(model: Network, x: fb.Tensor) -> fb.Tensor:
    return fb.sum(model(x))


def pair(model: Network) -> tuple[fb.Tensor, int]:
    return fb.sum(model.first.weight), 1


def text(x: fb.Tensor) -> str:
    return str(x)


x, network = fb.ones((2, 3)), Network()
nn.Linear(3, 4)(3)  # error
nn.Linear(3, 4)(x, x)  # error
nn.Linear(3, 4)()  # error
network("x")  # error
network(x, True)  # error
network(x).traces  # error
Compiled()("x")  # error
Compiled().other("x")  # error
nn.Sequential(nn.Linear(3, 4), nn.ReLU())(x).append  # error
nn.Sequential(fb.relu)  # error
function: Callable[[fb.Tensor], int] = network  # error
step(x)  # error
step(x, "n")  # error
step(x, 1).traces  # error
fb.jit(network)(1)  # error
fb.jit(3)  # error
fb.checkpoint(step)(x)  # error
fb.value_and_grad(loss)(x, x)  # error
fb.value_and_grad(loss)(nn.Linear(3, 4), x)  # error
fb.value_and_grad(loss)(network)  # error
fb.value_and_grad(pair)  # error
fb.value_and_grad(loss)(network, x)[1].shape  # error
fb.grad(text)  # error
fb.grad(loss)(network, x).shape  # error
fb.jit(fb.grad(loss))(network)  # error
fb.cat  # error
nn.ModuleList  # error
fb.optim.AdamX  # error
fb.random.rand  # error
x.unsqueeze(0)  # error
network.cuda()  # error
