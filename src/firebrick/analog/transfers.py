"""Training algorithms with a fast array, on which gradients are accumulated, and a slow one, to which it is transferred column
by column: Tiki-Taka, buffered, chopped and dynamic.

A mini-batch is done in parts in which each line of an array is read at most once. Cross-points of one line do not depend on
others, so all reads of a part are done at once: lines that are read get the pulses before their read, are read, and get the
pulses after it. Which lines these are, and when, are tensors, so updates run in graphs (``fb.jit``) too.

Source: Gokmen, Haensch, "Algorithm for training neural networks on resistive device arrays", Front. Neurosci. 14, 2020;
Gokmen, "Enabling training of neural networks on noisy hardware", Front. Artif. Intell. 4, 2021; Rasch, Carta, Fagbohungbe,
Gokmen, "Fast and robust analog in-memory deep neural network training", Nat. Commun. 15, 2024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from firebrick.analog.checks import check_flags, check_numbers
from firebrick.analog.device_array import Devices, Pulses, pulses_of, runs_as_program
from firebrick.analog.io_parameters import BoundManagementType, IOParameters, NoiseManagementType
from firebrick.analog.matvec import analog_product, check_no_drawn
from firebrick.analog.typed_kernel import reads as reads_of
from firebrick.analog.typed_kernel import results, typed_kernel
from firebrick.analog.unit_cells import Array, UnitCell, check_kinds, check_two, total_of
from firebrick.analog.update_parameters import UpdateParameters
from firebrick.core.commit import Commit
from firebrick.core.docstrings import documented_like
from firebrick.core.dtypes import float32, int32, int64
from firebrick.core.errors import ConfigError
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import asarray
from firebrick.functions.creation import zeros
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import (
    astype,
    clip,
    equal,
    greater,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_xor,
    maximum,
    minimum,
    not_equal,
    remainder,
    sign,
    trunc,
    where,
)
from firebrick.functions.indexing import take
from firebrick.functions.kernels import kernel
from firebrick.functions.movement import matrix_transpose, reshape
from firebrick.functions.ranges import arange
from firebrick.functions.statistical import max as largest
from firebrick.functions.statistical import sum as total
from firebrick.functions.utility import any as any_of
from firebrick.graph import jit, scan
from firebrick.random import Generator

if TYPE_CHECKING:
    from firebrick.analog.tile import Tile

_SINGLE = UpdateParameters(desired_bl=1, update_management=False, update_bl_management=False)
_NEVER = 1 << 62
"""Vectors that no run has."""


State = dict[str, Tensor]
Carry = tuple[list[tuple[Tensor, Tensor]], State, Tensor]
"""Weights of the arrays, the state of the cell, and the numbers of pulses."""


@dataclass(frozen=True)
class Reads:
    """Which lines of an array are read in a part of a mini-batch, each of them at most once.

    Attributes:
        first: The first line, 0-d; the others follow it, in turn.
        after: The vector after which each is read, int64 [reads].
        valid: Whether that is in this part, bool [reads]; no read behind one that is not.
        count: Number of reads.
        many: Number of lines.
    """

    first: Tensor
    after: Tensor
    valid: Tensor
    count: int
    many: int

    @property
    def at(self) -> Tensor:
        """The lines, int64 [reads]."""
        return remainder(self.first + arange(self.count, device=self.first.device), self.many)

    @property
    def place(self) -> tuple[Tensor, Tensor]:
        """For each line, the number of its read, and whether it has one, [lines]."""
        number = remainder(arange(self.many, device=self.first.device) - self.first, self.many)
        return minimum(number, self.count - 1), less(number, self.count)

    @property
    def one_hot(self) -> Tensor:
        """A vector for each read, which is 1 on its line, [reads, lines]."""
        return astype(equal(self.at[:, None], arange(self.many, device=self.first.device)), float32)

    def taken(self, of: Tensor, columns: bool) -> Tensor:
        """Columns, or rows, of an array: [rows, reads] or [reads, columns]."""
        return take(of, self.at, axis=int(columns))

    def put(self, into: Tensor, lines: Tensor, columns: bool) -> Tensor:
        """An array with other columns, or rows; the reverse of ``taken``."""
        place, chosen = self.place
        found = take(lines, place, axis=int(columns))
        return where(chosen if columns else chosen[:, None], found, into)

    def lines(self, of: Tensor, columns: bool) -> Tensor:
        """Columns, or rows, of an array, each as a row of the result."""
        found = self.taken(of, columns)
        return matrix_transpose(found) if columns else found

    def stored(self, into: Tensor, before: Tensor, after: Tensor, columns: bool) -> Tensor:
        """An array with other columns, or rows, where the read is valid; ``before`` and ``after`` as of ``lines``."""
        found = where(self.valid[:, None], after, before)
        return self.put(into, matrix_transpose(found) if columns else found, columns)

    def marked(self, into: Tensor, values: Tensor) -> Tensor:
        """A vector [lines] with other values on the lines that are read, where the read is valid."""
        place, chosen = self.place
        return where(logical_and(chosen, take(self.valid, place)), take(values, place), into)


def _whole(vectors: float) -> int:
    """The period of at least so many vectors."""
    return max(1, math.ceil(min(vectors, _NEVER)))


def _read_between(
    devices: Devices, pulses: Pulses, times: Tensor, reads: Reads, columns: bool, generator: Generator, reset: float
) -> tuple[Devices, Tensor, Tensor]:
    """The devices after pulses, with lines that are read between them: the lines as they were then, and numbers of pulses.

    Args:
        devices: Of an array.
        pulses: Of all vectors.
        times: When each vector comes, int64 [vectors].
        reads: Of the array.
        columns: Whether lines are columns.
        generator: Of the random numbers.
        reset: Probability that a device of a line is reset after the read.
    """
    before = less_equal(times[:, None], reads.after)
    some = devices.mapped(partial(reads.taken, columns=columns))
    some, early = some.pulsed(pulses.of_lines(reads.at, before, columns), generator)
    seen = some.shown
    if reset > 0.0:
        chosen = generator.bernoulli(seen.shape, p=reset, device=seen.device)
        some = some.reset(logical_and(chosen, reads.valid if columns else reads.valid[:, None]), generator)
    some, late = some.pulsed(pulses.of_lines(reads.at, logical_not(before), columns), generator)
    if reads.count == reads.many:
        counts = zeros(devices.w.shape, dtype=int32, device=seen.device)
    else:
        devices, counts = devices.pulsed(pulses.without(reads.place[1], columns), generator)
    return _with_lines(devices, some, reads, columns), seen, reads.put(counts, early + late, columns)


def _with_lines(devices: Devices, some: Devices, reads: Reads, columns: bool) -> Devices:
    """The devices of an array with those of some lines."""
    w = reads.put(devices.w, some.w, columns)
    return replace(devices, w=w, shown=reads.put(devices.shown, some.shown, columns) if devices.noisy_writes else w)


@lru_cache(maxsize=256)
def _program(cell: TransferCompound, *_of_tile: Any) -> Any:
    return jit(cell._mini_batch)


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
        n_reads_per_transfer: Columns of a transfer; at most all, once each.
        transfer_columns: Whether columns are transferred, not rows, which are read by the backward product.
        random_selection: Whether a transfer begins with a random column, not with the next one.
        with_reset_prob: Probability that a device of a column that was read is reset.
        fast_lr: Learning rate of the first array, or its factor; the rate itself if it is not above 0. Trains are made for the
            mean step of all devices of the cell, so one with smaller steps than the mean changes by less than the rate says.
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

    def update(
        self, tile: Tile, x: Tensor, d: Tensor, lr: float | Tensor, parameters: UpdateParameters | None = None
    ) -> Tensor:  # fmt: skip
        rate = lr.detach() if isinstance(lr, Tensor) else asarray(lr, dtype=float32, device=x.device)
        if not x.shape[0]:
            return zeros((tile.rows, tile.columns), dtype=int32, device=x.device)
        if not runs_as_program(x.shape[0] * tile.weight.size, self, tile.config):
            return self._mini_batch(tile, x, d, rate)
        program = _program(self, tile.config, tile.rows, tile.columns, x.shape, x.device.name)
        found: Tensor = program(tile, x, d, rate)
        return found

    def _mini_batch(self, tile: Tile, x: Tensor, d: Tensor, rate: Tensor) -> Tensor:
        """The update, part by part."""
        samples = x.shape[0]
        hidden = [a.devices.hidden for a in tile.arrays]
        models = [a.model for a in tile.arrays]

        def part(carry: Carry, vectors: tuple[Tensor, Tensor]) -> tuple[Carry, None]:
            arrays, state, counts = carry
            values = [Devices(m, *weights, h) for m, weights, h in zip(models, arrays, hidden, strict=True)]
            values, state, more = self._part(tile, values, state, *vectors, rate, samples)
            return ([(v.w, v.shown) for v in values], state, counts + more), None

        carry: Carry = (
            [(v.w, v.shown) for v in (a.devices for a in tile.arrays)],
            {n: v.detach() for n, v in tile.state_of_cell.items()},
            zeros((tile.rows, tile.columns), dtype=int32, device=x.device),
        )
        size = min(self._size_of_part(tile, samples), samples)
        whole = samples // size
        if whole > 1:
            parts = tuple(reshape(v[: whole * size], (whole, size, v.shape[1])) for v in (x, d))
            carry, _ = scan(part, carry, parts)
        for first in range(whole * size if whole > 1 else 0, samples, size):
            carry, _ = part(carry, (x[first : first + size], d[first : first + size]))
        commit = Commit()
        for array, weights in zip(tile.arrays, carry[0], strict=True):
            array.store(replace(array.devices, w=weights[0], shown=weights[1]))
        for name, value in carry[1].items():
            commit.rebind(tile.state_of_cell[name], value)
        commit.apply()
        return carry[2]

    def _lines(self, tile: Tile) -> int:
        """Lines that are transferred: columns, or rows."""
        return tile.columns if self.transfer_columns else tile.rows

    def _size_of_part(self, tile: Tile, samples: int) -> int:
        """Vectors in which each line is read at most once, in each array."""
        alone = self.random_selection or (self.with_reset_prob > 0.0 and len(self.unit_cell_devices) > 2)
        many = self._lines(tile)
        return min(self._periods(tile, samples)) * (1 if alone else many // min(self.n_reads_per_transfer, many))

    def _part(
        self, tile: Tile, arrays: list[Devices], state: State, x: Tensor, d: Tensor, rate: Tensor, samples: int
    ) -> tuple[list[Devices], State, Tensor]:  # fmt: skip
        """A part of a mini-batch: what becomes of the devices and the state, and the numbers of pulses."""
        generator, columns, arrays, state = tile.generator, self.transfer_columns, list(arrays), dict(state)
        reads = [self._reads(tile, state, k, p, x.shape[0]) for k, p in enumerate(self._periods(tile, samples))]
        state["vectors"] = state["vectors"] + x.shape[0]
        x, d, fast, chopped = self._gradients(tile, state, x, d, rate, samples, reads[0])
        pulses = pulses_of(x, d, fast, tile.config.update, self.granularity, generator, rate < 0.0)
        times, counts = arange(x.shape[0], device=x.device), None
        for stage, read in enumerate(reads):
            chance = self.with_reset_prob
            arrays[stage], seen, some = _read_between(arrays[stage], pulses, times, read, columns, generator, chance)
            counts = some if counts is None else counts + some
            v = self._periphery(tile, read, seen)
            values, lr = self._written(tile, state, stage, read, v, self._transfer_rate(stage, rate), fast, chopped)
            values = where(read.valid[:, None], values, 0.0)
            step, last = self.devices[stage + 1].granularity, stage + 2 == len(arrays)
            line = read.one_hot if not last else asarray(np.eye(read.count, dtype=np.float32), device=x.device)
            pair = (line, values) if columns else (values, line)
            pulses, times = pulses_of(*pair, lr, self.transfer_update, step, generator), read.after
            if last:  # of the array that is not read, only the lines that are written
                after, some = arrays[-1].mapped(partial(read.taken, columns=columns)).pulsed(pulses, generator)
                arrays[-1] = _with_lines(arrays[-1], after, read, columns)
                counts = counts + read.put(zeros(counts.shape, dtype=int32, device=x.device), some, columns)
        assert counts is not None
        return arrays, state, counts

    def _reads(self, tile: Tile, state: State, stage: int, period: int, size: int) -> Reads:
        """The reads of an array in the next vectors; the state goes on."""
        many, device = self._lines(tile), tile.weight.device
        each = min(self.n_reads_per_transfer, many)
        events = np.repeat(np.arange(1, -(-size // period) + 1), each)
        after = asarray(events * period - 1, device=device) - remainder(state["vectors"], period)
        valid, first = less(after, size), state["columns"][stage]
        if self.random_selection:
            drawn = tile.generator.integers((), low=0, high=many, dtype=int64, device=device)
            first = where(any_of(valid), drawn, first)
        following = remainder(first + total(astype(valid, int64)), many)
        chosen = asarray(np.arange(len(self.unit_cell_devices) - 1) == stage, device=device)
        state["columns"] = where(chosen, following, state["columns"])
        return Reads(first, after, valid, len(events), many)

    def _periods(self, tile: Tile, samples: int) -> list[int]:
        """Vectors from one transfer to the next, for each array but the last."""
        unit = samples if self.units_in_mbatch else 1
        if self.transfer_every_vec:
            return [_whole(every * unit) for every in self.transfer_every_vec]
        found = [_whole(self.transfer_every * unit)]
        for _ in self.unit_cell_devices[2:]:
            found.append(min(-(-found[-1] * tile.rows // self.n_reads_per_transfer), _NEVER))
        return found

    def _gradients(
        self, tile: Tile, state: State, x: Tensor, d: Tensor, rate: Tensor, samples: int, reads: Reads
    ) -> tuple[Tensor, Tensor, Tensor, Chopped | None]:
        """The vectors of the update of the first array, its learning rate, and what choppers do."""
        return x, d, self._fast_rate(rate), None

    def _fast_rate(self, rate: Tensor) -> Tensor:
        """The learning rate of the first array, with the sign of the update's; 0 if that is 0."""
        if self.fast_lr <= 0.0:
            return rate
        return (rate if self.scale_fast_lr else sign(rate)) * self.fast_lr

    def _transfer_rate(self, stage: int, rate: Tensor) -> Tensor:
        """The learning rate of a transfer, which is positive: the first array has the sign of the update."""
        own = self.transfer_lr_vec[stage] if self.transfer_lr_vec else self.transfer_lr
        return absolute(rate) * own if self.scale_transfer_lr else rate * 0.0 + own

    def _periphery(self, tile: Tile, reads: Reads, seen: Tensor) -> Tensor:
        """What is read of lines, [reads, rows] or [reads, columns].

        Args:
            tile: The tile.
            reads: The reads.
            seen: The lines as they were then, [rows, reads] or [reads, columns].
        """
        io = self.transfer_forward
        weights = seen if self.transfer_columns else matrix_transpose(seen)
        if io.is_perfect:
            v = matrix_transpose(weights)
            return v if io.out_scale == 1.0 else v * io.out_scale
        vectors = asarray(np.eye(reads.count, dtype=np.float32), device=seen.device)
        if io.ir_drop > 0.0:  # which depends on where a line is
            vectors, weights = reads.one_hot, take(weights, reads.place[0], axis=1)
        return analog_product(vectors, weights, io, {}, tile.generator.key(device=seen.device), None)

    def _written(
        self, tile: Tile, state: State, stage: int, reads: Reads, v: Tensor, rate: Tensor, fast: Tensor, chopped: Chopped | None
    ) -> tuple[Tensor, float | Tensor]:
        """What is written of what was read, [reads, rows] or [reads, columns], and the learning rate; the state goes on.

        Args:
            tile: The tile.
            state: Of the cell.
            stage: Number of the array that was read.
            reads: The reads.
            v: What was read.
            rate: Learning rate of transfers.
            fast: That of the first array, 0-d or of each vector.
            chopped: What choppers do.
        """
        return -v, rate


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

    def _written(
        self, tile: Tile, state: State, stage: int, reads: Reads, v: Tensor, rate: Tensor, fast: Tensor, chopped: Chopped | None
    ) -> tuple[Tensor, float | Tensor]:
        step, name = self.devices[stage + 1].granularity, f"buffer{stage}"
        most, columns = self.transfer_update.desired_bl, self.transfer_columns
        of, to = self.factors[stage : stage + 2]
        factor = absolute(rate) * (of / to if of > 0.0 and to > 0.0 else 1.0)
        before = reads.lines(state[name], columns)
        held = before + v * factor
        threshold = self.thres_scale * step
        n = clip(trunc(held / threshold), -most, most)
        kept = held * self.momentum if self.forget_buffer else held - n * ((1.0 - self.momentum) * threshold)
        state[name] = reads.stored(state[name], before, where(not_equal(n, 0.0), kept, held), columns)
        return -n, self.step * step


