"""Recurrent layers and cells with their weights in tiles.

The products of the inputs of all steps are one use of a tile, those of the states one use for each step. An update therefore
gets the vectors of all steps, in the order of the steps.
"""

from __future__ import annotations

from typing import Any

from firebrick.analog.config import RPUConfig
from firebrick.analog.mapping import TileArray, set_attribute
from firebrick.core.dtypes import float32
from firebrick.nn import GRU as DigitalGRU
from firebrick.nn import LSTM as DigitalLSTM
from firebrick.nn import RNN as DigitalRNN
from firebrick.nn import GRUCell as DigitalGRUCell
from firebrick.nn import LSTMCell as DigitalLSTMCell
from firebrick.nn import Module, Parameter
from firebrick.nn import RNNCell as DigitalRNNCell
from firebrick.random import Generator, initial_generator


def with_tiles(layer: Module, config: RPUConfig, generator: Generator) -> int:
    """Replace the matrices of a recurrent layer by tiles; the number of weights that were clipped.

    Args:
        layer: The layer, which is changed.
        config: Of the tiles.
        generator: From which the tiles get their generators.
    """
    clipped = 0
    matrices = [(n, p) for n, p in vars(layer).items() if n.startswith("weight_") and isinstance(p, Parameter)]
    for name, p in matrices:
        rows, columns = p.shape
        array = TileArray(rows, columns, config, generator, p.device)
        clipped += array.set_weights(p.detach())
        if p.frozen:
            array.freeze()
        delattr(layer, name)
        setattr(layer, name, array)
    return clipped


def converted(kind: type, layer: Module, config: RPUConfig, generator: Generator) -> tuple[Any, int]:
    """A recurrent layer of a class with the weights, biases and settings of a digital one, and how many weights were clipped.

    Args:
        kind: The class.
        layer: The digital layer.
        config: Of the tiles.
        generator: From which the tiles get their generators.
    """
    made: Any = object.__new__(kind)
    for name, value in vars(layer.fork()).items():
        setattr(made, name, value)
    return made, with_tiles(made, config, generator)


def _generator(seed: int | None, generator: Generator | None) -> Generator:
    return generator or (initial_generator().fork() if seed is None else Generator(seed))


class RNN(DigitalRNN):
    """``nn.RNN`` with its matrices in tiles; biases and states are digital. Under ``fb.jit`` the steps are written out.

    Initial weights are those of ``nn.RNN``, clipped to the bounds of their devices. Calls are those of ``nn.RNN``.

    Args:
        input_size: Features of x.
        hidden_size: Features of the state.
        num_layers: Layers: each takes the outputs of the one before.
        nonlinearity: "tanh" or "relu".
        bias: Whether there are biases.
        batch_first: Whether x and y are [batch, length, features]; else [length, batch, features].
        dropout: Probability of dropping an element between two layers in training.
        bidirectional: Whether a second state runs from each row's end to its start.
        config: Of the tiles.
        seed: Seed of its generator, from which initial values and the tiles' generators come.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        weight_ih_l0: The tiles [hidden_size, input_size], a ``TileArray``; also ``_l1`` and so on, ``_l0_reverse``.
        weight_hh_l0: The tiles [hidden_size, features of the state that is fed back].

    Example:
        >>> import firebrick as fb
        >>> y, h = fb.analog.RNN(3, 4, seed=0)(fb.ones((2, 5, 3)))
        >>> y.shape, h.shape
        ((2, 5, 4), (1, 2, 4))
    """

    __setattr__ = set_attribute

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, nonlinearity: str = "tanh", bias: bool = True,
        batch_first: bool = True, dropout: float = 0.0, bidirectional: bool = False,
        config: RPUConfig | None = None, seed: int | None = None, generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        own = _generator(seed, generator)
        super().__init__(
            input_size, hidden_size, num_layers, nonlinearity=nonlinearity, bias=bias, batch_first=batch_first, dropout=dropout,
            bidirectional=bidirectional, generator=own, dtype=float32, device=device,
        )  # fmt: skip
        with_tiles(self, config or RPUConfig(), own)

    @classmethod
    def of(cls, layer: DigitalRNN, config: RPUConfig, generator: Generator) -> tuple[RNN, int]:
        """A layer with the weights, biases and settings of a digital one, and how many weights were clipped.

        Args:
            layer: The digital layer.
            config: Of the tiles.
            generator: From which the tiles get their generators.
        """
        return converted(cls, layer, config, generator)


