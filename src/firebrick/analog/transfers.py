"""Training algorithms with a fast array, on which gradients are accumulated, and a slow one, to which it is transferred column
by column: Tiki-Taka, buffered, chopped and dynamic.

Their updates run as they are written: which column is transferred when is decided on the host, so a graph (``fb.jit``) does not
hold them, and a ``Learner`` runs such models uncompiled.

Source: Gokmen, Haensch, "Algorithm for training neural networks on resistive device arrays", Front. Neurosci. 14, 2020;
Gokmen, "Enabling training of neural networks on noisy hardware", Front. Artif. Intell. 4, 2021; Rasch, Carta, Fagbohungbe,
Gokmen, "Fast and robust analog in-memory deep neural network training", Nat. Commun. 15, 2024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from firebrick.analog.checks import check_flags, check_numbers
from firebrick.analog.device_array import pulses_of
from firebrick.analog.io_parameters import BoundManagementType, IOParameters, NoiseManagementType
from firebrick.analog.matvec import analog_product, check_no_drawn
from firebrick.analog.unit_cells import Array, UnitCell, check_kinds, check_two, refuse_in_graph, total_of
from firebrick.analog.update_parameters import UpdateParameters
from firebrick.core.docstrings import documented_like
from firebrick.core.dtypes import float32
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import asarray
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import clip, logical_xor, maximum, not_equal, trunc, where
from firebrick.functions.statistical import max as largest

if TYPE_CHECKING:
    from firebrick.analog.tile import Tile

_SINGLE = UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)


@dataclass(frozen=True)
class TransferCompound(UnitCell):
    """Tiki-Taka (version 1): gradients go to the first array, and columns of each array are added to the next.

    W = Σ γ^(n-1-k) wₖ, which is the last array alone for γ = 0. Every ``transfer_every``, column k is read, v = A eₖ, and the
    pulsed update of x = eₖ and d = -v is made on the next array; then k goes on.

    Args:
        unit_cell_devices: The devices, the fastest first, at least two.
        gamma: Factor γ.
        transfer_every: Mini-batches, or vectors, from one transfer to the next.
        units_in_mbatch: Whether these are mini-batches.
        n_reads_per_transfer: Columns of a transfer.
        fast_lr: Learning rate of the first array, or its factor; the rate itself if it is not above 0.
        scale_fast_lr: Whether it is a factor.
        transfer_lr: Learning rate of transfers, or its factor.
        scale_transfer_lr: Whether it is a factor.
        transfer_forward: Periphery of the reads, without noise management and bound management.
        transfer_update: The update by which columns are written.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> cell = fb.analog.TransferCompound(
        ...     (fb.analog.SoftBoundsDevice(dw_min=0.01), fb.analog.ConstantStepDevice()), gamma=0.1
        ... )
        >>> fb.analog.Tile(2, 3, fb.analog.RPUConfig(cell), seed=0).update(fb.ones((4, 3)), fb.ones((4, 2)), 0.1).shape
        (2, 3)
    """

    gamma: float = 0.0
    transfer_every: float = 1.0
    units_in_mbatch: bool = True
    n_reads_per_transfer: int = 1
    fast_lr: float = 1.0
    scale_fast_lr: bool = True
    transfer_lr: float = 1.0
    scale_transfer_lr: bool = True
    transfer_forward: IOParameters = field(default_factory=IOParameters)
    transfer_update: UpdateParameters = field(default_factory=UpdateParameters)

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        if len(self.unit_cell_devices) < 2:
            raise ConfigError(f"{name}: at least two devices", f"{len(self.unit_cell_devices)}", "pass two")
        check_flags(name, self, "units_in_mbatch", "scale_fast_lr", "scale_transfer_lr")
        check_numbers(name, self, "gamma", "transfer_lr", least=0.0)
        check_numbers(name, self, "fast_lr")
        check_numbers(name, self, "transfer_every", above=0.0)
        if type(self.n_reads_per_transfer) is not int or self.n_reads_per_transfer < 1:
            raise ConfigError(f"{name}: n_reads_per_transfer is an int above 0", repr(self.n_reads_per_transfer), "pass e.g. 1")
        io = self.transfer_forward
        check_kinds(name, io, self.transfer_update)
        check_no_drawn(f"{name}: transfer_forward", io)
        plain = replace(io, noise_management=NoiseManagementType.NONE, bound_management=BoundManagementType.NONE)
        object.__setattr__(self, "transfer_forward", plain)

    def initial(self, rows: int, columns: int) -> dict[str, Array]:
        return {"vectors": np.array(0, np.int64), "columns": np.zeros(len(self.unit_cell_devices) - 1, np.int64)}

    def visible(self, weights: Sequence[Tensor], state: Mapping[str, Tensor]) -> Tensor:
        n = len(weights)
        if self.gamma == 0.0:
            return weights[-1]
        return total_of([w * self.gamma ** (n - 1 - k) for k, w in enumerate(weights)])

    def parts(self, weights: Tensor) -> list[Tensor | None]:
        return [*([weights * 0.0] * (len(self.unit_cell_devices) - 1)), weights]

    def update(self, tile: Tile, x: Tensor, d: Tensor, lr: float | Tensor) -> Tensor:
        refuse_in_graph(self, "which column is transferred")
        rate = lr if isinstance(lr, Tensor) else asarray(lr, dtype=float32, device=x.device)
        samples, first, counts = x.shape[0], 0, []
        state = tile.state_of_cell
        vectors = int(state["vectors"].item())
        periods = self._periods(tile, samples)
        while first < samples:
            count = min(periods[0] - vectors % periods[0], samples - first, self._most_at_once(samples))
            part = slice(first, first + count)
            counts.append(self._gradient(tile, x[part], d[part], rate, samples))
            first, vectors = first + count, vectors + count
            for stage, period in enumerate(periods):
                if vectors % period == 0:
                    counts += self._transfer(tile, stage, rate)
        state["vectors"]._rebind(asarray(vectors, dtype=state["vectors"].dtype, device=x.device))
        return total_of(counts) if counts else asarray(np.zeros((tile.rows, tile.columns), np.int32), device=x.device)

    def _most_at_once(self, samples: int) -> int:
        """Vectors whose gradient may be one update."""
        return max(samples, 1)

    def _periods(self, tile: Tile, samples: int) -> list[int]:
        """Vectors from one transfer to the next, for each array but the last."""
        every = self.transfer_every * samples if self.units_in_mbatch else self.transfer_every
        found = [max(1, math.ceil(every))]
        for _ in self.unit_cell_devices[2:]:
            found.append(max(1, math.ceil(found[-1] * tile.rows / self.n_reads_per_transfer)))
        return found

    def _gradient(self, tile: Tile, x: Tensor, d: Tensor, rate: Tensor, samples: int) -> Tensor:
        """Update the first array."""
        fast = rate
        if self.fast_lr > 0.0:
            fast = rate * self.fast_lr if self.scale_fast_lr else rate * 0.0 + self.fast_lr
        return tile.arrays[0].apply_pulses(pulses_of(x, d, fast, tile.config.update, self.granularity, tile.generator))

    def _transfer_rate(self, rate: Tensor) -> Tensor:
        """The learning rate of a transfer."""
        return rate * self.transfer_lr if self.scale_transfer_lr else rate * 0.0 + self.transfer_lr

    def _transfer(self, tile: Tile, stage: int, rate: Tensor) -> list[Tensor]:
        """Transfer columns of an array to the next one; the numbers of pulses."""
        places = tile.state_of_cell["columns"]
        columns, counts = places.numpy().copy(), []
        for _ in range(self.n_reads_per_transfer):
            column = int(columns[stage])
            x = asarray((np.arange(tile.columns) == column)[None].astype(np.float32), device=rate.device)
            v = self._read(tile, stage, x)
            counts.append(self._write(tile, stage, column, x, v, self._transfer_rate(rate)))
            columns[stage] = (column + 1) % tile.columns
            self._after_read(tile, column)
        places._rebind(asarray(columns, device=rate.device))
        return counts

    def _read(self, tile: Tile, stage: int, x: Tensor) -> Tensor:
        """A column of an array, [1, rows]."""
        io, weights = self.transfer_forward, tile.arrays[stage].weight.detach()
        key = x if io.is_perfect else tile.generator.key(device=x.device)
        return analog_product(x, weights, io, {}, key, None)

    def _write(self, tile: Tile, stage: int, column: int, x: Tensor, v: Tensor, rate: Tensor) -> Tensor:
        """Write what was read to the next array."""
        to = tile.arrays[stage + 1]
        step = self.unit_cell_devices[stage + 1].granularity
        return to.apply_pulses(pulses_of(x, -v, rate, self.transfer_update, step, tile.generator))

    def _after_read(self, tile: Tile, column: int) -> None:
        """What follows the transfer of a column."""


@documented_like(TransferCompound)
@dataclass(frozen=True)
class BufferedTransferCompound(TransferCompound):
    """Tiki-Taka, version 2: reads are accumulated in a digital buffer, and whole steps of it are written.

    H[:, k] ← H[:, k] + lr · v; n = trunc(H / (``thres_scale`` · g)) pulses are written, at most ``desired_bl`` of
    ``transfer_update``.

    Args:
        thres_scale: Threshold of the buffer in steps of the array that is written.
        step: Learning rate of a write in steps of that array.
        momentum: Share of the buffer that a write leaves.
        forget_buffer: Whether it leaves that share of the whole buffer, not only of what was written.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> cell = fb.analog.BufferedTransferCompound((fb.analog.SoftBoundsDevice(), fb.analog.SoftBoundsDevice()))
        >>> cell.transfer_update.desired_bl
        1
    """

    transfer_update: UpdateParameters = _SINGLE
    thres_scale: float = 1.0
    step: float = 1.0
    momentum: float = 0.1
    forget_buffer: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(type(self).__name__, self, "thres_scale", "step", above=0.0)
        check_numbers(type(self).__name__, self, "momentum", least=0.0)
        check_flags(type(self).__name__, self, "forget_buffer")

    def initial(self, rows: int, columns: int) -> dict[str, Array]:
        stages = range(len(self.unit_cell_devices) - 1)
        return super().initial(rows, columns) | {f"buffer{k}": np.zeros((rows, columns), np.float32) for k in stages}

    def _write(self, tile: Tile, stage: int, column: int, x: Tensor, v: Tensor, rate: Tensor) -> Tensor:
        step = self.unit_cell_devices[stage + 1].granularity
        buffer, most = tile.state_of_cell[f"buffer{stage}"], self.transfer_update.desired_bl
        factor = absolute(rate) * (self.gamma if self.gamma > 0.0 else 1.0)
        held = buffer.detach()[:, column] + v[0] * factor
        threshold = self.thres_scale * step
        n = clip(trunc(held / threshold), -most, most)
        kept = held * self.momentum if self.forget_buffer else held - n * ((1.0 - self.momentum) * threshold)
        store_column(buffer, x, where(not_equal(n, 0.0), kept, held))
        return write_steps(self, tile, stage, x, n, step)


def store_column(buffer: Tensor, x: Tensor, values: Tensor) -> None:
    """Store a column of a buffer, where the one-hot vector x is 1."""
    buffer._rebind(where(x > 0.5, values[:, None], buffer.detach()))


def write_steps(cell: Any, tile: Tile, stage: int, x: Tensor, n: Tensor, step: float) -> Tensor:
    """Write whole steps to a column of the next array."""
    rate = asarray(cell.step * step, dtype=float32, device=x.device)
    found: Tensor = tile.arrays[stage + 1].apply_pulses(
        pulses_of(x, -n[None], rate, cell.transfer_update, step, tile.generator)
    )
    return found


@documented_like(TransferCompound)
@dataclass(frozen=True)
class ChoppedTransferCompound(TransferCompound):
    """Chopped Tiki-Taka (c-TTv2): signs of lines change from time to time, so that the offset of the first array cancels.

    The chopper of a line turns the sign of its gradients and of what is read. H ← H ± lr · v / g; whole steps of H are written.

    Args:
        in_chop_prob: Probability that the chopper of a column changes after its transfer.
        in_chop_random: Whether it changes at random, not at every max(ceil(1 / p), 2)-th transfer.
        out_chop_prob: Probability that the chopper of a row changes after all columns were transferred.
        buffer_granularity: Threshold of the buffer in steps of the first array.
        auto_granularity: If above 0, the threshold is multiplied by this over the number of columns and ``transfer_every``.
        step: Learning rate of a write in steps of the second array.
        momentum: Share of the buffer that a write leaves.
        forget_buffer: Whether it leaves that share of the whole buffer, not only of what was written.
        no_buffer: Whether there is no buffer: a read counts alone.
        auto_scale: Whether the rate of the first array follows running means of the largest x and d.
        auto_momentum: Of these means, for a mini-batch.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> cell = fb.analog.ChoppedTransferCompound((fb.analog.SoftBoundsDevice(), fb.analog.SoftBoundsDevice()))
        >>> cell.in_chop_prob, cell.units_in_mbatch
        (0.1, False)
    """

    units_in_mbatch: bool = False
    scale_fast_lr: bool = False
    transfer_update: UpdateParameters = _SINGLE
    in_chop_prob: float = 0.1
    in_chop_random: bool = True
    out_chop_prob: float = 0.0
    buffer_granularity: float = 1.0
    auto_granularity: float = 0.0
    step: float = 1.0
    momentum: float = 0.0
    forget_buffer: bool = True
    no_buffer: bool = False
    auto_scale: bool = False
    auto_momentum: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        check_two(self)
        check_flags(name, self, "in_chop_random", "forget_buffer", "no_buffer", "auto_scale")
        check_numbers(name, self, "buffer_granularity", "step", above=0.0)
        check_numbers(name, self, "auto_granularity", "momentum", least=0.0)
        for key in ("in_chop_prob", "out_chop_prob", "auto_momentum"):
            value = getattr(self, key)
            if type(value) not in (int, float) or not 0.0 <= value <= 1.0:
                raise ConfigError(f"{name}: {key} is in [0, 1]", f"{key}={value!r:.60}", "correct it")
        if self.n_reads_per_transfer != 1 or self.gamma != 0.0:
            given = f"{self.n_reads_per_transfer} and {self.gamma}"
            raise ConfigError(f"{name}: n_reads_per_transfer is 1, and gamma is 0", given, "leave them out")

    def initial(self, rows: int, columns: int) -> dict[str, Array]:
        return super().initial(rows, columns) | {
            "buffer": np.zeros((rows, columns), np.float32), "chopper_in": np.zeros(columns, np.bool_),
            "chopper_out": np.zeros(rows, np.bool_), "sweeps": np.array(0, np.int64),
            "mean_x": np.array(0.0, np.float32), "mean_d": np.array(0.0, np.float32),
        }  # fmt: skip

    @property
    def chop_period(self) -> int:
        """Transfers of a column from one change of its chopper to the next, where they are regular."""
        return max(math.ceil(1.0 / self.in_chop_prob), 2) if self.in_chop_prob > 0.0 else 0

    def _most_at_once(self, samples: int) -> int:
        return 1 if self.auto_scale else max(samples, 1)

    def _gradient(self, tile: Tile, x: Tensor, d: Tensor, rate: Tensor, samples: int) -> Tensor:
        state = tile.state_of_cell
        if self.auto_scale:
            share = (1.0 - self.auto_momentum) / samples
            means = []
            for name, values in (("mean_x", x), ("mean_d", d)):
                top, mean = largest(absolute(values)), state[name].detach()
                running = where(mean > 0.0, mean * (1.0 - share) + top * share, top)
                state[name]._rebind(where(top > 0.0, running, mean))
                means.append(state[name].detach())
            scale = self.fast_lr * tile.config.update.desired_bl * self._fast_step
            fast = scale / maximum(means[0] * means[1], 1e-30)
            fast = fast * rate if self.scale_fast_lr else fast
        else:
            fast = rate
            if self.fast_lr > 0.0:
                fast = rate * self.fast_lr if self.scale_fast_lr else rate * 0.0 + self.fast_lr
        x = where(state["chopper_in"].detach(), -x, x)
        d = where(state["chopper_out"].detach(), -d, d)
        return tile.arrays[0].apply_pulses(pulses_of(x, d, fast, tile.config.update, self.granularity, tile.generator))

    @property
    def _fast_step(self) -> float:
        """Step of the first array, by which its rate and the buffer are counted."""
        return self.unit_cell_devices[0].granularity

    def _threshold(self, tile: Tile) -> float:
        """What a read is divided by."""
        found = self.buffer_granularity * self._fast_step
        return found * self.auto_granularity / (tile.columns * self.transfer_every) if self.auto_granularity > 0.0 else found

    def _signal(self, tile: Tile, column: int, x: Tensor, v: Tensor) -> Tensor:
        """What of a read goes to the buffer, [rows]."""
        return v

    def _writes(self, tile: Tile) -> bool:
        """Whether whole steps are written now."""
        return True

    def _write(self, tile: Tile, stage: int, column: int, x: Tensor, v: Tensor, rate: Tensor) -> Tensor:
        state, most = tile.state_of_cell, self.transfer_update.desired_bl
        turned = logical_xor(state["chopper_out"].detach(), state["chopper_in"].detach()[column])
        signal = self._signal(tile, column, x, v[0])
        part = where(turned, -signal, signal) * (absolute(rate) / self._threshold(tile))
        held = part if self.no_buffer else state["buffer"].detach()[:, column] + part
        n = clip(trunc(held), -most, most)
        kept = held * self.momentum if self.forget_buffer else held - n * (1.0 - self.momentum)
        store_column(state["buffer"], x, where(not_equal(n, 0.0), kept, held))
        n = n if self._writes(tile) else n * 0.0
        return write_steps(self, tile, stage, x, n, self.unit_cell_devices[1].granularity)

    def _after_read(self, tile: Tile, column: int) -> None:
        state, device = tile.state_of_cell, tile.weight.device
        sweeps = int(state["sweeps"].item())
        if self.in_chop_prob > 0.0:
            chopper = state["chopper_in"].numpy().copy()
            if self.in_chop_random:
                chopper[column] ^= bool(tile.generator.bernoulli((), p=self.in_chop_prob, device=device).item())
            else:
                chopper[column] ^= sweeps % self.chop_period == self.chop_period - 1
            state["chopper_in"]._rebind(asarray(chopper, device=device))
        if column == tile.columns - 1:
            state["sweeps"]._rebind(asarray(sweeps + 1, dtype=state["sweeps"].dtype, device=device))
            if self.out_chop_prob > 0.0:
                flips = tile.generator.bernoulli((tile.rows,), p=self.out_chop_prob, device=device)
                state["chopper_out"]._rebind(logical_xor(state["chopper_out"].detach(), flips))


@documented_like(ChoppedTransferCompound)
@dataclass(frozen=True)
class DynamicTransferCompound(ChoppedTransferCompound):
    """Chopped transfer with a dynamic reference (AGAD): what is read counts from its mean in the period of the chopper before.

    Args:
        tail_weightening: Weight of the latest reads in that mean, for a period of the chopper.
        buffer_cap: If above 0, and without ``forget_buffer``, the buffer is clipped to this times ``desired_bl`` of
            ``transfer_update``.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> cell = fb.analog.DynamicTransferCompound((fb.analog.SoftBoundsDevice(), fb.analog.SoftBoundsDevice()))
        >>> cell.chop_period
        10
    """

    in_chop_random: bool = False
    tail_weightening: float = 5.0
    buffer_cap: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(type(self).__name__, self, "tail_weightening", above=0.0)
        check_numbers(type(self).__name__, self, "buffer_cap", least=0.0)
        if self.in_chop_prob == 0.0:
            raise ConfigError("DynamicTransferCompound: in_chop_prob is above 0", "0.0", "pass e.g. 0.1")

    def initial(self, rows: int, columns: int) -> dict[str, Array]:
        zeros = {n: np.zeros((rows, columns), np.float32) for n in ("mean_now", "mean_past")}
        return super().initial(rows, columns) | zeros | {"flipped": np.zeros(columns, np.bool_)}

    def _signal(self, tile: Tile, column: int, x: Tensor, v: Tensor) -> Tensor:
        state, flipped = tile.state_of_cell, tile.state_of_cell["flipped"].numpy().copy()
        now = state["mean_now"].detach()[:, column]
        if flipped[column]:
            store_column(state["mean_past"], x, now)
            flipped[column] = False
            state["flipped"]._rebind(asarray(flipped, device=x.device))
        share = min(self.tail_weightening / self.chop_period, 1.0)
        store_column(state["mean_now"], x, now * (1.0 - share) + v * share)
        return v - state["mean_past"].detach()[:, column]

    def _writes(self, tile: Tile) -> bool:
        return int(tile.state_of_cell["sweeps"].item()) > self.chop_period

    def _write(self, tile: Tile, stage: int, column: int, x: Tensor, v: Tensor, rate: Tensor) -> Tensor:
        counts = super()._write(tile, stage, column, x, v, rate)
        if self.buffer_cap > 0.0 and not self.forget_buffer:
            limit = self.buffer_cap * self.transfer_update.desired_bl
            buffer = tile.state_of_cell["buffer"]
            buffer._rebind(clip(buffer.detach(), -limit, limit))
        return counts

    def _after_read(self, tile: Tile, column: int) -> None:
        state = tile.state_of_cell
        before = bool(state["chopper_in"].numpy()[column])
        super()._after_read(tile, column)
        if bool(state["chopper_in"].numpy()[column]) != before:
            flipped = state["flipped"].numpy().copy()
            flipped[column] = True
            state["flipped"]._rebind(asarray(flipped, device=tile.weight.device))