@dataclass(frozen=True)
class Chopped:
    """The choppers in a part of a mini-batch.

    Attributes:
        columns: Of the columns before it, bool [columns].
        rows: Of the rows before it, bool [rows].
        flips: Which change after each read, bool [reads].
        flips_of_rows: Which of the rows change after the sweep that ends in the part, bool [rows]; None for none.
        swept: The vector after which it ends, 0-d.
        sweeps: Sweeps before each read, int64 [reads].
        behind: Whether a read comes after that end, bool [reads].
    """

    columns: Tensor
    rows: Tensor
    flips: Tensor
    flips_of_rows: Tensor | None
    swept: Tensor
    sweeps: Tensor
    behind: Tensor


@typed_kernel(
    "1", values=reads_of(float32, "vectors"), before=reads_of(float32, ""), share=float32, means=results(float32, "vectors")
)
def running_means(values: Any, before: Any, share: Any, means: Any) -> None:
    """The running mean after each value: m ← m · (1 - share) + value · share. Zeros do not count; the first value starts it."""
    if kernel.index() == 0:
        mean = before[()]
        for b in range(values.shape[0]):
            if values[b] > 0.0:
                mean = mean * (1.0 - share) + values[b] * share if mean > 0.0 else values[b]
            means[b] = mean


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
        device = self.devices[0]
        states = (device.w_max - device.w_min) / self._fast_step
        return [_whole(states / tile.columns * -self.transfer_every)]

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

    def _gradients(
        self, tile: Tile, state: State, x: Tensor, d: Tensor, rate: Tensor, samples: int, reads: Reads
    ) -> tuple[Tensor, Tensor, Tensor, Chopped | None]:
        fast = self._rates(tile, state, x, d, rate, samples)
        state["rate_of_fast"] = fast[-1] if fast.ndim else fast
        chopped = self._choppers(tile, state, reads)
        times = arange(x.shape[0], device=x.device)[:, None]
        place, read = reads.place
        later = logical_and(read, greater(times, take(reads.after, place)))  # [vectors, columns]
        x = where(logical_xor(chopped.columns, logical_and(later, take(chopped.flips, place))), -x, x)
        turned = chopped.rows if chopped.flips_of_rows is None else logical_xor(
            chopped.rows, logical_and(greater(times, chopped.swept), chopped.flips_of_rows)
        )  # fmt: skip
        return x, where(turned, -d, d), fast, chopped

    def _rates(self, tile: Tile, state: State, x: Tensor, d: Tensor, rate: Tensor, samples: int) -> Tensor:
        """The learning rate of the first array, or one of each vector."""
        if not self.auto_scale:
            return self._fast_rate(rate)
        share = (1.0 - self.auto_momentum) / samples
        means = []
        for name, values in (("mean_x", x), ("mean_d", d)):
            means.append(running_means(largest(absolute(values), axis=1), state[name], share))
            state[name] = means[-1][-1]
        scale = self.fast_lr * tile.config.update.desired_bl * self._fast_step
        return scale / maximum(means[0] * means[1], 1e-30) * (rate if self.scale_fast_lr else sign(rate))

    def _choppers(self, tile: Tile, state: State, reads: Reads) -> Chopped:
        """The choppers in a part of a mini-batch; the state goes on."""
        device = tile.weight.device
        columns, rows, sweeps = state["chopper_in"], state["chopper_out"], state["sweeps"]
        number = reads.first + arange(reads.count, device=device)
        of_read = sweeps + where(less(number, reads.many), 0, 1)
        flips = logical_and(reads.valid, less(number, 0))
        if self.in_chop_prob > 0.0 and self.in_chop_random:
            flips = logical_and(reads.valid, tile.generator.bernoulli((reads.count,), p=self.in_chop_prob, device=device))
        elif self.in_chop_prob > 0.0:
            flips = logical_and(reads.valid, equal(remainder(of_read, self.chop_period), self.chop_period - 1))
        last = logical_and(reads.valid, equal(number, reads.many - 1))  # which ends a sweep
        ended, flips_of_rows = any_of(last), None
        if self.out_chop_prob > 0.0:
            drawn = tile.generator.bernoulli((tile.rows,), p=self.out_chop_prob, device=device)
            flips_of_rows = logical_and(drawn, ended)
            state["chopper_out"] = logical_xor(rows, flips_of_rows)
        state["chopper_in"] = reads.marked(columns, logical_xor(take(columns, reads.at), flips))
        state["sweeps"] = sweeps + where(ended, 1, 0)
        return Chopped(
            columns, rows, flips, flips_of_rows, total(where(last, reads.after, 0)), of_read, greater(of_read, sweeps)
        )

    @property
    def _fast_step(self) -> float:
        """Step of the first array, by which its rate and the buffer are counted."""
        return self.devices[0].granularity

    def _threshold(self, tile: Tile) -> float:
        """What a read is divided by."""
        found = self.buffer_granularity * self._fast_step
        if self.auto_granularity > 0.0:
            found = found * self.auto_granularity / (tile.columns * abs(self.transfer_every))
        return found

    def _share(self, tile: Tile, rate: Tensor, reads: Reads, fast: Tensor, chopped: Chopped) -> Tensor:
        """What reads are multiplied by, 0-d or [reads, 1]."""
        if not self.correct_gradient_magnitudes:
            return absolute(rate) / self._threshold(tile)
        steps = self.devices[1].granularity / self._fast_step
        if fast.ndim:
            fast = take(fast, minimum(reads.after, fast.shape[0] - 1))[:, None]
        return absolute(rate) / maximum(absolute(fast), 1e-30) / (self._threshold(tile) * steps)

    def _signal(self, state: State, reads: Reads, v: Tensor, chopped: Chopped) -> Tensor:
        """What of reads goes to the buffer, [reads, rows]; the state goes on."""
        return v

    def _writes(self, chopped: Chopped) -> Tensor | None:
        """At which reads whole steps are written, bool [reads]; None for all."""
        return None

    def _limited(self, held: Tensor) -> Tensor:
        """The buffer after a write."""
        return held

    def _written(
        self, tile: Tile, state: State, stage: int, reads: Reads, v: Tensor, rate: Tensor, fast: Tensor, chopped: Chopped | None
    ) -> tuple[Tensor, float | Tensor]:
        assert chopped is not None
        most, buffer = self.transfer_update.desired_bl, state["buffer"]
        rows = chopped.rows
        if chopped.flips_of_rows is not None:
            rows = logical_xor(rows, logical_and(chopped.behind[:, None], chopped.flips_of_rows))
        turned = logical_xor(rows, take(chopped.columns, reads.at)[:, None])
        signal = self._signal(state, reads, v, chopped)
        part = where(turned, -signal, signal) * self._share(tile, rate, reads, fast, chopped)
        before = reads.lines(buffer, True)
        held = part if self.no_buffer else before + part
        n = clip(trunc(held), -most, most)
        kept = held * self.momentum if self.forget_buffer else held - n * (1.0 - self.momentum)
        state["buffer"] = reads.stored(buffer, before, self._limited(where(not_equal(n, 0.0), kept, held)), True)
        writes = self._writes(chopped)
        n = n if writes is None else where(writes[:, None], n, 0.0)
        return -n, self.step * self.devices[1].granularity


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

    def _signal(self, state: State, reads: Reads, v: Tensor, chopped: Chopped) -> Tensor:
        now, past = reads.lines(state["mean_now"], True), reads.lines(state["mean_past"], True)
        past_then = where(take(state["flipped"], reads.at)[:, None], now, past)
        share = min(self.tail_weightening / self.chop_period, 1.0)
        state["mean_past"] = reads.stored(state["mean_past"], past, past_then, True)
        state["mean_now"] = reads.stored(state["mean_now"], now, now * (1.0 - share) + v * share, True)
        state["flipped"] = reads.marked(state["flipped"], chopped.flips)
        return v - past_then

    def _share(self, tile: Tile, rate: Tensor, reads: Reads, fast: Tensor, chopped: Chopped) -> Tensor:
        share = super()._share(tile, rate, reads, fast, chopped)
        if not self.experimental_correct_accumulation:
            return share
        gathered = astype(remainder(chopped.sweeps, self.chop_period) + 1, float32)
        return share / minimum(gathered, 1.0 / self._fast_step)[:, None]

    def _writes(self, chopped: Chopped) -> Tensor | None:
        return greater(chopped.sweeps, self.chop_period)

    def _limited(self, held: Tensor) -> Tensor:
        if self.buffer_cap == 0.0 or self.forget_buffer:
            return held
        limit = self.buffer_cap * self.transfer_update.desired_bl
        return clip(held, -limit, limit)