class LSTM(DigitalLSTM):
    """``nn.LSTM`` with its matrices in tiles; biases and states are digital. Under ``fb.jit`` the steps are written out.

    Initial weights are those of ``nn.LSTM``, clipped to the bounds of their devices. Calls are those of ``nn.LSTM``.

    Args:
        input_size: Features of x.
        hidden_size: Features of the state.
        num_layers: Layers: each takes the outputs of the one before.
        bias: Whether there are biases.
        batch_first: Whether x and y are [batch, length, features]; else [length, batch, features].
        dropout: Probability of dropping an element between two layers in training.
        bidirectional: Whether a second state runs from each row's end to its start.
        proj_size: Features of h, less than ``hidden_size``; 0 for no projection.
        config: Of the tiles.
        seed: Seed of its generator, from which initial values and the tiles' generators come.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        weight_ih_l0: The tiles [4 · hidden_size, input_size], a ``TileArray``; also ``_l1`` and so on, ``_l0_reverse``.
        weight_hh_l0: The tiles [4 · hidden_size, features of the state that is fed back].
        weight_hr_l0: The tiles [proj_size, hidden_size]; absent without ``proj_size``.

    Example:
        >>> import firebrick as fb
        >>> y, (h, c) = fb.analog.LSTM(3, 4, seed=0)(fb.ones((2, 5, 3)))
        >>> y.shape, h.shape, c.shape
        ((2, 5, 4), (1, 2, 4), (1, 2, 4))
    """

    __setattr__ = set_attribute

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, bias: bool = True,
        batch_first: bool = True, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
        config: RPUConfig | None = None, seed: int | None = None, generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        own = _generator(seed, generator)
        super().__init__(
            input_size, hidden_size, num_layers, bias=bias, batch_first=batch_first, dropout=dropout,
            bidirectional=bidirectional, proj_size=proj_size, generator=own, dtype=float32, device=device,
        )  # fmt: skip
        with_tiles(self, config or RPUConfig(), own)

    @classmethod
    def of(cls, layer: DigitalLSTM, config: RPUConfig, generator: Generator) -> tuple[LSTM, int]:
        """A layer with the weights, biases and settings of a digital one, and how many weights were clipped.

        Args:
            layer: The digital layer.
            config: Of the tiles.
            generator: From which the tiles get their generators.
        """
        return converted(cls, layer, config, generator)


class GRU(DigitalGRU):
    """``nn.GRU`` with its matrices in tiles; biases and states are digital. Under ``fb.jit`` the steps are written out.

    Initial weights are those of ``nn.GRU``, clipped to the bounds of their devices. Calls are those of ``nn.GRU``.

    Args:
        input_size: Features of x.
        hidden_size: Features of the state.
        num_layers: Layers: each takes the outputs of the one before.
        bias: Whether there are biases.
        batch_first: Whether x and y are [batch, length, features]; else [length, batch, features].
        dropout: Probability of dropping an element between two layers in training.
        bidirectional: Whether a second state runs from each row's end to its start.
        config: Of the tiles.
        seed: Seed of its generator, from which initial values and the tiles' generators come.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        weight_ih_l0: The tiles [3 · hidden_size, input_size], a ``TileArray``; also ``_l1`` and so on, ``_l0_reverse``.
        weight_hh_l0: The tiles [3 · hidden_size, features of the state that is fed back].

    Example:
        >>> import firebrick as fb
        >>> y, h = fb.analog.GRU(3, 4, num_layers=2, seed=0)(fb.ones((2, 5, 3)))
        >>> y.shape, h.shape
        ((2, 5, 4), (2, 2, 4))
    """

    __setattr__ = set_attribute

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, *, bias: bool = True,
        batch_first: bool = True, dropout: float = 0.0, bidirectional: bool = False,
        config: RPUConfig | None = None, seed: int | None = None, generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        own = _generator(seed, generator)
        super().__init__(
            input_size, hidden_size, num_layers, bias=bias, batch_first=batch_first, dropout=dropout,
            bidirectional=bidirectional, generator=own, dtype=float32, device=device,
        )  # fmt: skip
        with_tiles(self, config or RPUConfig(), own)

    @classmethod
    def of(cls, layer: DigitalGRU, config: RPUConfig, generator: Generator) -> tuple[GRU, int]:
        """A layer with the weights, biases and settings of a digital one, and how many weights were clipped.

        Args:
            layer: The digital layer.
            config: Of the tiles.
            generator: From which the tiles get their generators.
        """
        return converted(cls, layer, config, generator)


