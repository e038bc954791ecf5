"""Recurrent layers: RNN, LSTM and GRU over whole sequences, in several layers and both directions, and their cells.

The inputs of all steps are projected in one matrix product; a step then costs one product with the state and a few
elementwise operations. Inside, sequences are time-major, [length · batch, features], so that a step is a run of rows.
Parameters have PyTorch's names, shapes and order of gates, so state dicts go both ways.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from firebrick.core.autocast import wide
from firebrick.core.errors import ConfigError, DTypeError, OutOfRangeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_devices, describe, describe_unnamed, not_a_tensor
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.functions.checks import deferred, staged
from firebrick.functions.conversion import asarray
from firebrick.functions.creation import zeros
from firebrick.functions.elementwise import astype, greater_equal, less, less_equal, logical_and, where
from firebrick.functions.movement import concat, expand_dims, permute_dims, reshape, split, stack
from firebrick.functions.ranges import arange
from firebrick.graph.control import scan
from firebrick.nn.checks import check_choice, check_probability, check_shape, check_sizes
from firebrick.nn.dropout import Dropout
from firebrick.nn.module import Module
from firebrick.nn.recurrence import (
    NONLINEARITIES,
    State,
    Step,
    Weights,
    check_state,
    gru_step,
    lstm_step,
    make_weights,
    pair_of,
    project,
    rnn_step,
    weights_of,
)
from firebrick.random import Generator


class _Settings(NamedTuple):
    """What RNN, LSTM and GRU have in common."""

    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    output_size: int

    @property
    def suffixes(self) -> list[list[str]]:
        """Suffixes of the parameters' names, by layer and direction."""
        ends = ["", "_reverse"] if self.bidirectional else [""]
        return [[f"_l{i}{end}" for end in ends] for i in range(self.num_layers)]

    def describe(self) -> str:
        more = [f"num_layers={self.num_layers}"] if self.num_layers > 1 else []
        more += ["bias=False"] if not self.bias else []
        more += ["batch_first=False"] if not self.batch_first else []
        more += [f"dropout={self.dropout}"] if self.dropout else []
        more += ["bidirectional=True"] if self.bidirectional else []
        more += [f"proj_size={self.output_size}"] if self.output_size != self.hidden_size else []
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *more])


def _build(module: Module, gates: int, s: _Settings, generator: Generator | None, dtype: Any, device: Any) -> Dropout | None:
    """Check the settings, make all parameters, and return the dropout between layers."""
    kind = type(module).__name__
    check_sizes(kind, input_size=s.input_size, hidden_size=s.hidden_size, num_layers=s.num_layers, proj_size=s.output_size)
    check_probability(kind, dropout=s.dropout)
    how = {"generator": generator, "dtype": dtype, "device": device}
    inputs = s.input_size
    for layer in s.suffixes:
        for suffix in layer:
            make_weights(module, suffix, gates, inputs, s.hidden_size, s.output_size, s.bias, how)
        inputs = s.output_size * len(layer)
    if not s.dropout or s.num_layers == 1:
        return None
    return Dropout(s.dropout, generator=None if generator is None else generator.fork())


# running over a sequence


def _running(kind: str, lengths: Any, length: int, batch: int, x: Tensor) -> tuple[Tensor, int]:
    """A mask [length · batch, 1] of the rows that are still running at each step, and the number of steps where all are."""
    if not isinstance(lengths, Tensor):
        if not isinstance(lengths, (list, tuple)) or any(
            not isinstance(n, (int, Weak)) or isinstance(n, bool) for n in lengths
        ):
            raise not_a_tensor(kind, "lengths", lengths, x.device.name)
        lengths = asarray(list(lengths), dtype="int64" if not lengths else None, device=x.device)
    if not lengths.dtype.is_integer:
        raise DTypeError(f"{kind}: lengths need an integer dtype", describe("lengths", lengths), "cast them to fb.int64")
    if lengths.shape != (batch,):
        raise ShapeError(
            f"{kind}: lengths is [batch]", f"{describe('lengths', lengths)} for a batch of {batch}", "give each row its length"
        )
    shortest = 0
    if deferred(lengths):
        error = _outside(kind, length, f"{describe_unnamed('lengths', lengths)} with a value outside")
        staged(lambda: logical_and(greater_equal(lengths, 1), less_equal(lengths, length)), lambda: error)
    elif x.device.engine != "meta" and batch:
        values = lengths.numpy()
        shortest, longest = int(values.min()), int(values.max())
        if shortest < 1 or longest > length:
            raise _outside(kind, length, f"lengths from {shortest} to {longest}")
    steps = expand_dims(arange(length, device=x.device), axis=1)
    running = less(steps, expand_dims(astype(lengths, steps.dtype, copy=False), axis=0))
    return reshape(running, (length * batch, 1)), shortest


