"""``OneSidedUnitCell``: two devices that only get pulses up, and are refreshed before both are full."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from firebrick.analog.checks import check_flags, check_numbers
from firebrick.analog.device_array import DOWN_AS_UP, UP_AS_UP, pulses_of
from firebrick.analog.io_parameters import IOParameters
from firebrick.analog.matvec import analog_product, check_no_drawn
from firebrick.analog.unit_cells import Array, UnitCell, check_kinds, check_two, refuse_in_graph, total_of
from firebrick.analog.update_parameters import UpdateParameters
from firebrick.core.docstrings import documented_like
from firebrick.core.dtypes import float32
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import asarray
from firebrick.functions.elementwise import less, maximum, where
from firebrick.functions.movement import matrix_transpose

if TYPE_CHECKING:
    from firebrick.analog.tile import Tile


@documented_like(UnitCell)
@dataclass(frozen=True)
class OneSidedUnitCell(UnitCell):
    """W = g⁺ - g⁻, with devices that only get pulses up: those up act on g⁺, the second device, those down on g⁻, the first.

    A refresh reads both devices. Where the larger weight is above ``refresh_upper_thres`` of its mean bound, and the smaller
    one above ``refresh_lower_thres``, both are reset, and their difference is written to the one that was larger.

    Args:
        refresh_every: Mini-batches, or vectors, from one refresh to the next; 0 for none. With refresh, updates run as they
            are written, not inside ``fb.jit``.
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

    def update(self, tile: Tile, x: Tensor, d: Tensor, lr: float | Tensor) -> Tensor:
        if not self.refresh_every:
            return self._changed(tile, x, d, lr)
        refuse_in_graph(self, "whether devices are refreshed")
        state, samples, first, counts = tile.state_of_cell["vectors"], x.shape[0], 0, []
        every = max(1, math.ceil(self.refresh_every * (samples if self.units_in_mbatch else 1)))
        vectors = int(state.item())
        while first < samples:
            count = min(every - vectors % every, samples - first)
            counts.append(self._changed(tile, x[first : first + count], d[first : first + count], lr))
            first, vectors = first + count, vectors + count
            if vectors % every == 0:
                self.refresh(tile)
        state._rebind(asarray(vectors, dtype=state.dtype, device=x.device))
        return total_of(counts) if counts else self._changed(tile, x, d, lr)

    def _changed(self, tile: Tile, x: Tensor, d: Tensor, lr: float | Tensor) -> Tensor:
        pulses = self.pulses(tile, x, d, lr)
        return tile.arrays[0].apply_pulses(pulses, DOWN_AS_UP) + tile.arrays[1].apply_pulses(pulses, UP_AS_UP)

    def refresh(self, tile: Tile) -> None:
        """Refresh the cells of a tile that need it.

        Args:
            tile: The tile.
        """
        device, io = tile.weight.device, self.refresh_forward
        one_hot = asarray(np.eye(tile.columns), dtype=float32, device=device)
        reads = []
        for array in tile.arrays:
            key = one_hot if io.is_perfect else tile.generator.key(device=device)
            reads.append(matrix_transpose(analog_product(one_hot, array.weight.detach(), io, {}, key, None)))
        down, up = (r / m.w_max for r, m in zip(reads, self.unit_cell_devices, strict=True))
        upper, lower = self.refresh_upper_thres, self.refresh_lower_thres
        larger = less(reads[0], reads[1])
        full = where(larger, (up > upper) & (down > lower), (down > upper) & (up > lower))
        for array in tile.arrays:
            array.reset(full)
        difference = where(full, reads[1] - reads[0], 0.0)
        for array, model, part in zip(tile.arrays, self.unit_cell_devices, (-difference, difference), strict=True):
            d = -matrix_transpose(maximum(part, 0.0))
            array.apply_pulses(pulses_of(one_hot, d, 1.0, self.refresh_update, model.granularity, tile.generator))
