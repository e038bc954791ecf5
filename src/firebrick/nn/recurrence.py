"""What recurrent layers and cells are made of: their parameters, and one step of each kind."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

from firebrick.core.errors import ShapeError
from firebrick.core.operands import describe, not_a_tensor
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import relu, sigmoid, tanh
from firebrick.functions.linear import matmul
from firebrick.functions.movement import matrix_transpose, split
from firebrick.nn import initial
from firebrick.nn.module import Module
from firebrick.nn.parameter import Parameter

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], State]
NONLINEARITIES = {"tanh": tanh, "relu": relu}


class Weights(NamedTuple):
    """The parameters of one layer in one direction. Of the matrices each is a parameter [rows, columns], or a module that
    multiplies by its own weights, with their ``rows`` (as tiles of analog hardware do)."""

    ih: Parameter | Module
    hh: Parameter | Module
    bias_ih: Parameter | None
    bias_hh: Parameter | None
    hr: Parameter | Module | None

    @property
    def tensor(self) -> Tensor:
        """A parameter, by whose device those of arguments are checked."""
        return self.ih if isinstance(self.ih, Tensor) else self.ih.parameters()[0]


def times(w: Parameter | Module) -> Callable[[Tensor], Tensor]:
    """The product x Wᵀ as a function of x [rows, columns of W]."""
    if not isinstance(w, Tensor):
        return w
    transposed = matrix_transpose(w)
    return lambda x: matmul(x, transposed)


def rows_of(w: Parameter | Module) -> int:
    """Rows of a matrix of weights."""
    found: int = w.shape[0] if isinstance(w, Tensor) else vars(w)["rows"]
    return found


# one step of each kind: from the projected inputs [batch, gates · hidden] and the state to the next state


def rnn_step(w: Weights, nonlinearity: str) -> Step:
    recurrent, act = times(w.hh), NONLINEARITIES[nonlinearity]
    return lambda x, state: (act(x + recurrent(state[0])),)


def lstm_step(w: Weights) -> Step:
    recurrent, hidden = times(w.hh), rows_of(w.hh) // 4
    projection = None if w.hr is None else times(w.hr)

    def step(x: Tensor, state: State) -> State:
        h, c = state
        i, f, g, o = split(x + recurrent(h), (hidden,) * 4, axis=1)
        c = sigmoid(f) * c + sigmoid(i) * tanh(g)
        h = sigmoid(o) * tanh(c)
        return (h if projection is None else projection(h)), c

    return step


def gru_step(w: Weights) -> Step:
    recurrent, hidden = times(w.hh), rows_of(w.hh) // 3
    sizes = (2 * hidden, hidden)

    def step(x: Tensor, state: State) -> State:
        h = state[0]
        from_state = recurrent(h)
        if w.bias_hh is not None:
            from_state = from_state + w.bias_hh
        (x_gates, x_new), (h_gates, h_new) = split(x, sizes, axis=1), split(from_state, sizes, axis=1)
        reset, update = split(sigmoid(x_gates + h_gates), (hidden, hidden), axis=1)
        new = tanh(x_new + reset * h_new)
        return (new + update * (h - new),)

    return step


def project(w: Weights, x: Tensor, joined: bool) -> Tensor:
    """x [rows, features] as inputs of the gates [rows, gates · hidden], with both biases where they can be ``joined``."""
    y = times(w.ih)(x)
    if w.bias_ih is None:
        return y
    return y + (w.bias_ih + w.bias_hh if joined and w.bias_hh is not None else w.bias_ih)


# parameters


def make_weights(
    module: Module, suffix: str, gates: int, inputs: int, hidden: int, outputs: int, bias: bool, how: dict[str, Any]
) -> None:
    """Set the parameters of one layer in one direction as attributes of ``module``."""
    bound = 1.0 / sqrt(hidden)
    shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates * hidden, inputs), "weight_hh": (gates * hidden, outputs)}
    if bias:
        shapes |= {"bias_ih": (gates * hidden,), "bias_hh": (gates * hidden,)}
    if outputs != hidden:
        shapes["weight_hr"] = (outputs, hidden)
    for name, shape in shapes.items():
        setattr(module, f"{name}{suffix}", initial.uniform(shape, bound=bound, **how))


def weights_of(module: Module, suffix: str = "") -> Weights:
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh", "weight_hr")
    return Weights(*(module.__dict__.get(f"{n}{suffix}") for n in names))  # type: ignore[arg-type]


# states


def check_state(kind: str, name: str, t: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(t, Tensor):
        raise not_a_tensor(kind, name, t, None)
    if t.shape != shape:
        wanted = "[num_layers · directions, batch, size]" if len(shape) == 3 else "[batch, size]"
        raise ShapeError(
            f"{kind}: {name} is {wanted}, here {list(shape)}", describe(name, t), "pass the state that a call returned, or none"
        )


def pair_of(kind: str, state: Any) -> list[Tensor] | None:
    """The two parts of an LSTM's state."""
    if state is None:
        return None
    if not isinstance(state, (tuple, list)) or len(state) != 2:
        got = f"{len(state)} parts" if isinstance(state, (tuple, list)) else type(state).__name__
        raise ShapeError(f"{kind}: state is a pair of tensors, (h, c)", got, "pass the state that a call returned, or none")
    return list(state)
