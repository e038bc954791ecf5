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
from typing import TYPE_CHECKING

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
from firebrick.functions.elementwise import clip, logical_and, logical_xor, maximum, not_equal, sign, trunc, where
from firebrick.functions.movement import matrix_transpose
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
        gamma_vec: Factors of all devices, in place of the powers of γ.
        transfer_every: Mini-batches, or vectors, from one transfer to the next.
        transfer_every_vec: Likewise, of each array but the last; by default the later ones are transferred once for each
            sweep of the one before.
        units_in_mbatch: Whether these are mini-batches.
        n_reads_per_transfer: Columns of a transfer.
        transfer_columns: Whether columns are transferred, not rows, which are read by the backward product.
        random_selection: Whether a transfer begins with a random column, not with the next one.
        with_reset_prob: Probability that a device of a column that was read is reset.
        fast_lr: Learning rate of the first array, or its factor; the rate itself if it is not above 0.
        scale_fast_lr: Whether it is a factor.
        transfer_lr: Learning rate of transfers, or its factor.
        transfer_lr_vec: Likewise, of each array but the last.
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
    gamma_vec: tuple[float, ...] = ()
    transfer_every_vec: tuple[float, ...] = ()
    transfer_lr_vec: tuple[float, ...] = ()
    transfer_columns: bool = True
    random_selection: bool = False
    with_reset_prob: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        n = len(self.unit_cell_devices)
        if n < 2:
            raise ConfigError(f"{name}: at least two devices", f"{n}", "pass two")
        check_flags(name, self, "units_in_mbatch", "scale_fast_lr", "scale_transfer_lr", "transfer_columns", "random_selection")
        check_numbers(name, self, "gamma", "transfer_lr", "with_reset_prob", least=0.0)
        check_numbers(name, self, "fast_lr")
        self._check_period()
        for key, many, least in (("gamma_vec", n, None), ("transfer_every_vec", n - 1, 0.0), ("transfer_lr_vec", n - 1, 0.0)):
            values = getattr(self, key)
            numbers = isinstance(values, (tuple, list)) and all(type(v) in (int, float) and math.isfinite(v) for v in values)
            if not numbers or (values and len(values) != many) or (least is not None and any(v <= least for v in values)):
                kind = "numbers" if least is None else "numbers above 0"
                raise ConfigError(f"{name}: {key} has {many} {kind}, or none", f"{values!r:.60}", "correct it")
            object.__setattr__(self, key, tuple(map(float, values)))
        if self.gamma_vec and self.gamma_vec[-1] == 0.0:
            raise ConfigError(f"{name}: gamma_vec ends with a number other than 0", f"{self.gamma_vec}", "pass e.g. 1.0 there")
        if self.with_reset_prob > 1.0 or (self.with_reset_prob and not self.transfer_columns):
            raise ConfigError(
                f"{name}: with_reset_prob is a probability, of devices of columns",
                f"{self.with_reset_prob} with transfer_columns={self.transfer_columns}", "correct it",
            )  # fmt: skip
        if type(self.n_reads_per_transfer) is not int or self.n_reads_per_transfer < 1:
            raise ConfigError(f"{name}: n_reads_per_transfer is an int above 0", repr(self.n_reads_per_transfer), "pass e.g. 1")
        io = self.transfer_forward
        check_kinds(name, io, self.transfer_update)
        check_no_drawn(f"{name}: transfer_forward", io)
        plain = replace(io, noise_management=NoiseManagementType.NONE, bound_management=BoundManagementType.NONE)
        object.__setattr__(self, "transfer_forward", plain)

    def initial(self, rows: int, columns: int) -> dict[str, Array]:
        return {"vectors": np.array(0, np.int64), "columns": np.zeros(len(self.unit_cell_devices) - 1, np.int64)}

    def _check_period(self) -> None:
        check_numbers(type(self).__name__, self, "transfer_every", above=0.0)

    @property
    def factors(self) -> tuple[float, ...]:
        """Factors of the devices in the weight of a cell."""
        n = len(self.unit_cell_devices)
        if self.gamma_vec:
            return self.gamma_vec
        return tuple(self.gamma ** (n - 1 - k) if self.gamma else float(k == n - 1) for k in range(n))

    def visible(self, weights: Sequence[Tensor], state: Mapping[str, Tensor]) -> Tensor:
        found = [w if f == 1.0 else w * f for w, f in zip(weights, self.factors, strict=True) if f != 0.0]
        return total_of(found)

    def parts(self, weights: Tensor) -> list[Tensor | None]:
        last = weights if self.factors[-1] == 1.0 else weights / self.factors[-1]
        return [*([weights * 0.0] * (len(self.unit_cell_devices) - 1)), last]

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
        unit = samples if self.units_in_mbatch else 1
        if self.transfer_every_vec:
            return [max(1, math.ceil(every * unit)) for every in self.transfer_every_vec]
        found = [max(1, math.ceil(self.transfer_every * unit))]
        for _ in self.unit_cell_devices[2:]:
            found.append(max(1, math.ceil(found[-1] * tile.rows / self.n_reads_per_transfer)))
        return found

    def _gradient(self, tile: Tile, x: Tensor, d: Tensor, rate: Tensor, samples: int) -> Tensor:
        """Update the first array."""
        fast = self._fast_rate(rate)
        return tile.arrays[0].apply_pulses(pulses_of(x, d, fast, tile.config.update, self.granularity, tile.generator))

    def _fast_rate(self, rate: Tensor) -> Tensor:
        """The learning rate of the first array, with the sign of the update's; 0 if that is 0."""
        if self.fast_lr <= 0.0:
            return rate
        return (rate if self.scale_fast_lr else sign(rate)) * self.fast_lr

    def _transfer_rate(self, stage: int, rate: Tensor) -> Tensor:
        """The learning rate of a transfer, which is positive: the first array has the sign of the update."""
        own = self.transfer_lr_vec[stage] if self.transfer_lr_vec else self.transfer_lr
        return absolute(rate) * own if self.scale_transfer_lr else rate * 0.0 + own

    def _transfer(self, tile: Tile, stage: int, rate: Tensor) -> list[Tensor]:
        """Transfer columns, or rows, of an array to the next one; the numbers of pulses."""
        places = tile.state_of_cell["columns"]
        lines, counts = places.numpy().copy(), []
        many = tile.columns if self.transfer_columns else tile.rows
        if self.random_selection:
            lines[stage] = int(tile.generator.integers((), low=0, high=many, device=rate.device).item())
        for _ in range(self.n_reads_per_transfer):
            line = int(lines[stage])
            x = asarray((np.arange(many) == line)[None].astype(np.float32), device=rate.device)
            v = self._read(tile, stage, x)
            if self.with_reset_prob:
                size = (tile.rows, tile.columns)
                chosen = tile.generator.bernoulli(size, p=self.with_reset_prob, device=rate.device)
                tile.arrays[stage].reset(logical_and(chosen, x > 0.5))
            counts.append(self._write(tile, stage, line, x, v, self._transfer_rate(stage, rate)))
            lines[stage] = (line + 1) % many
            self._after_read(tile, line)
        places._rebind(asarray(lines, device=rate.device))
        return counts

    def _read(self, tile: Tile, stage: int, x: Tensor) -> Tensor:
        """A column of an array, [1, rows], or a row, [1, columns]."""
        io, weights = self.transfer_forward, tile.arrays[stage].weight.detach()
        key = x if io.is_perfect else tile.generator.key(device=x.device)
        return analog_product(x, weights if self.transfer_columns else matrix_transpose(weights), io, {}, key, None)

    def _write(self, tile: Tile, stage: int, column: int, x: Tensor, v: Tensor, rate: Tensor) -> Tensor:
        """Write what was read to the next array."""
        return self._pulsed(tile, stage, x, -v, rate)

    def _pulsed(self, tile: Tile, stage: int, line: Tensor, values: Tensor, rate: Tensor) -> Tensor:
        """The pulsed update of the next array whose errors, or inputs, are 1 on a line, and the others these values."""
        step = self.unit_cell_devices[stage + 1].granularity
        x, d = (line, values) if self.transfer_columns else (values, line)
        return tile.arrays[stage + 1].apply_pulses(pulses_of(x, d, rate, self.transfer_update, step, tile.generator))

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
        of, to = self.factors[stage : stage + 2]
        factor = absolute(rate) * (of / to if of > 0.0 and to > 0.0 else 1.0)
        held = (buffer.detach()[:, column] if self.transfer_columns else buffer.detach()[column]) + v[0] * factor
        threshold = self.thres_scale * step
        n = clip(trunc(held / threshold), -most, most)
        kept = held * self.momentum if self.forget_buffer else held - n * ((1.0 - self.momentum) * threshold)
        store_line(buffer, x, where(not_equal(n, 0.0), kept, held), self.transfer_columns)
        return self._pulsed(tile, stage, x, -n[None], asarray(self.step * step, dtype=float32, device=x.device))


