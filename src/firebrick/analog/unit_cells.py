"""Unit cells: several devices at each cross-point, whose weights make one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from firebrick.analog.checks import keep_python_numbers
from firebrick.analog.device_array import Pulses, pulses_of
from firebrick.analog.io_parameters import IOParameters
from firebrick.analog.pulsed_device import PulsedDevice
from firebrick.analog.update_parameters import UpdateParameters
from firebrick.core.dtypes import int64
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype, equal, remainder
from firebrick.functions.ranges import arange

if TYPE_CHECKING:
    from firebrick.analog.tile import Tile

Array = np.ndarray[Any, Any]


class VectorUnitCellUpdatePolicy(Enum):
    """Which devices of a vector cell an update changes.

    Attributes:
        ALL: Every device gets the same pulses.
        SINGLE_FIXED: The device ``first_update_idx``.
        SINGLE_SEQUENTIAL: The next device for each vector, beginning with the second.
        SINGLE_RANDOM: A random device for each vector.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.VectorUnitCellUpdatePolicy.ALL.name
        'ALL'
    """

    ALL = "all"
    SINGLE_FIXED = "single fixed"
    SINGLE_SEQUENTIAL = "single sequential"
    SINGLE_RANDOM = "single random"


@dataclass(frozen=True)
class UnitCell:
    """Base of cells of several devices.

    A subclass has ``visible``, ``parts`` and ``update``, and ``initial`` where it has state of its own.

    Args:
        unit_cell_devices: The devices of a cell, at least one.

    Raises:
        ConfigError: One is no pulsed device.

    Example:
        >>> import firebrick as fb
        >>> cell = fb.analog.VectorUnitCell((fb.analog.ConstantStepDevice(), fb.analog.SoftBoundsDevice()))
        >>> isinstance(cell, fb.analog.UnitCell), cell.granularity
        (True, 0.001)
    """

    unit_cell_devices: tuple[PulsedDevice | UnitCell, ...] = ()

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        given: Any = self.unit_cell_devices
        devices = tuple(given) if isinstance(given, (tuple, list)) else ()
        if not devices or not all(isinstance(d, self._kinds()) for d in devices):
            raise ConfigError(
                f"{type(self).__name__}: unit_cell_devices is a tuple of {self._members}", repr(given)[:80],
                f"pass e.g. {self._example}",
            )  # fmt: skip
        object.__setattr__(self, "unit_cell_devices", devices)

    _members: ClassVar[str] = "pulsed devices"
    _example: ClassVar[str] = "(analog.SoftBoundsDevice(), analog.SoftBoundsDevice())"

    @classmethod
    def _kinds(cls) -> tuple[type, ...]:
        """What ``unit_cell_devices`` may be."""
        return (PulsedDevice,)

    @property
    def devices(self) -> tuple[PulsedDevice, ...]:
        """All devices of a cell, those of cells in it among them: one array of a tile for each."""
        return tuple(d for one in self.unit_cell_devices for d in (one.devices if isinstance(one, UnitCell) else (one,)))

    @property
    def granularity(self) -> float:
        """Mean step of a pulse of all devices."""
        return sum(d.granularity for d in self.unit_cell_devices) / len(self.unit_cell_devices)

    def initial(self, rows: int, columns: int) -> dict[str, Array]:
        """State of the cells of a tile, arrays by name.

        Args:
            rows: Of the tile.
            columns: Of the tile.
        """
        return {}

    def visible(self, weights: Sequence[Tensor], state: Mapping[str, Tensor]) -> Tensor:
        """The weight of each cell.

        Args:
            weights: Of the devices, [rows, columns] each.
            state: What ``initial`` made, as it is now.
        """
        raise NotImplementedError(f"{type(self).__name__} has no visible: write the weight of a cell of its devices' weights")

    def parts(self, weights: Tensor) -> list[Tensor | None]:
        """What weights of the cells are written to each device; None for devices that stay as they are.

        Args:
            weights: Of the cells, [rows, columns].
        """
        raise NotImplementedError(f"{type(self).__name__} has no parts: write what is written to each device")

    def update(
        self, tile: Tile, x: Tensor, d: Tensor, lr: float | Tensor, parameters: UpdateParameters | None = None
    ) -> Tensor:  # fmt: skip
        """Update the devices of a tile.

        Args:
            tile: The tile.
            x: Inputs [samples, columns].
            d: Errors [samples, rows].
            lr: Learning rate.
            parameters: Of the update; those of the tile by default.

        Returns:
            The number of pulses that the devices of each cell got, together.
        """
        raise NotImplementedError(f"{type(self).__name__} has no update: write how its devices are updated")

    def pulses(
        self, tile: Tile, x: Tensor, d: Tensor, lr: float | Tensor, parameters: UpdateParameters | None = None
    ) -> Pulses:  # fmt: skip
        """The pulses of an update, of the mean step of all devices.

        Args:
            tile: The tile.
            x: Inputs [samples, columns].
            d: Errors [samples, rows].
            lr: Learning rate.
            parameters: Of the update; those of the tile by default.
        """
        return pulses_of(x, d, lr, parameters or tile.config.update, self.granularity, tile.generator)


def total_of(counts: Sequence[Tensor]) -> Tensor:
    """The sum of counts."""
    found = counts[0]
    for more in counts[1:]:
        found = found + more
    return found


@dataclass(frozen=True)
class VectorUnitCell(UnitCell):
    """W = Σ γₖ wₖ.

    Args:
        unit_cell_devices: The devices of a cell.
        gamma_vec: Factors γₖ; all 1 / n by default.
        update_policy: Which devices an update changes.
        first_update_idx: The device of SINGLE_FIXED, and that before the first of SINGLE_SEQUENTIAL.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> cell = fb.analog.VectorUnitCell((fb.analog.SoftBoundsDevice(),) * 2)
        >>> fb.analog.Tile(2, 3, fb.analog.RPUConfig(cell), seed=0).update(fb.ones((1, 3)), fb.ones((1, 2)), 0.1).shape
        (2, 3)
    """

    gamma_vec: tuple[float, ...] = ()
    update_policy: VectorUnitCellUpdatePolicy = VectorUnitCellUpdatePolicy.ALL
    first_update_idx: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        n = len(self.unit_cell_devices)
        if not isinstance(self.update_policy, VectorUnitCellUpdatePolicy):
            raise ConfigError(
                f"VectorUnitCell: update_policy is one of {', '.join(p.name for p in VectorUnitCellUpdatePolicy)}",
                repr(self.update_policy), "pass analog.VectorUnitCellUpdatePolicy.ALL",
            )  # fmt: skip
        given: Any = self.gamma_vec
        numbers = isinstance(given, tuple | list) and all(isinstance(g, Real) for g in given)
        gamma = (tuple(map(float, given)) or (1.0 / n,) * n) if numbers else ()
        if len(gamma) != n or not all(map(math.isfinite, gamma)):
            raise ConfigError(
                "VectorUnitCell: a factor of each device", f"{n} devices, gamma_vec={given!r:.80}", "pass as many"
            )
        object.__setattr__(self, "gamma_vec", gamma)
        if type(self.first_update_idx) is not int or not 0 <= self.first_update_idx < n:
            raise ConfigError(f"VectorUnitCell: first_update_idx is below {n}", repr(self.first_update_idx), "correct it")

    def initial(self, rows: int, columns: int) -> dict[str, Array]:
        sequential = self.update_policy is VectorUnitCellUpdatePolicy.SINGLE_SEQUENTIAL
        return {"device_of_vector": np.array(self.first_update_idx, np.int64)} if sequential else {}

    def visible(self, weights: Sequence[Tensor], state: Mapping[str, Tensor]) -> Tensor:
        return total_of([w * g for w, g in zip(weights, self.gamma_vec, strict=True)])

    def parts(self, weights: Tensor) -> list[Tensor | None]:
        if self.update_policy is VectorUnitCellUpdatePolicy.SINGLE_FIXED:
            chosen = self.first_update_idx
            factor = self.gamma_vec[chosen] or 1.0
            return [weights / factor if k == chosen else None for k in range(len(self.unit_cell_devices))]
        return [weights / (sum(self.gamma_vec) or 1.0)] * len(self.unit_cell_devices)

    def update(
        self, tile: Tile, x: Tensor, d: Tensor, lr: float | Tensor, parameters: UpdateParameters | None = None
    ) -> Tensor:  # fmt: skip
        pulses, policy, n = self.pulses(tile, x, d, lr, parameters), self.update_policy, len(tile.arrays)
        if policy is VectorUnitCellUpdatePolicy.ALL:
            return total_of([a.apply_pulses(pulses) for a in tile.arrays])
        if policy is VectorUnitCellUpdatePolicy.SINGLE_FIXED:
            return tile.arrays[self.first_update_idx].apply_pulses(pulses)
        samples = x.shape[0]
        if policy is VectorUnitCellUpdatePolicy.SINGLE_SEQUENTIAL:
            before = tile.state_of_cell["device_of_vector"]
            chosen = remainder(before.detach() + arange(1, samples + 1, device=x.device), n)
            before._rebind(remainder(before.detach() + samples, n))
        else:
            chosen = tile.generator.integers((samples,), low=0, high=n, dtype=int64, device=x.device)
        return total_of([a.apply_pulses(of_vectors(pulses, equal(chosen, k))) for k, a in enumerate(tile.arrays)])


def of_vectors(pulses: Pulses, chosen: Tensor) -> Pulses:
    """The pulses of some of the vectors.

    Args:
        pulses: Of all.
        chosen: Of which, bool [samples].
    """
    if pulses.trains is None:
        return replace(pulses, d=pulses.d * astype(chosen, pulses.d.dtype)[:, None])
    return replace(pulses, trains=pulses.trains.of_samples(chosen))


@dataclass(frozen=True)
class ReferenceUnitCell(UnitCell):
    """W = w₀ - w₁: the second device is a reference, which updates do not change.

    Args:
        unit_cell_devices: Two devices.

    Raises:
        ConfigError: There are not two.

    Example:
        >>> import firebrick as fb
        >>> len(fb.analog.ReferenceUnitCell((fb.analog.SoftBoundsDevice(),) * 2).unit_cell_devices)
        2
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_two(self)

    def visible(self, weights: Sequence[Tensor], state: Mapping[str, Tensor]) -> Tensor:
        return weights[0] - weights[1]

    def parts(self, weights: Tensor) -> list[Tensor | None]:
        return [weights, None]

    def update(
        self, tile: Tile, x: Tensor, d: Tensor, lr: float | Tensor, parameters: UpdateParameters | None = None
    ) -> Tensor:  # fmt: skip
        return tile.arrays[0].apply_pulses(self.pulses(tile, x, d, lr, parameters))


def check_kinds(name: str, io: Any, update: Any) -> None:
    """Raise ConfigError unless a cell's own reads and writes have settings of their kinds."""
    if not isinstance(io, IOParameters) or not isinstance(update, UpdateParameters):
        raise ConfigError(
            f"{name}: reads have IOParameters, and writes UpdateParameters", f"{io!r:.40} and {update!r:.40}", "pass these"
        )


def check_two(cell: UnitCell) -> None:
    """Raise ConfigError unless a cell has two devices."""
    if len(cell.unit_cell_devices) != 2:
        raise ConfigError(f"{type(cell).__name__}: two devices", f"{len(cell.unit_cell_devices)}", "pass two")