def _outside(kind: str, length: int, received: str) -> OutOfRangeError:
    return OutOfRangeError(
        f"{kind}: lengths lie in [1, {length}], the length of x", received, "drop empty rows, and pad x to the longest"
    )


def _over(
    step: Step, inputs: Tensor, state: State, reverse: bool, running: Tensor | None, shortest: int, length: int, scans: bool
) -> tuple[Tensor, State]:
    """Run over the steps; rows that are not running keep their state, and their outputs are 0.

    Inside a trace the steps are one scan, whatever their number, unless a step has state of its own (not ``scans``).
    """
    batch = inputs.shape[0] // length
    state = tuple(map(wide, state))

    def one(state: State, at: tuple[Tensor, Tensor | None]) -> tuple[State, Tensor]:
        x, mask = at
        after = tuple(map(wide, step(x, state)))
        if mask is None:
            return after, after[0]
        return tuple(where(mask, new, old) for new, old in zip(after, state, strict=True)), where(mask, after[0], 0.0)

    if scans and hooks.trace() is not None:
        cut = [None if t is None else reshape(t, (length, batch, t.shape[1])) for t in (inputs, running)]
        state, y = scan(one, state, tuple(cut), reverse=reverse)
        return reshape(y, (length * batch, y.shape[2])), state
    parts = split(inputs, (batch,) * length)
    masks = None if running is None else split(running, (batch,) * length)
    outputs: list[Tensor] = []
    for t in range(length - 1, -1, -1) if reverse else range(length):
        state, y = one(state, (parts[t], None if masks is None or t < shortest else masks[t]))
        outputs.append(y)
    return concat(outputs[::-1] if reverse else outputs), state


def _run(
    module: Module, s: _Settings, make_step: Callable[[Weights], Step], joined: bool, x: Tensor, state: list[Tensor] | None,
    state_sizes: tuple[int, ...], lengths: Any, dropout: Dropout | None,
) -> tuple[Tensor, State]:  # fmt: skip
    """All layers in all directions: outputs in the user's layout, and the states at each row's end."""
    kind = type(module).__name__
    axes = f"batch, length, {s.input_size}" if s.batch_first else f"length, batch, {s.input_size}"
    check_shape(kind, "x", x, axes, s.input_size, ndim=3)
    check_devices(kind, x=x, state=state, lengths=lengths, weight_ih_l0=weights_of(module, "_l0").tensor)
    y = permute_dims(x, (1, 0, 2)) if s.batch_first else x
    length, batch, _ = y.shape
    if length == 0:
        raise ShapeError(f"{kind}: x has at least one step", describe("x", x), "drop empty sequences")
    states = sum(len(layer) for layer in s.suffixes)
    starts = None
    if state is not None:
        for name, t, size in zip(("state",) if len(state) == 1 else ("state[0]", "state[1]"), state, state_sizes, strict=True):
            check_state(kind, name, t, (states, batch, size))
        starts = [[reshape(h, h.shape[1:]) for h in split(t, (1,) * states)] for t in state]
    y = reshape(y, (length * batch, s.input_size))
    running, shortest = None, length
    if lengths is not None:
        running, shortest = _running(kind, lengths, length, batch, x)
        y = where(running, y, 0.0)  # what is not looked at may be NaN, and 0 · NaN in a gradient is not 0
    ends: list[State] = []
    for i, layer in enumerate(s.suffixes):
        if i and dropout is not None:
            y = _drop(dropout, y, length, batch)
        found = []
        for direction, suffix in enumerate(layer):
            w = weights_of(module, suffix)
            inputs = _projected(w, y, joined, length, batch)
            if starts is None:
                start = tuple(zeros((batch, size), dtype=y.dtype, device=x.device) for size in state_sizes)
            else:
                start = tuple(rows[len(ends)] for rows in starts)
            scans = isinstance(w.hh, Tensor)
            outputs, end = _over(make_step(w), inputs, start, direction == 1, running, shortest, length, scans)
            found.append(outputs)
            ends.append(end)
        y = found[0] if len(found) == 1 else concat(found, axis=1)
    y = reshape(y, (length, batch, y.shape[1]))
    last = tuple(stack([e[k] for e in ends]) for k in range(len(state_sizes)))
    return (permute_dims(y, (1, 0, 2)) if s.batch_first else y), last


