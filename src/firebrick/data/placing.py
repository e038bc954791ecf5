"""Batches from the host to their devices: whole on one, or divided over several; dtypes and labels are given here."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from firebrick.backends.registry import find_device
from firebrick.core import dtypes
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.data.assembly import Job, Made
from firebrick.data.errors import LoaderError
from firebrick.data.structure import Structure

Array = np.ndarray[Any, Any]
Divide = Callable[[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class Portion:
    """One rank's part of a batch.

    Attributes:
        rows: Of the whole batch.
        piece: The rank's rows of it, as a batch; None if it has none.
    """

    rows: int
    piece: Any


@dataclass(frozen=True, slots=True)
class Placing:
    """Where batches go.

    Attributes:
        devices: One, or those over which ``divide`` divides the rows.
        divide: None to place whole batches on the one device.
        dtype: Floating dtype of floating arrays.
        only: The one piece that is placed, where the others are other processes'; None for all.
    """

    devices: tuple[Device, ...]
    divide: Divide | None
    dtype: DType
    only: int | None = None

    def part(self, job: Job) -> Job:
        """The rows of a batch that the one piece has; all of one that is not divided right, which is refused in its turn."""
        assert self.only is not None
        try:
            low, high = self._bounds(len(job.indices))[self.only]
        except Exception:  # noqa: BLE001 - raised again where the batch is placed
            return job
        return job.part(low, high)

    def __call__(self, made: Made, job: Job, label: str) -> Any:
        """The batch as tensors labelled ``label``, or a list of its pieces, None for a device without rows; or the one portion.

        Raises:
            LoaderError: Something that is no number, integers out of the device's range, rows that are not divided.
        """
        if self.divide is None:
            return self._batch(made.arrays, self.devices[0], label, made.structure)
        self._check_rows(made, label)
        if job.rows >= 0:
            assert self.only is not None
            return Portion(job.rows, self._piece(made, (0, made.rows), job.low, self.devices[self.only], label))
        pieces = [
            self._piece(made, rows, 0, device, label) if self.only in (None, rank) else None
            for rank, (device, rows) in enumerate(zip(self.devices, self._bounds(made.rows), strict=True))
        ]
        return pieces if self.only is None else Portion(made.rows, pieces[self.only])

    def _piece(self, made: Made, rows: tuple[int, int], before: int, device: Device, label: str) -> Any:
        """Some rows of what was made, of whose batch there are others before; None for no rows."""
        low, high = rows
        if low == high:
            return None
        first, last = before + low, before + high - 1
        which = f"row {first}" if first == last else f"rows {first} to {last}"
        return self._batch([a[low:high] for a in made.arrays], device, f"{which} of {label}", made.structure)

    def _check_rows(self, made: Made, label: str) -> None:
        for i, host in enumerate(made.arrays):
            if host.ndim == 0 or len(host) != made.rows:
                raise LoaderError(
                    f"each array of a batch that is divided over devices has its {made.rows} rows",
                    f"{_name(made.structure, i)} of {label}: {host.dtype}{list(host.shape)}",
                    "let transform keep the batch axis first",
                )

    def _bounds(self, rows: int) -> list[tuple[int, int]]:
        """The first row of each device's piece of a batch, and the one behind its last."""
        assert self.divide is not None
        counts = [operator.index(c) for c in self.divide(rows)]
        if len(counts) != len(self.devices) or min(counts) < 0 or sum(counts) != rows:
            raise LoaderError(
                f"divide({rows}) gives {len(self.devices)} numbers of rows, from 0, that sum to {rows}",
                repr(counts),
                "give each row of a batch to one device",
            )
        return list(pairwise((0, *accumulate(counts))))

    def _batch(self, hosts: list[Array], device: Device, label: str, structure: Structure) -> Any:
        try:
            return structure.build(iter([self._tensor(host, device, label, i) for i, host in enumerate(hosts)]))
        except LoaderError as e:
            which = e.context["which"]
            received = e.received.replace(f"arrays[{which}]", _name(structure, which), 1)
            raise LoaderError(e.expected, received, e.remedy) from None

    def _tensor(self, host: Array, device: Device, label: str, which: int) -> Tensor:
        kind = host.dtype.kind
        if kind == "f" or host.dtype == dtypes.bfloat16.np:
            goal = self.dtype
        elif kind in "iu":
            goal = as_dtype(device.backend.default_int(device))
            if host.size and not np.can_cast(host.dtype, goal.np):
                limits = np.iinfo(goal.np)
                low, high = int(host.min()), int(host.max())
                if low < limits.min or high > limits.max:
                    raise LoaderError(
                        f"integers of a batch on {device} lie in the range of {goal.name}",
                        f"arrays[{which}] of {label}: {low} to {high}",
                        "renumber them in the data set",
                        which=which,
                    )
        elif kind in "bc":
            goal = as_dtype(host.dtype)
        else:
            raise LoaderError(
                "a batch holds numbers",
                f"arrays[{which}] of {label}: {host.dtype}{list(host.shape)}",
                "convert them in transform",
                which=which,
            )
        try:
            with np.errstate(over="raise"):
                cast = host.astype(goal.np, copy=False)
        except FloatingPointError:
            sizes = np.where(np.isfinite(host), np.abs(host), 0.0)
            raise LoaderError(
                f"numbers of a batch lie in the range of {goal.name}",
                f"arrays[{which}] of {label}: up to {sizes.max():g} in {host.dtype}",
                f"scale them in the data set, or pass dtype={str(host.dtype)!r} to the loader",
                which=which,
            ) from None
        tensor: Tensor = hooks.from_host(cast, device)
        tensor.label = label
        return tensor


def _name(structure: Structure, which: int) -> str:
    """What messages call an array of a batch."""
    return f"arrays[{which}]" if structure.kind is None or structure.flat else f"batch{structure.paths()[which]}"


def places_of(what: str, devices: Sequence[Device | str]) -> tuple[Device, ...]:
    """The devices that a list names.

    Raises:
        LoaderError: It is no list.
    """
    if isinstance(devices, (str, Device)):
        raise LoaderError(f"{what} takes a list of devices", repr(devices), f'write ["{devices}"]')
    return tuple(find_device(d) for d in devices)