def store_line(buffer: Tensor, x: Tensor, values: Tensor, columns: bool = True) -> None:
    """Store a column of a buffer, or a row, where the one-hot vector x is 1."""
    if columns:
        buffer._rebind(where(x > 0.5, values[:, None], buffer.detach()))
    else:
        buffer._rebind(where(matrix_transpose(x) > 0.5, values, buffer.detach()))


@documented_like(TransferCompound)
@dataclass(frozen=True)
class ChoppedTransferCompound(TransferCompound):
    """Chopped Tiki-Taka (c-TTv2): signs of lines change from time to time, so that the offset of the first array cancels.

    The chopper of a line turns the sign of its gradients and of what is read. H ← H ± lr · v / g; whole steps of H are written.
    With γ (residual learning) W = γ · C A + w₁, where C has the signs of the choppers: A learns what the second array misses.
    ``transfer_every`` below 0 is times the number of states of the first device over the columns, in vectors.

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
        correct_gradient_magnitudes: Whether the buffer counts what was read by the learning rate of the first array, in steps
            of the second.

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
    correct_gradient_magnitudes: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        check_two(self)
        check_flags(name, self, "in_chop_random", "forget_buffer", "no_buffer", "auto_scale", "correct_gradient_magnitudes")
        check_numbers(name, self, "buffer_granularity", "step", above=0.0)
        check_numbers(name, self, "auto_granularity", "momentum", least=0.0)
        for key in ("in_chop_prob", "out_chop_prob", "auto_momentum"):
            value = getattr(self, key)
            if type(value) not in (int, float) or not 0.0 <= value <= 1.0:
                raise ConfigError(f"{name}: {key} is in [0, 1]", f"{key}={value!r:.60}", "correct it")
        plain = {
            "n_reads_per_transfer": 1, "transfer_columns": True, "random_selection": False, "with_reset_prob": 0.0,
            "transfer_every_vec": (), "transfer_lr_vec": (), "gamma_vec": (),
        }  # fmt: skip
        for key, value in plain.items():
            if getattr(self, key) != value:
                raise ConfigError(
                    f"{name}: columns are transferred one by one in turn, so {key} is {value}", f"{getattr(self, key)}",
                    "leave it out",
                )  # fmt: skip

    def _check_period(self) -> None:
        check_numbers(type(self).__name__, self, "transfer_every")
        if self.transfer_every == 0.0:
            raise ConfigError(f"{type(self).__name__}: transfer_every is a number other than 0", "0.0", "pass e.g. 1.0")

    def _periods(self, tile: Tile, samples: int) -> list[int]:
        if self.transfer_every > 0.0:
            return super()._periods(tile, samples)
        device = self.unit_cell_devices[0]
        states = (device.w_max - device.w_min) / self._fast_step
        return [max(1, math.ceil(states / tile.columns * -self.transfer_every))]

    def visible(self, weights: Sequence[Tensor], state: Mapping[str, Tensor]) -> Tensor:
        if self.gamma == 0.0:
            return weights[1]
        turned = logical_xor(state["chopper_out"].detach()[:, None], state["chopper_in"].detach()[None])
        return where(turned, -weights[0], weights[0]) * self.gamma + weights[1]

    def initial(self, rows: int, columns: int) -> dict[str, Array]:
        return super().initial(rows, columns) | {
            "buffer": np.zeros((rows, columns), np.float32), "chopper_in": np.zeros(columns, np.bool_),
            "chopper_out": np.zeros(rows, np.bool_), "sweeps": np.array(0, np.int64),
            "mean_x": np.array(0.0, np.float32), "mean_d": np.array(0.0, np.float32),
            "rate_of_fast": np.array(0.0, np.float32),
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
            fast = fast * (rate if self.scale_fast_lr else sign(rate))
        else:
            fast = self._fast_rate(rate)
        state["rate_of_fast"]._rebind(fast)
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
        if self.auto_granularity > 0.0:
            found = found * self.auto_granularity / (tile.columns * abs(self.transfer_every))
        return found

    def _share(self, tile: Tile, rate: Tensor) -> Tensor:
        """What a read is multiplied by."""
        if not self.correct_gradient_magnitudes:
            return absolute(rate) / self._threshold(tile)
        steps = self.unit_cell_devices[1].granularity / self._fast_step
        return (
            absolute(rate)
            / maximum(absolute(tile.state_of_cell["rate_of_fast"].detach()), 1e-30)
            / (self._threshold(tile) * steps)
        )

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
        part = where(turned, -signal, signal) * self._share(tile, rate)
        held = part if self.no_buffer else state["buffer"].detach()[:, column] + part
        n = clip(trunc(held), -most, most)
        kept = held * self.momentum if self.forget_buffer else held - n * (1.0 - self.momentum)
        store_line(state["buffer"], x, where(not_equal(n, 0.0), kept, held))
        n = n if self._writes(tile) else n * 0.0
        written = asarray(self.step * self.unit_cell_devices[1].granularity, dtype=float32, device=x.device)
        return self._pulsed(tile, stage, x, -n[None], written)

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
        experimental_correct_accumulation: Whether a read counts less the longer the first array has gathered since its chopper
            changed.
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
    experimental_correct_accumulation: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers(type(self).__name__, self, "tail_weightening", above=0.0)
        check_numbers(type(self).__name__, self, "buffer_cap", least=0.0)
        check_flags(type(self).__name__, self, "experimental_correct_accumulation")
        if self.in_chop_prob == 0.0:
            raise ConfigError("DynamicTransferCompound: in_chop_prob is above 0", "0.0", "pass e.g. 0.1")

    def initial(self, rows: int, columns: int) -> dict[str, Array]:
        zeros = {n: np.zeros((rows, columns), np.float32) for n in ("mean_now", "mean_past")}
        return super().initial(rows, columns) | zeros | {"flipped": np.zeros(columns, np.bool_)}

    def _signal(self, tile: Tile, column: int, x: Tensor, v: Tensor) -> Tensor:
        state, flipped = tile.state_of_cell, tile.state_of_cell["flipped"].numpy().copy()
        now = state["mean_now"].detach()[:, column]
        if flipped[column]:
            store_line(state["mean_past"], x, now)
            flipped[column] = False
            state["flipped"]._rebind(asarray(flipped, device=x.device))
        share = min(self.tail_weightening / self.chop_period, 1.0)
        store_line(state["mean_now"], x, now * (1.0 - share) + v * share)
        return v - state["mean_past"].detach()[:, column]

    def _share(self, tile: Tile, rate: Tensor) -> Tensor:
        share = super()._share(tile, rate)
        if not self.experimental_correct_accumulation:
            return share
        reads = int(tile.state_of_cell["sweeps"].item()) % self.chop_period + 1
        return share / min(float(reads), 1.0 / self._fast_step)

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