def _projected(w: Weights, y: Tensor, joined: bool, length: int, batch: int) -> Tensor:
    """The inputs of all steps. A module that multiplies gets the batch as first axis, like a dropout."""
    if isinstance(w.ih, Tensor):
        return project(w, y, joined)
    found = project(w, permute_dims(reshape(y, (length, batch, y.shape[1])), (1, 0, 2)), joined)
    return reshape(permute_dims(found, (1, 0, 2)), (length * batch, found.shape[2]))


def _drop(dropout: Dropout, y: Tensor, length: int, batch: int) -> Tensor:
    """Dropout with the batch as first axis, so that a split batch drops what the whole one would."""
    size = y.shape[1]
    dropped = dropout(permute_dims(reshape(y, (length, batch, size)), (1, 0, 2)))
    return reshape(permute_dims(dropped, (1, 0, 2)), (length * batch, size))


class RNN(Module):
    """h(t) = tanh(W_ih x(t) + b_ih + W_hh h(t-1) + b_hh), in layers: each takes the outputs of the one before.

    Weights and biases start from U(-1/√hidden_size, 1/√hidden_size).

    Args:
        input_size: Features of x.
        hidden_size: Features of the state.
        num_layers: Layers.
        nonlinearity: "tanh" or "relu".
        bias: Whether there are biases b_ih and b_hh.
        batch_first: Whether x and y are [batch, length, features]; else [length, batch, features]. States are
            [num_layers · directions, batch, hidden_size] either way.
        dropout: Probability of dropping an element between two layers in training.
        bidirectional: Whether a second state runs from each row's end to its start; outputs are joined, forward first.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight_ih_l0: Parameter [hidden_size, input_size]; also ``_l1`` and so on, ``_l0_reverse`` for the backward direction.
        weight_hh_l0: Parameter [hidden_size, hidden_size].
        bias_ih_l0: Parameter [hidden_size]; absent without ``bias``.
        bias_hh_l0: Parameter [hidden_size]; absent without ``bias``.

    Source: Elman, "Finding Structure in Time", Cognitive Science 14, 1990.

    Example:
        >>> import firebrick as fb
        >>> y, h = fb.nn.RNN(3, 4)(fb.ones((2, 5, 3)))
        >>> y.shape, h.shape
        ((2, 5, 4), (1, 2, 4))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = True, dropout: float = 0.0, bidirectional: bool = False, generator: Generator | None = None,
        dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        check_choice("RNN", "nonlinearity", nonlinearity, NONLINEARITIES)
        self.nonlinearity = nonlinearity
        self.settings = _Settings(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, hidden_size
        )  # fmt: skip
        self.dropout = _build(self, 1, self.settings, generator, dtype, device)

    def forward(
        self, x: Tensor, state: Tensor | None = None, *, lengths: Tensor | Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Run over sequences.

        Args:
            x: Tensor [batch, length, input_size] (see ``batch_first``).
            state: State before the first step [num_layers · directions, batch, hidden_size]; zeros by default.
            lengths: Number of steps of each row, integers [batch] in [1, length]; all by default. What follows in x is not
                looked at, outputs there are 0, and the way back starts at each row's own end.

        Returns:
            Outputs [batch, length, directions · hidden_size], and the state at each row's end.

        Raises:
            ShapeError: A shape does not fit.
            OutOfRangeError: A length lies outside [1, length].
        """
        s = self.settings
        y, (h,) = _run(
            self, s, lambda w: rnn_step(w, self.nonlinearity), True, x, None if state is None else [state],
            (s.hidden_size,), lengths, self.dropout,
        )  # fmt: skip
        return y, h

    def describe(self) -> str:
        return self.settings.describe() + ("" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity!r}")


