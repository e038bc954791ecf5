"""``MixedPrecisionCompound``: gradients are summed digitally, and whole steps of them are written by pulses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from firebrick.analog.checks import check_flags, check_numbers
from firebrick.analog.one_sided import OneSidedUnitCell
from firebrick.analog.pulsed_device import PulsedDevice
from firebrick.analog.unit_cells import Array, ReferenceUnitCell, UnitCell, VectorUnitCell
from firebrick.analog.update_parameters import UpdateParameters
from firebrick.core.docstrings import documented_like
from firebrick.core.dtypes import float32, int64
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import asarray
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import equal, floor, less, logical_and, remainder, trunc, where
from firebrick.functions.linear import matmul
from firebrick.functions.movement import matrix_transpose
from firebrick.functions.ranges import arange
from firebrick.functions.statistical import max as largest

if TYPE_CHECKING:
    from firebrick.analog.tile import Tile


@documented_like(UnitCell)
@dataclass(frozen=True)
class MixedPrecisionCompound(UnitCell):
    """χ ← χ + lr · d xᵀ in digital memory; then n = trunc(χ / g) pulses are written to each device, and χ ← χ - n g.

    A write has at most ``desired_bl`` pulses of the configuration's update. As in the reference simulator, all n g leave χ
    where n is larger, and what was not written is lost: choose ``granularity_of_transfer`` or the learning rate accordingly.

    Args:
        unit_cell_devices: One device, or one cell that a write updates.
        transfer_every: Mini-batches from one transfer to the next.
        n_rows_per_transfer: Rows of a transfer, the next ones each time; -1 for all.
        random_row: Whether they begin with a random row.
        granularity_of_transfer: Step g; 0 for that of the device.
        transfer_lr: Factor of what is written.
        n_x_bins: Levels that inputs are rounded to for χ; 0 for none.
        n_d_bins: Levels of errors; 0 for none.
        stoc_round_x: Whether inputs are rounded stochastically.
        stoc_round_d: Whether errors are.

    Raises:
        ConfigError: There is not one device, or a setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> cell = fb.analog.MixedPrecisionCompound((fb.analog.ConstantStepDevice(),))
        >>> fb.analog.Tile(2, 3, fb.analog.RPUConfig(cell), seed=0).update(fb.ones((4, 3)), fb.ones((4, 2)), 0.1).shape
        (2, 3)
    """

    transfer_every: int = 1
    n_rows_per_transfer: int = -1
    granularity_of_transfer: float = 0.0
    transfer_lr: float = 1.0
    n_x_bins: int = 0
    n_d_bins: int = 0
    stoc_round_x: bool = True
    stoc_round_d: bool = True
    random_row: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if len(self.unit_cell_devices) != 1:
            raise ConfigError(f"{name}: one device", f"{len(self.unit_cell_devices)}", "pass one")
        check_flags(name, self, "stoc_round_x", "stoc_round_d", "random_row")
        check_numbers(name, self, "granularity_of_transfer", least=0.0)
        check_numbers(name, self, "transfer_lr", above=0.0)
        for key, least in (("transfer_every", 1), ("n_x_bins", 0), ("n_d_bins", 0)):
            value = getattr(self, key)
            if type(value) is not int or value < least or (value == 1 and key != "transfer_every"):
                raise ConfigError(
                    f"{name}: {key} is an int of at least {least or '2, or 0'}", f"{key}={value!r:.60}", "correct it"
                )

        if type(self.n_rows_per_transfer) is not int or (self.n_rows_per_transfer < 1 and self.n_rows_per_transfer != -1):
            given = repr(self.n_rows_per_transfer)
            raise ConfigError(f"{name}: n_rows_per_transfer is an int above 0, or -1 for all", given, "correct it")

    _members: ClassVar[str] = "one pulsed device, or one vector, reference or one-sided cell"
    _example: ClassVar[str] = "(analog.SoftBoundsDevice(),)"

    @classmethod
    def _kinds(cls) -> tuple[type, ...]:
        return (PulsedDevice, VectorUnitCell, ReferenceUnitCell, OneSidedUnitCell)

    @property
    def _cell(self) -> UnitCell | None:
        """The cell that is written; None where it is a device."""
        one = self.unit_cell_devices[0]
        return one if isinstance(one, UnitCell) else None

    def initial(self, rows: int, columns: int) -> dict[str, Array]:
        of_cell = {} if self._cell is None else self._cell.initial(rows, columns)
        return of_cell | {"gradient": np.zeros((rows, columns), np.float32), "mini_batches": np.array(0, np.int64),
                "row": np.array(0, np.int64)}  # fmt: skip

    def visible(self, weights: Sequence[Tensor], state: Mapping[str, Tensor]) -> Tensor:
        return weights[0] * 1.0 if self._cell is None else self._cell.visible(weights, state)

    def parts(self, weights: Tensor) -> list[Tensor | None]:
        return [weights] if self._cell is None else self._cell.parts(weights)

    def update(
        self, tile: Tile, x: Tensor, d: Tensor, lr: float | Tensor, parameters: UpdateParameters | None = None
    ) -> Tensor:  # fmt: skip
        state = tile.state_of_cell
        rate = lr if isinstance(lr, Tensor) else asarray(lr, dtype=float32, device=x.device)
        x = self._rounded(tile, x, self.n_x_bins, self.stoc_round_x)
        d = self._rounded(tile, d, self.n_d_bins, self.stoc_round_d)
        gradient = state["gradient"].detach() + matmul(matrix_transpose(d), x) * rate
        count = state["mini_batches"].detach() + 1
        step = self.granularity_of_transfer or self.granularity
        due, row = equal(remainder(count, self.transfer_every), 0), state["row"].detach()
        if self.random_row:
            row = tile.generator.integers((), low=0, high=tile.rows, dtype=int64, device=x.device)
        some = tile.rows if self.n_rows_per_transfer < 0 else min(self.n_rows_per_transfer, tile.rows)
        chosen = less(remainder(arange(tile.rows, device=x.device) - row, tile.rows), some)
        n = where(logical_and(due, chosen)[:, None], trunc(gradient / step), 0.0)
        state["row"]._rebind(where(due, remainder(row + some, tile.rows), row))
        state["gradient"]._rebind(gradient - n * step)
        state["mini_batches"]._rebind(count)
        rows = asarray(np.eye(tile.rows), dtype=float32, device=x.device)
        written = replace(tile.config.update, update_management=True, update_bl_management=True)
        if self._cell is not None:
            return self._cell.update(tile, n, rows, step * self.transfer_lr, written)
        return tile.arrays[0].apply_pulses(self.pulses(tile, n, rows, step * self.transfer_lr, written))

    def _rounded(self, tile: Tile, v: Tensor, bins: int, stochastic: bool) -> Tensor:
        """Vectors rounded to levels between their largest absolute elements."""
        if not bins:
            return v
        width = largest(absolute(v), axis=1, keepdims=True) / (bins // 2)
        width = where(width > 0.0, width, 1.0)
        up = tile.generator.uniform(v.shape, device=v.device) if stochastic else 0.5
        return floor(v / width + up) * width