class RNNCell(DigitalRNNCell):
    """``nn.RNNCell``, one step of ``RNN``, with its matrices in tiles.

    Args:
        input_size: Features of x.
        hidden_size: Features of the state.
        bias: Whether there are biases.
        nonlinearity: "tanh" or "relu".
        config: Of the tiles.
        seed: Seed of its generator, from which initial values and the tiles' generators come.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        weight_ih: The tiles [hidden_size, input_size], a ``TileArray``.
        weight_hh: The tiles [hidden_size, hidden_size].

    Example:
        >>> import firebrick as fb
        >>> h = fb.analog.RNNCell(3, 4, seed=0)(fb.ones((2, 3)))
        >>> h.shape
        (2, 4)
    """

    __setattr__ = set_attribute

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, *, nonlinearity: str = "tanh",
        config: RPUConfig | None = None, seed: int | None = None, generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        own = _generator(seed, generator)
        super().__init__(input_size, hidden_size, bias, nonlinearity=nonlinearity, generator=own, dtype=float32, device=device)
        with_tiles(self, config or RPUConfig(), own)

    @classmethod
    def of(cls, layer: DigitalRNNCell, config: RPUConfig, generator: Generator) -> tuple[RNNCell, int]:
        """A layer with the weights, biases and settings of a digital one, and how many weights were clipped.

        Args:
            layer: The digital layer.
            config: Of the tiles.
            generator: From which the tiles get their generators.
        """
        return converted(cls, layer, config, generator)


class LSTMCell(DigitalLSTMCell):
    """``nn.LSTMCell``, one step of ``LSTM``, with its matrices in tiles.

    Args:
        input_size: Features of x.
        hidden_size: Features of the state.
        bias: Whether there are biases.
        config: Of the tiles.
        seed: Seed of its generator, from which initial values and the tiles' generators come.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        weight_ih: The tiles [4 · hidden_size, input_size], a ``TileArray``.
        weight_hh: The tiles [4 · hidden_size, hidden_size].

    Example:
        >>> import firebrick as fb
        >>> h, c = fb.analog.LSTMCell(3, 4, seed=0)(fb.ones((2, 3)))
        >>> h.shape, c.shape
        ((2, 4), (2, 4))
    """

    __setattr__ = set_attribute

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, *, config: RPUConfig | None = None,
        seed: int | None = None, generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        own = _generator(seed, generator)
        super().__init__(input_size, hidden_size, bias, generator=own, dtype=float32, device=device)
        with_tiles(self, config or RPUConfig(), own)

    @classmethod
    def of(cls, layer: DigitalLSTMCell, config: RPUConfig, generator: Generator) -> tuple[LSTMCell, int]:
        """A layer with the weights, biases and settings of a digital one, and how many weights were clipped.

        Args:
            layer: The digital layer.
            config: Of the tiles.
            generator: From which the tiles get their generators.
        """
        return converted(cls, layer, config, generator)


class GRUCell(DigitalGRUCell):
    """``nn.GRUCell``, one step of ``GRU``, with its matrices in tiles.

    Args:
        input_size: Features of x.
        hidden_size: Features of the state.
        bias: Whether there are biases.
        config: Of the tiles.
        seed: Seed of its generator, from which initial values and the tiles' generators come.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        weight_ih: The tiles [3 · hidden_size, input_size], a ``TileArray``.
        weight_hh: The tiles [3 · hidden_size, hidden_size].

    Example:
        >>> import firebrick as fb
        >>> h = fb.analog.GRUCell(3, 4, seed=0)(fb.ones((2, 3)))
        >>> h.shape
        (2, 4)
    """

    __setattr__ = set_attribute

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, *, config: RPUConfig | None = None,
        seed: int | None = None, generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        own = _generator(seed, generator)
        super().__init__(input_size, hidden_size, bias, generator=own, dtype=float32, device=device)
        with_tiles(self, config or RPUConfig(), own)

    @classmethod
    def of(cls, layer: DigitalGRUCell, config: RPUConfig, generator: Generator) -> tuple[GRUCell, int]:
        """A layer with the weights, biases and settings of a digital one, and how many weights were clipped.

        Args:
            layer: The digital layer.
            config: Of the tiles.
            generator: From which the tiles get their generators.
        """
        return converted(cls, layer, config, generator)