class LSTM(Module):
    """i, f, o = σ(…), g = tanh(…), each of W_ih x(t) + b_ih + W_hh h(t-1) + b_hh; c = f c + i g; h = o tanh(c).

    With ``proj_size``, h = W_hr (o tanh(c)). Weights and biases start from U(-1/√hidden_size, 1/√hidden_size).

    Args:
        input_size: Features of x.
        hidden_size: Features of the cell c (and of h without ``proj_size``).
        num_layers: Layers: each takes the outputs of the one before.
        bias: Whether there are biases b_ih and b_hh.
        batch_first: Whether x and y are [batch, length, features]; else [length, batch, features]. States are
            [num_layers · directions, batch, size] either way.
        dropout: Probability of dropping an element between two layers in training.
        bidirectional: Whether a second state runs from each row's end to its start; outputs are joined, forward first.
        proj_size: Features of h, less than ``hidden_size``; 0 for no projection.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight_ih_l0: Parameter [4 · hidden_size, input_size], rows for i, f, g, o; also ``_l1`` and so on,
            ``_l0_reverse`` for the way back.
        weight_hh_l0: Parameter [4 · hidden_size, size of h].
        bias_ih_l0: Parameter [4 · hidden_size]; absent without ``bias``.
        bias_hh_l0: Parameter [4 · hidden_size]; absent without ``bias``.
        weight_hr_l0: Parameter [proj_size, hidden_size]; absent without ``proj_size``.

    Source: Hochreiter, Schmidhuber, "Long Short-Term Memory", Neural Computation 9, 1997; Sak, Senior, Beaufays, "Long
    Short-Term Memory Based Recurrent Neural Network Architectures", arXiv:1402.1128 (projection).

    Example:
        >>> import firebrick as fb
        >>> y, (h, c) = fb.nn.LSTM(3, 4, bidirectional=True)(fb.ones((2, 5, 3)), lengths=[5, 2])
        >>> y.shape, h.shape, c.shape
        ((2, 5, 8), (2, 2, 4), (2, 2, 4))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, bias: bool = True, batch_first: bool = True,
        dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0, generator: Generator | None = None,
        dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        check_sizes("LSTM", 0, proj_size=proj_size)
        check_sizes("LSTM", hidden_size=hidden_size)
        if proj_size >= hidden_size:
            raise ConfigError(
                "LSTM: proj_size is less than hidden_size",
                f"proj_size = {proj_size}, hidden_size = {hidden_size}",
                "change one of them, or pass 0 for no projection",
            )
        self.settings = _Settings(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, proj_size or hidden_size
        )
        self.dropout = _build(self, 4, self.settings, generator, dtype, device)

    def forward(
        self, x: Tensor, state: tuple[Tensor, Tensor] | None = None, *, lengths: Tensor | Sequence[int] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:  # fmt: skip
        """Run over sequences.

        Args:
            x: Tensor [batch, length, input_size] (see ``batch_first``).
            state: State before the first step, (h [num_layers · directions, batch, size of h], c [num_layers · directions,
                batch, hidden_size]); zeros by default.
            lengths: Number of steps of each row, integers [batch] in [1, length]; all by default. What follows in x is not
                looked at, outputs there are 0, and the way back starts at each row's own end.

        Returns:
            Outputs [batch, length, directions · size of h], and the state (h, c) at each row's end.

        Raises:
            ShapeError: A shape does not fit.
            OutOfRangeError: A length lies outside [1, length].
        """
        s = self.settings
        sizes = (s.output_size, s.hidden_size)
        y, (h, c) = _run(self, s, lstm_step, True, x, pair_of("LSTM", state), sizes, lengths, self.dropout)
        return y, (h, c)

    def describe(self) -> str:
        return self.settings.describe()


class GRU(Module):
    """r, z = σ(W x(t) + b + U h + b'), n = tanh(W_n x(t) + b_n + r (U_n h + b'_n)), h(t) = (1 - z) n + z h with h = h(t-1).

    Weights and biases start from U(-1/√hidden_size, 1/√hidden_size).

    Args:
        input_size: Features of x.
        hidden_size: Features of the state.
        num_layers: Layers: each takes the outputs of the one before.
        bias: Whether there are biases.
        batch_first: Whether x and y are [batch, length, features]; else [length, batch, features]. States are
            [num_layers · directions, batch, hidden_size] either way.
        dropout: Probability of dropping an element between two layers in training.
        bidirectional: Whether a second state runs from each row's end to its start; outputs are joined, forward first.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight_ih_l0: Parameter [3 · hidden_size, input_size], rows for r, z, n; also ``_l1`` and so on, ``_l0_reverse``
            for the way back.
        weight_hh_l0: Parameter [3 · hidden_size, hidden_size].
        bias_ih_l0: Parameter [3 · hidden_size]; absent without ``bias``.
        bias_hh_l0: Parameter [3 · hidden_size]; absent without ``bias``.

    Source: Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
    arXiv:1406.1078, with the reset gate after the product, as in cuDNN.

    Example:
        >>> import firebrick as fb
        >>> y, h = fb.nn.GRU(3, 4, num_layers=2)(fb.ones((2, 5, 3)))
        >>> y.shape, h.shape
        ((2, 5, 4), (2, 2, 4))
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, bias: bool = True, batch_first: bool = True,
        dropout: float = 0.0, bidirectional: bool = False, generator: Generator | None = None, dtype: Any = None,
        device: Any = None,
    ) -> None:  # fmt: skip
        self.settings = _Settings(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional, hidden_size
        )  # fmt: skip
        self.dropout = _build(self, 3, self.settings, generator, dtype, device)

    def forward(
        self, x: Tensor, state: Tensor | None = None, *, lengths: Tensor | Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Run over sequences; arguments, results and errors as for ``RNN``.

        Args:
            x: Sequences [batch, time, input_size], or [time, batch, input_size] without ``batch_first``.
            state: State before the first step [layers, batch, hidden_size], ``layers`` being twice as many in a bidirectional
                network; zeros by default.
            lengths: Number of steps of each sequence, integers [batch]; all by default.
        """
        s = self.settings
        given = None if state is None else [state]
        y, (h,) = _run(self, s, gru_step, False, x, given, (s.hidden_size,), lengths, self.dropout)
        return y, h

    def describe(self) -> str:
        return self.settings.describe()


# cells


def _build_cell(module: Module, gates: int, how: dict[str, Any], input_size: int, hidden_size: int, bias: bool) -> None:
    check_sizes(type(module).__name__, input_size=input_size, hidden_size=hidden_size)
    make_weights(module, "", gates, input_size, hidden_size, hidden_size, bias, how)


def _cell_state(kind: str, x: Tensor, state: list[Tensor] | None, parts: int, inputs: int, hidden: int) -> State:
    """Check x and the state of a cell; zeros in place of None."""
    check_shape(kind, "x", x, f"batch, {inputs}", inputs, ndim=2)
    if state is None:
        return tuple(zeros((x.shape[0], hidden), dtype=x.dtype, device=x.device) for _ in range(parts))
    for name, t in zip(("state",) if parts == 1 else ("state[0]", "state[1]"), state, strict=True):
        check_state(kind, name, t, (x.shape[0], hidden))
    return tuple(state)


class RNNCell(Module):
    """One step of ``RNN``.

    Args:
        input_size: Features of x.
        hidden_size: Features of the state.
        bias: Whether there are biases.
        nonlinearity: "tanh" or "relu".
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight_ih: Parameter [hidden_size, input_size].
        weight_hh: Parameter [hidden_size, hidden_size].
        bias_ih: Parameter [hidden_size]; absent without ``bias``.
        bias_hh: Parameter [hidden_size]; absent without ``bias``.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.RNNCell(3, 4)(fb.ones((2, 3))).shape
        (2, 4)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, *, nonlinearity: str = "tanh",
        generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        check_choice("RNNCell", "nonlinearity", nonlinearity, NONLINEARITIES)
        self.input_size, self.hidden_size, self.nonlinearity = input_size, hidden_size, nonlinearity
        _build_cell(self, 1, {"generator": generator, "dtype": dtype, "device": device}, input_size, hidden_size, bias)

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """The state [batch, hidden_size] after x [batch, input_size]; the state before it is zeros by default.

        Args:
            x: Floating tensor [batch, input_size].
            state: Floating tensor [batch, hidden_size]; zeros by default.
        """
        before = _cell_state("RNNCell", x, None if state is None else [state], 1, self.input_size, self.hidden_size)
        w = weights_of(self)
        return rnn_step(w, self.nonlinearity)(project(w, x, True), before)[0]

    def describe(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class LSTMCell(Module):
    """One step of ``LSTM``.

    Args:
        input_size: Features of x.
        hidden_size: Features of the state.
        bias: Whether there are biases.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight_ih: Parameter [4 · hidden_size, input_size], rows for i, f, g, o.
        weight_hh: Parameter [4 · hidden_size, hidden_size].
        bias_ih: Parameter [4 · hidden_size]; absent without ``bias``.
        bias_hh: Parameter [4 · hidden_size]; absent without ``bias``.

    Example:
        >>> import firebrick as fb
        >>> h, c = fb.nn.LSTMCell(3, 4)(fb.ones((2, 3)))
        >>> h.shape, c.shape
        ((2, 4), (2, 4))
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, *, generator: Generator | None = None, dtype: Any = None,
        device: Any = None,
    ) -> None:  # fmt: skip
        self.input_size, self.hidden_size = input_size, hidden_size
        _build_cell(self, 4, {"generator": generator, "dtype": dtype, "device": device}, input_size, hidden_size, bias)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The state (h, c), each [batch, hidden_size], after x [batch, input_size]; zeros before it by default.

        Args:
            x: Floating tensor [batch, input_size].
            state: The pair (h, c) before; zeros by default.
        """
        before = _cell_state("LSTMCell", x, pair_of("LSTMCell", state), 2, self.input_size, self.hidden_size)
        w = weights_of(self)
        h, c = lstm_step(w)(project(w, x, True), before)
        return h, c

    def describe(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class GRUCell(Module):
    """One step of ``GRU``.

    Args:
        input_size: Features of x.
        hidden_size: Features of the state.
        bias: Whether there are biases.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        weight_ih: Parameter [3 · hidden_size, input_size], rows for r, z, n.
        weight_hh: Parameter [3 · hidden_size, hidden_size].
        bias_ih: Parameter [3 · hidden_size]; absent without ``bias``.
        bias_hh: Parameter [3 · hidden_size]; absent without ``bias``.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.GRUCell(3, 4)(fb.ones((2, 3))).shape
        (2, 4)
    """

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, *, generator: Generator | None = None, dtype: Any = None,
        device: Any = None,
    ) -> None:  # fmt: skip
        self.input_size, self.hidden_size = input_size, hidden_size
        _build_cell(self, 3, {"generator": generator, "dtype": dtype, "device": device}, input_size, hidden_size, bias)

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """The state [batch, hidden_size] after x [batch, input_size]; the state before it is zeros by default.

        Args:
            x: Floating tensor [batch, input_size].
            state: Floating tensor [batch, hidden_size]; zeros by default.
        """
        before = _cell_state("GRUCell", x, None if state is None else [state], 1, self.input_size, self.hidden_size)
        w = weights_of(self)
        return gru_step(w)(project(w, x, False), before)[0]

    def describe(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"
