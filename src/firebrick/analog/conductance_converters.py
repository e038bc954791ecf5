"""Conductance converters: the conductances of the devices that stand for weights, and the weights that conductances show.

A weight is the sum over pairs of devices of f · (g⁺ - g⁻), divided by a scale, or the conductance of one device less an offset.
All conductances are in microsiemens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from firebrick.analog.checks import check_numbers, keep_python_numbers
from firebrick.core.docstrings import documented_like
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import clip, maximum, minimum, where
from firebrick.functions.movement import concat, stack
from firebrick.functions.statistical import max as largest
from firebrick.functions.statistical import min as smallest

TINY = 1e-30
"""Weights below it are 0: their conductance per unit of weight would overflow."""


@dataclass(frozen=True)
class ConductanceConverter:
    """Base of converters of weights to conductances.

    Args:
        g_max: Largest conductance, in microsiemens.
        g_min: Smallest conductance, in microsiemens.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> isinstance(fb.analog.SinglePairConductanceConverter(), fb.analog.ConductanceConverter)
        True
    """

    g_max: float = 25.0
    g_min: float = 0.0

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        name = type(self).__name__
        check_numbers(name, self, "g_max", "g_min", least=0.0)
        if self.g_max <= self.g_min:
            given = f"g_max={self.g_max}, g_min={self.g_min}"
            raise ConfigError(f"{name}: g_max is larger than g_min", given, "swap or widen them")

    @property
    def devices(self) -> int:
        """Number of devices of a weight."""
        return 2

    def convert_to_conductances(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        """The conductances of a tile's devices.

        Args:
            weights: Float32 tensor [rows, columns].

        Returns:
            Conductances [devices · rows, columns] in microsiemens, device after device; and two numbers, [2], which
            ``convert_back_to_weights`` needs: the conductance of a unit of weight, and the conductance of the weight 0.
        """
        raise NotImplementedError(f"{type(self).__name__} has no convert_to_conductances: write it")

    def convert_back_to_weights(self, conductances: Tensor, conversion: Tensor) -> Tensor:
        """The weights that conductances show.

        Args:
            conductances: Float32 tensor [devices · rows, columns] in microsiemens.
            conversion: The two numbers that ``convert_to_conductances`` gave.

        Returns:
            Float32 tensor [rows, columns].
        """
        raise NotImplementedError(f"{type(self).__name__} has no convert_back_to_weights: write it")


def _in_pairs(g: ConductanceConverter, weights: Tensor, factors: Sequence[float]) -> tuple[Tensor, Tensor]:
    """Pairs of devices, of which the first are filled before the next ones carry anything."""
    span = g.g_max - g.g_min
    top = _largest(weights)
    scale = sum(factors) * span / top
    rest = absolute(weights) * scale
    found = []
    for factor in factors:
        part = minimum(rest / factor, span)
        rest = maximum(rest - part * factor, 0.0)
        found += [where(weights > 0.0, part, 0.0) + g.g_min, where(weights < 0.0, part, 0.0) + g.g_min]
    return concat(found), stack([scale, scale * 0.0])


def _from_pairs(conductances: Tensor, conversion: Tensor, factors: Sequence[float]) -> Tensor:
    """The weighted sum of the differences of pairs."""
    rows = conductances.shape[0] // (2 * len(factors))
    parts = [conductances[k * rows : (k + 1) * rows] for k in range(2 * len(factors))]
    found = (parts[0] - parts[1]) * factors[0]
    for k, factor in enumerate(factors[1:], start=1):
        found = found + (parts[2 * k] - parts[2 * k + 1]) * factor
    return found / conversion[0]


def _largest(weights: Tensor) -> Tensor:
    """The largest absolute weight; 1 where all are 0."""
    top = largest(absolute(weights))
    return where(top > TINY, top, 1.0)


def _check_factors(name: str, factors: Any, least: int) -> None:
    """Raise ConfigError unless the factors of pairs are positive numbers."""
    good = isinstance(factors, tuple) and len(factors) >= least
    if not good or not all(isinstance(f, (int, float)) and 0.0 < f < float("inf") for f in factors):
        raise ConfigError(f"{name}: f_lst is a tuple of positive numbers", repr(factors)[:80], "pass e.g. (1.0, 2.0)")


@documented_like(ConductanceConverter)
@dataclass(frozen=True)
class SinglePairConductanceConverter(ConductanceConverter):
    """Two devices for a weight: g⁺ carries positive ones, g⁻ negative ones, each in proportion.

    The largest absolute weight of a tile gets ``g_max``.

    Example:
        >>> import firebrick as fb
        >>> converter = fb.analog.SinglePairConductanceConverter(g_max=20.0)
        >>> g, _ = converter.convert_to_conductances(fb.asarray([[0.5, -1.0]]))
        >>> g.tolist()
        [[10.0, 0.0], [0.0, 20.0]]
    """

    def convert_to_conductances(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        return _in_pairs(self, weights, (1.0,))

    def convert_back_to_weights(self, conductances: Tensor, conversion: Tensor) -> Tensor:
        return _from_pairs(conductances, conversion, (1.0,))


@documented_like(ConductanceConverter)
@dataclass(frozen=True)
class NPairConductanceConverter(ConductanceConverter):
    """Several pairs of devices for a weight, with a factor each; a pair is filled before the next one carries anything.

    Args:
        f_lst: Factors of the pairs.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.NPairConductanceConverter(f_lst=(1.0, 2.0, 4.0)).devices
        6
    """

    f_lst: tuple[float, ...] = (1.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_factors(type(self).__name__, self.f_lst, 1)

    @property
    def devices(self) -> int:
        return 2 * len(self.f_lst)

    def convert_to_conductances(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        return _in_pairs(self, weights, self.f_lst)

    def convert_back_to_weights(self, conductances: Tensor, conversion: Tensor) -> Tensor:
        return _from_pairs(conductances, conversion, self.f_lst)


@documented_like(ConductanceConverter)
@dataclass(frozen=True)
class DualPairConductanceConverter(ConductanceConverter):
    """Two pairs of devices for a weight, with a factor each; the first pair is filled before the second carries anything.

    Args:
        f_lst: Factors of the two pairs.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.DualPairConductanceConverter().devices
        4
    """

    f_lst: tuple[float, ...] = (1.0, 1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_factors(type(self).__name__, self.f_lst, 2)
        if len(self.f_lst) != 2:
            raise ConfigError("DualPairConductanceConverter: f_lst has two factors", repr(self.f_lst)[:80], "pass two")

    @property
    def devices(self) -> int:
        return 4

    def convert_to_conductances(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        return _in_pairs(self, weights, self.f_lst)

    def convert_back_to_weights(self, conductances: Tensor, conversion: Tensor) -> Tensor:
        return _from_pairs(conductances, conversion, self.f_lst)


@documented_like(ConductanceConverter)
@dataclass(frozen=True)
class CustomPairConductanceConverter(ConductanceConverter):
    """Pairs of devices whose conductances are piecewise linear functions of the weight.

    The conductances of a list belong to weights at equal distances, from the negative to the positive largest absolute weight
    of the tile. What is read is the sum of f · (g⁺ - g⁻), so lists of which this sum is not linear change the weights.

    Args:
        f_lst: Factors of the pairs.
        g_lst: Conductances of g⁺ of the first pair, of g⁻ of the first pair, of g⁺ of the second pair and so on; each list has
            at least two, all lists equally many, between ``g_min`` and ``g_max``.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> converter = fb.analog.CustomPairConductanceConverter(g_lst=((0.0, 0.0, 25.0), (25.0, 0.0, 0.0)))
        >>> converter.convert_to_conductances(fb.asarray([[0.5, -1.0]]))[0].tolist()
        [[12.5, 0.0], [0.0, 25.0]]
    """

    f_lst: tuple[float, ...] = (1.0,)
    g_lst: tuple[tuple[float, ...], ...] = ((0.0, 0.0, 25.0), (25.0, 0.0, 0.0))

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        _check_factors(name, self.f_lst, 1)
        lists = self.g_lst
        given: Any = lists
        good = isinstance(given, tuple) and len(given) == 2 * len(self.f_lst) and all(isinstance(g, tuple) for g in given)
        good = good and len({len(g) for g in given}) == 1 and len(given[0]) > 1
        if not good or not all(self.g_min <= v <= self.g_max for g in lists for v in g):
            raise ConfigError(
                f"{name}: g_lst has two equally long tuples a factor, of conductances in [{self.g_min:g}, {self.g_max:g}]",
                repr(lists)[:120], "pass e.g. ((0.0, 0.0, 25.0), (25.0, 0.0, 0.0))",
            )  # fmt: skip
        if self._top <= 0.0:
            raise ConfigError(
                f"{name}: the largest weight has a positive conductance, the sum of f · (g⁺ - g⁻) over the last ones of g_lst",
                f"{self._top:g}", "put the larger conductance last in the lists of g⁺",
            )  # fmt: skip

    @property
    def _top(self) -> float:
        """Conductance of the largest weight."""
        return sum(f * (self.g_lst[2 * k][-1] - self.g_lst[2 * k + 1][-1]) for k, f in enumerate(self.f_lst))

    @property
    def devices(self) -> int:
        return 2 * len(self.f_lst)

    def convert_to_conductances(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        top = _largest(weights)
        share = (weights / top + 1.0) * (0.5 * (len(self.g_lst[0]) - 1))  # in intervals from the most negative weight
        found = []
        for values in self.g_lst:
            g = weights * 0.0 + values[0]
            for k in range(len(values) - 1):
                g = g + clip(share - float(k), 0.0, 1.0) * (values[k + 1] - values[k])
            found.append(g)
        scale = self._top / top
        return concat(found), stack([scale, scale * 0.0])

    def convert_back_to_weights(self, conductances: Tensor, conversion: Tensor) -> Tensor:
        return _from_pairs(conductances, conversion, self.f_lst)


@documented_like(ConductanceConverter)
@dataclass(frozen=True)
class SingleDeviceConductanceConverter(ConductanceConverter):
    """One device for a weight: the smallest weight of a tile gets ``g_min``, the largest ``g_max``.

    Example:
        >>> import firebrick as fb
        >>> converter = fb.analog.SingleDeviceConductanceConverter(g_max=90.0, g_min=10.0)
        >>> converter.convert_to_conductances(fb.asarray([[0.5, -0.5, 0.0]]))[0].tolist()
        [[90.0, 10.0, 50.0]]
    """

    g_max: float = 88.19
    g_min: float = 9.0

    @property
    def devices(self) -> int:
        return 1

    def convert_to_conductances(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        low, high = smallest(weights), largest(weights)
        apart = high - low > TINY
        scale = (self.g_max - self.g_min) / where(apart, high - low, 1.0)
        zero = self.g_min - where(apart, low, low - 0.5) * scale  # equal weights are in the middle
        return clip(weights * scale + zero, self.g_min, self.g_max), stack([scale, zero])

    def convert_back_to_weights(self, conductances: Tensor, conversion: Tensor) -> Tensor:
        return (conductances - conversion[1]) / conversion[0]
