"""``OneSidedUnitCell``: two devices that only get pulses up, and are refreshed before both are full."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from firebrick.analog.checks import check_flags, check_numbers
from firebrick.analog.device_array import DOWN_AS_UP, UP_AS_UP, Devices, Keys, Pulses, pulses_of
from firebrick.analog.io_parameters import IOParameters
from firebrick.analog.matvec import analog_product, check_no_drawn
from firebrick.analog.unit_cells import Array, UnitCell, check_kinds, check_two, of_vectors
from firebrick.analog.update_parameters import UpdateParameters
from firebrick.core.docstrings import documented_like
from firebrick.core.dtypes import float32, int32
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import asarray
from firebrick.functions.creation import zeros
from firebrick.functions.elementwise import less, less_equal, logical_not, maximum, remainder, where
from firebrick.functions.movement import matrix_transpose, reshape
from firebrick.functions.ranges import arange
from firebrick.graph import cond, scan

if TYPE_CHECKING:
    from firebrick.analog.tile import Tile


Weights = list[tuple[Tensor, Tensor]]
Carry = tuple[Weights, Tensor, Tensor]
"""Weights of the two arrays, the number of vectors, and the numbers of pulses."""
KEYS_OF_REFRESH = 14
"""Keys of random numbers that a refresh takes at most: of two arrays a read, a reset and its write noise, two of trains, and
pulses and their write noise."""


class DrawnKeys:
    """Keys that were drawn before, where nothing may be drawn: in a branch of a graph.

    Args:
        keys: The keys.
    """

    def __init__(self, keys: Sequence[Tensor]) -> None:
        self._keys = iter(keys)

    def key(self, *, device: Any = None) -> Tensor:
        """The next key.

        Args:
            device: Device of the key, which is that of all.
        """
        return next(self._keys)


@documented_like(UnitCell)
@dataclass(frozen=True)
class OneSidedUnitCell(UnitCell):
    """W = g⁺ - g⁻, with devices that only get pulses up: those up act on g⁺, the second device, those down on g⁻, the first.

    A refresh reads both devices. Where the larger weight is above ``refresh_upper_thres`` of its mean bound, and the smaller
    one above ``refresh_lower_thres``, both are reset, and their difference is written to the one that was larger.

    Args:
        refresh_every: Mini-batches, or vectors, from one refresh to the next; 0 for none.
        units_in_mbatch: Whether these are mini-batches.
        refresh_upper_thres: See above.
        refresh_lower_thres: See above.
        refresh_forward: Periphery of the reads.
        refresh_update: The update by which differences are written.

    Raises:
        ConfigError: There are not two devices, or a setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> device = fb.analog.LinearStepDevice(w_min=0.0, w_min_dtod=0.0)
        >>> tile = fb.analog.Tile(1, 2, fb.analog.RPUConfig(fb.analog.OneSidedUnitCell((device, device))), seed=0)
        >>> pulses = tile.update(fb.asarray([[1.0, -1.0]]), fb.asarray([[1.0]]), 0.1)
        >>> [a.weight.tolist()[0][k] > 0.0 for a in tile.arrays for k in (0, 1)]
        [True, False, False, True]
    """

    refresh_every: int = 0
    units_in_mbatch: bool = True
    refresh_upper_thres: float = 0.75
    refresh_lower_thres: float = 0.25
    refresh_forward: IOParameters = field(default_factory=IOParameters)
    refresh_update: UpdateParameters = field(default_factory=UpdateParameters)

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        check_two(self)
        check_flags(name, self, "units_in_mbatch")
        check_numbers(name, self, "refresh_every", "refresh_upper_thres", "refresh_lower_thres", least=0.0)
        check_kinds(name, self.refresh_forward, self.refresh_update)
        check_no_drawn(f"{name}: refresh_forward", self.refresh_forward)

    def initial(self, rows: int, columns: int) -> dict[str, Array]:
        return {"vectors": np.array(0, np.int64)} if self.refresh_every else {}

    def visible(self, weights: Sequence[Tensor], state: Mapping[str, Tensor]) -> Tensor:
        return weights[1] - weights[0]

    def parts(self, weights: Tensor) -> list[Tensor | None]:
        return [maximum(-weights, 0.0), maximum(weights, 0.0)]

    def update(
        self, tile: Tile, x: Tensor, d: Tensor, lr: float | Tensor, parameters: UpdateParameters | None = None
    ) -> Tensor:  # fmt: skip
        samples = x.shape[0]
        if not self.refresh_every or not samples:
            return self._changed(tile, x, d, lr, parameters)
        every = max(1, math.ceil(self.refresh_every * (samples if self.units_in_mbatch else 1)))
        hidden = [a.devices.hidden for a in tile.arrays]

        def part(carry: Carry, vectors: tuple[Tensor, Tensor]) -> tuple[Carry, None]:
            """Vectors of which at most one is followed by a refresh."""
            weights, before, counts = carry
            pair = [Devices(m, *w, h) for m, w, h in zip(self.devices, weights, hidden, strict=True)]
            pulses, count = self.pulses(tile, *vectors, lr, parameters), vectors[0].shape[0]
            last = every - 1 - remainder(before, every)
            early = less_equal(arange(count, device=x.device), last)
            pair, some = self._pulsed(tile, pair, of_vectors(pulses, early))
            keys = [tile.generator.key(device=x.device) for _ in range(KEYS_OF_REFRESH)]

            def refreshed(weights: Weights) -> Weights:
                made = [Devices(m, *w, h) for m, w, h in zip(self.devices, weights, hidden, strict=True)]
                return _weights(self.refreshed(made, DrawnKeys(keys)))

            now = cond(less(last, count), refreshed, lambda w: w, _weights(pair))
            pair = [replace(one, w=w, shown=shown) for one, (w, shown) in zip(pair, now, strict=True)]
            pair, more = self._pulsed(tile, pair, of_vectors(pulses, logical_not(early)))
            return (_weights(pair), before + count, counts + some + more), None

        vectors = tile.state_of_cell["vectors"]
        counts = zeros((tile.rows, tile.columns), dtype=int32, device=x.device)
        carry: Carry = (_weights([a.devices for a in tile.arrays]), vectors.detach(), counts)
        size = min(every, samples)
        whole = samples // size
        if whole > 1:
            carry, _ = scan(part, carry, tuple(reshape(v[: whole * size], (whole, size, v.shape[1])) for v in (x, d)))
        for first in range(whole * size if whole > 1 else 0, samples, size):
            carry, _ = part(carry, (x[first : first + size], d[first : first + size]))
        self._store(tile, carry[0])
        vectors._rebind(carry[1])
        return carry[2]

    def _changed(
        self, tile: Tile, x: Tensor, d: Tensor, lr: float | Tensor, parameters: UpdateParameters | None
    ) -> Tensor:  # fmt: skip
        pair, counts = self._pulsed(tile, [a.devices for a in tile.arrays], self.pulses(tile, x, d, lr, parameters))
        self._store(tile, _weights(pair))
        return counts

    def _pulsed(self, tile: Tile, pair: list[Devices], pulses: Pulses) -> tuple[list[Devices], Tensor]:
        down, of_down = pair[0].pulsed(pulses, tile.generator, DOWN_AS_UP)
        up, of_up = pair[1].pulsed(pulses, tile.generator, UP_AS_UP)
        return [down, up], of_down + of_up

    def _store(self, tile: Tile, weights: Weights) -> None:
        for array, (w, shown) in zip(tile.arrays, weights, strict=True):
            array.store(replace(array.devices, w=w, shown=shown))

    def refresh(self, tile: Tile) -> None:
        """Refresh the cells of a tile that need it.

        Args:
            tile: The tile.
        """
        self._store(tile, _weights(self.refreshed([a.devices for a in tile.arrays], tile.generator)))

    def refreshed(self, pair: list[Devices], generator: Keys) -> list[Devices]:
        """The devices after a refresh of those that need it.

        Args:
            pair: The devices.
            generator: Of the noise.
        """
        io, device, columns = self.refresh_forward, pair[0].w.device, pair[0].w.shape[1]
        one_hot = asarray(np.eye(columns), dtype=float32, device=device)
        reads = []
        for one in pair:
            key = one_hot if io.is_perfect else generator.key(device=device)
            reads.append(matrix_transpose(analog_product(one_hot, one.shown, io, {}, key, None)))
        down, up = (r / m.w_max for r, m in zip(reads, self.devices, strict=True))
        upper, lower = self.refresh_upper_thres, self.refresh_lower_thres
        larger = less(reads[0], reads[1])
        full = where(larger, (up > upper) & (down > lower), (down > upper) & (up > lower))
        difference = where(full, reads[1] - reads[0], 0.0)
        found = []
        for one, model, part in zip(pair, self.devices, (-difference, difference), strict=True):
            d = -matrix_transpose(maximum(part, 0.0))
            pulses = pulses_of(one_hot, d, 1.0, self.refresh_update, model.granularity, generator)
            found.append(one.reset(full, generator).pulsed(pulses, generator)[0])
        return found


def _weights(pair: list[Devices]) -> Weights:
    return [(one.w, one.shown) for one in pair]
