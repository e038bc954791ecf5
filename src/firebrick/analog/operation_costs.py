"""``estimate``: energy, latency and area of a mapped network, from figures for one operation that the caller states."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

from firebrick.analog.checks import check_numbers, keep_python_numbers
from firebrick.analog.mapping import TileArray
from firebrick.analog.tile import Tile
from firebrick.autodiff.tape import no_grad
from firebrick.core.errors import ConfigError
from firebrick.nn import Module


@dataclass(frozen=True)
class OperationCosts:
    """Figures for one operation of the hardware. None has a default: they come from a publication or from measurements.

    Args:
        energy_per_mac: Energy of a multiplication and addition in a cross-point, in joules.
        energy_per_dac: Energy of a conversion of an input, in joules.
        energy_per_adc: Energy of a conversion of an output, in joules.
        time_per_product: Time of a product of a tile with one vector, in seconds.
        area_per_tile: Area of a tile with its converters, in square metres.
        source: Where the figures are from.

    Raises:
        ConfigError: A figure is negative or not finite, or the source is empty.

    Example:
        Made-up figures, to show the use:

        >>> import firebrick as fb
        >>> fb.analog.OperationCosts(1e-15, 1e-12, 2e-12, 1e-7, 1e-7, source="made up").energy_per_adc
        2e-12
    """

    energy_per_mac: float
    energy_per_dac: float
    energy_per_adc: float
    time_per_product: float
    area_per_tile: float
    source: str

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        figures = ("energy_per_mac", "energy_per_dac", "energy_per_adc", "time_per_product", "area_per_tile")
        check_numbers("OperationCosts", self, *figures, least=0.0)
        source: Any = self.source
        if not isinstance(source, str) or not source.strip():
            raise ConfigError("OperationCosts: source says where the figures are from", repr(self.source)[:60], "name it")


@dataclass(frozen=True)
class LayerCosts:
    """What one layer costs for one batch.

    Attributes:
        name: Path of the layer.
        tiles: Number of its tiles.
        products: Vectors that each of its tiles multiplies.
        macs: Multiplications and additions.
        dac_conversions: Conversions of inputs.
        adc_conversions: Conversions of outputs.
        energy: In joules.
        latency: In seconds: products of a layer one after the other, its tiles at once.
        area: In square metres.

    Example:
        >>> import firebrick as fb
        >>> costs = fb.analog.OperationCosts(1e-15, 1e-12, 2e-12, 1e-7, 1e-7, source="made up")
        >>> layer = fb.analog.Linear(8, 4, config=fb.analog.RPUConfig(), seed=0)
        >>> fb.analog.estimate(layer, fb.ones((2, 8)), costs).layers[0].macs
        64
    """

    name: str
    tiles: int
    products: int
    macs: int
    dac_conversions: int
    adc_conversions: int
    energy: float
    latency: float
    area: float


@dataclass(frozen=True)
class CostEstimate:
    """What the analog layers of a model cost for one batch. It prints as a table.

    Digital operations, memory and communication are not part of it. Layers work one after the other.

    Attributes:
        layers: By layer.
        costs: The figures that it is computed from.

    Example:
        >>> import firebrick as fb
        >>> costs = fb.analog.OperationCosts(1e-15, 1e-12, 2e-12, 1e-7, 1e-7, source="made up")
        >>> layer = fb.nn.Sequential(fb.analog.Linear(8, 4, config=fb.analog.RPUConfig(), seed=0))
        >>> print(fb.analog.estimate(layer, fb.ones((1, 8)), costs))
        layer     tiles  products  MACs  energy    latency  area
        layers.0      1         1    32  16.03 pJ  100 ns   0.1 mm²
        all           1         1    32  16.03 pJ  100 ns   0.1 mm²
        figures: made up; digital operations are not part of it
    """

    layers: tuple[LayerCosts, ...]
    costs: OperationCosts

    @property
    def energy(self) -> float:
        """Of all layers, in joules."""
        return sum(layer.energy for layer in self.layers)

    @property
    def latency(self) -> float:
        """Of all layers, one after the other, in seconds."""
        return sum(layer.latency for layer in self.layers)

    @property
    def area(self) -> float:
        """Of all tiles, in square metres."""
        return sum(layer.area for layer in self.layers)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [("layer", "tiles", "products", "MACs", "energy", "latency", "area")]
        rows += [(n.name, *map(str, (n.tiles, n.products, n.macs)), *_units(n)) for n in self.layers]
        sums = [str(sum(getattr(n, k) for n in self.layers)) for k in ("tiles", "products", "macs")]
        rows.append(("all", *sums, *_units(self)))
        widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
        lines = ["  ".join(_aligned(v, w, k) for k, (v, w) in enumerate(zip(r, widths, strict=True))).rstrip() for r in rows]
        return "\n".join([*lines, f"figures: {self.costs.source}; digital operations are not part of it"])


def _aligned(text: str, width: int, column: int) -> str:
    return f"{text:>{width}}" if column in (1, 2, 3) else f"{text:<{width}}"


def _units(found: LayerCosts | CostEstimate) -> tuple[str, str, str]:
    area = found.area * 1e6
    return _prefixed(found.energy, "J"), _prefixed(found.latency, "s"), f"{area:.4g} mm²"


def _prefixed(value: float, unit: str) -> str:
    for factor, prefix in ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"), (1e-15, "f")):
        if value >= factor:
            return f"{value / factor:.4g} {prefix}{unit}"
    return f"{value:.4g} {unit}"


def estimate(model: Module, example: Any, costs: OperationCosts) -> CostEstimate:
    """Energy, latency and area of the analog layers of a model for one batch.

    A copy of the model runs once on the example, in evaluation mode, to count the vectors that each tile multiplies.
    Products that bound management repeats are counted once.

    Args:
        model: With analog layers.
        example: What the model is called with, a tensor, or a tuple of several.
        costs: Figures for one operation.

    Raises:
        ConfigError: The model has no analog layers, or ``costs`` is no ``OperationCosts``.

    Example:
        >>> import firebrick as fb
        >>> costs = fb.analog.OperationCosts(1e-15, 1e-12, 2e-12, 1e-7, 1e-7, source="made up")
        >>> model = fb.analog.Conv2d(1, 8, 3, seed=0)
        >>> fb.analog.estimate(model, fb.ones((1, 1, 8, 8)), costs).layers[0].products  # 6 x 6 positions
        36
    """
    if not isinstance(costs, OperationCosts):
        raise ConfigError("analog.estimate: costs is an OperationCosts", repr(costs)[:60], "pass analog.OperationCosts(…)")
    twin = model.fork().eval()
    arrays = [(p, m) for p, m in twin.modules() if isinstance(m, TileArray)]
    if not arrays:
        raise ConfigError("analog.estimate: a model with analog layers", type(model).__name__, "convert it: analog.convert(…)")
    counts: dict[int, int] = {}
    for _, array in arrays:
        for tile in _tiles(array):
            counts[id(tile)] = 0
            tile.register_forward_hook(partial(_count, counts))
    with no_grad():
        twin(*example) if isinstance(example, tuple) else twin(example)
    return CostEstimate(tuple(_layer(p.removesuffix(".tiles"), a, counts, costs) for p, a in arrays), costs)


def _tiles(array: TileArray) -> list[Tile]:
    return [tile for row in array.tiles for tile in row]


def _count(counts: dict[int, int], tile: Any, args: tuple[Any, ...], result: Any) -> None:
    """The forward hook that counts the vectors of a tile."""
    counts[id(tile)] += prod(args[0].shape[:-1])


def _layer(name: str, array: TileArray, counts: dict[int, int], costs: OperationCosts) -> LayerCosts:
    tiles = _tiles(array)
    macs = sum(counts[id(t)] * t.rows * t.columns for t in tiles)
    inputs, outputs = (sum(counts[id(t)] * getattr(t, side) for t in tiles) for side in ("columns", "rows"))
    products = max(counts[id(t)] for t in tiles)
    energy = macs * costs.energy_per_mac + inputs * costs.energy_per_dac + outputs * costs.energy_per_adc
    return LayerCosts(
        name, len(tiles), products, macs, inputs, outputs, energy, products * costs.time_per_product,
        len(tiles) * costs.area_per_tile,
    )  # fmt: skip
