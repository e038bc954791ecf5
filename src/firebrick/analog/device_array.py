"""``DeviceArray``: an array of devices of one model, with their state; what pulses, time and writing do to it.

Its methods compute with untracked tensors. ``Devices`` are the same devices as values: what pulses make of them is another
value, so that algorithms of several steps change the state of a tile once, at their end, and run in graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, Protocol

import numpy as np

from firebrick.analog.column_lists import column_lists_of
from firebrick.analog.ideal_devices import ArithmeticDevice
from firebrick.analog.matvec import COMPILED
from firebrick.analog.normal_numbers import normals
from firebrick.analog.pulse_trains import MOST_SLOTS, STOCHASTIC, WORD, Trains, made_trains, most_slots
from firebrick.analog.pulsed_device import PulsedDevice
from firebrick.analog.pulsed_update import update_kernel
from firebrick.analog.update_parameters import PulseType, UpdateParameters
from firebrick.analog.write_noise import with_write_noise
from firebrick.core.commit import Commit
from firebrick.core.dtypes import float32, int32, int64, python_scalar
from firebrick.core.errors import ConfigError, OutOfRangeError
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.core.weak import Weak
from firebrick.functions.conversion import asarray
from firebrick.functions.creation import zeros
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import astype, log, logical_not, maximum, minimum, where
from firebrick.functions.elementwise import pow as pow_
from firebrick.functions.indexing import take
from firebrick.functions.linear import matmul
from firebrick.functions.movement import matrix_transpose
from firebrick.functions.ranges import arange
from firebrick.functions.statistical import sum as total
from firebrick.functions.utility import all as all_of
from firebrick.graph import jit
from firebrick.nn import Buffer, Module, Parameter
from firebrick.random import Generator


class Keys(Protocol):
    """What gives keys of random numbers, as a ``Generator`` does."""

    def key(self, *, device: Any = None) -> Tensor:
        """The next key.

        Args:
            device: Device of the key.
        """


ARITHMETIC = (PulseType.NONE, PulseType.NONE_WITH_DEVICE)
"""Pulse types of updates by arithmetic."""
BOTH, UP_AS_UP, DOWN_AS_UP = 0, 1, -1
"""What an array does with pulses: all; those up alone; those down alone, as pulses up."""


@dataclass(frozen=True)
class Pulses:
    """The pulses of an update, for any number of arrays.

    Attributes:
        x: Inputs [samples, columns].
        d: Errors [samples, rows].
        trains: What the lines do; None for an update by arithmetic.
        rate: Learning rate, 0-d, or one of each sample, of the same sign [samples].
        ascent: Whether it is negative, 0-d bool.
        slots: The longest train.
        parameters: Of the update.
    """

    x: Tensor
    d: Tensor
    trains: Trains | None
    rate: Tensor
    ascent: Tensor
    slots: int
    parameters: UpdateParameters

    def of_lines(self, at: Tensor, kept: Tensor, columns: bool) -> Pulses:
        """The pulses of some columns, or of some rows, in some samples of each of them.

        Args:
            at: Numbers of the lines, int64 [lines].
            kept: In which samples a line has its pulses, bool [samples, lines].
            columns: Whether these lines are columns.
        """
        values = take(self.x if columns else self.d, at, axis=1)
        trains = self.trains
        if trains is None:
            return self._with_lines(where(kept, values, 0.0), None, columns)
        lines = trains.kept(take(trains.x if columns else trains.d, at, axis=-1), kept)
        if columns:
            return self._with_lines(values, trains._replace(x=lines, x_negative=take(trains.x_negative, at, axis=1)), columns)
        negative, fired = take(trains.d_negative, at, axis=1), take(trains.fired, at, axis=1)
        return self._with_lines(values, trains._replace(d=lines, d_negative=negative, fired=fired), columns)

    def without(self, lines: Tensor, columns: bool) -> Pulses:
        """The pulses of all columns, or rows, but some of them.

        Args:
            lines: Which have none, bool [columns] or [rows].
            columns: Whether these lines are columns.
        """
        trains = self.trains
        if trains is None:
            return self._with_lines(where(lines, 0.0, self.x if columns else self.d), None, columns)
        if columns:
            return self._with_lines(self.x, trains._replace(x=where(lines, 0, trains.x)), columns)
        return self._with_lines(self.d, trains._replace(d=where(lines, 0, trains.d)), columns)

    def _with_lines(self, values: Tensor, trains: Trains | None, columns: bool) -> Pulses:
        return replace(self, x=values, trains=trains) if columns else replace(self, d=values, trains=trains)


MOST_WORDS = 1 << 26
"""Of 32 slots each, of all trains of an update that grow in a graph."""


def grown(parameters: UpdateParameters, lr: float | Tensor, granularity: float, shape: tuple[int, int]) -> int:
    """The longest train of an update. Where trains grow with a learning rate that only a run of a graph knows, it is the limit.

    Args:
        parameters: Of an update by pulses.
        lr: Learning rate: a number, a 0-d tensor, or one of each sample [samples].
        granularity: Step of a pulse.
        shape: Number of samples, and of rows and columns together.

    Raises:
        ConfigError: There would be too many words of trains.
    """
    if parameters.fixed_bl or parameters.update_bl_management:
        return parameters.desired_bl
    if not isinstance(python_scalar(lr), Tensor | Weak):
        return most_slots(parameters, float(lr), granularity)
    if isinstance(lr, Tensor) and hooks.trace() is None and not hooks.levels:
        return most_slots(parameters, float(np.abs(lr.numpy()).max(initial=0.0)), granularity)
    words = shape[0] * shape[1] * (MOST_SLOTS // WORD)
    if words > MOST_WORDS and parameters.pulse_type in STOCHASTIC:
        raise ConfigError(
            "Tile.update: the length of trains that grow (fixed_bl=False) is known before the update, or they are few: at "
            f"most {MOST_WORDS // (MOST_SLOTS // WORD)} samples times lines",
            f"a learning rate in a graph, and {shape[0]} · {shape[1]}", "pass fixed_bl=True, or call it outside of fb.jit",
        )  # fmt: skip
    return MOST_SLOTS


def pulses_of(
    x: Tensor, d: Tensor, lr: float | Tensor, parameters: UpdateParameters, granularity: float | None, generator: Keys,
    ascent: Tensor | None = None,
) -> Pulses:  # fmt: skip
    """The pulses of an update.

    Args:
        x: Inputs [samples, columns].
        d: Errors [samples, rows].
        lr: Learning rate: a number, a 0-d tensor, or one of each sample [samples].
        parameters: Of the update.
        granularity: Step of a pulse; None for an update by arithmetic.
        generator: Of the random numbers.
        ascent: Whether the rates of all samples are negative, 0-d bool; needed where they are not one.

    Raises:
        ConfigError: There would be too many words of trains that grow.
    """
    rate = lr.detach() if isinstance(lr, Tensor) else asarray(lr, dtype=float32, device=x.device)
    negative = rate < 0.0 if ascent is None else ascent
    if granularity is None or parameters.pulse_type in ARITHMETIC:
        return Pulses(x, d, None, rate, negative, 0, parameters)
    slots = grown(parameters, lr, granularity, (x.shape[0], x.shape[1] + d.shape[1]))
    keys = generator.key(device=x.device), generator.key(device=x.device)
    if runs_as_program(x.shape[0] * x.shape[1] * d.shape[1], parameters):
        trains = _program_of_trains(granularity, parameters, slots, x.aval, d.aval, x.device.name)(x, d, rate, keys=keys)
    else:
        trains = made_trains(x, d, rate, granularity, parameters, slots, keys)
    return Pulses(x, d, trains, rate, negative, slots, parameters)


def runs_as_program(size: int, *settings: Any) -> bool:
    """Whether a part of an update runs as a program, which is compiled for its shapes when they first occur.

    Args:
        size: Cross-points times samples.
        *settings: What the program depends on; without hashes there is none.
    """
    if size < COMPILED or hooks.trace() is not None or hooks.levels:
        return False
    try:
        hash(settings)
    except TypeError:
        return False
    return True


@lru_cache(maxsize=256)
def _program_of_trains(granularity: float, parameters: UpdateParameters, slots: int, *_of_operands: Any) -> Any:
    return jit(partial(_whole_trains, granularity=granularity, parameters=parameters, slots=slots))


def _whole_trains(x: Tensor, d: Tensor, lr: Tensor, **settings: Any) -> Trains:
    """``made_trains``, whose words behind those that are used have no values in a program; here they are 0."""
    found = made_trains(x, d, lr, **settings)
    if found.x.dtype is int64:
        return found
    slots, words = found.slots, arange(found.x.shape[0], device=x.device)
    used, active = words < slots.used, arange(x.shape[0], device=x.device) < total(astype(slots.length > 0, int64))
    of_lines: dict[str, Any] = {
        name: where(used[:, None], getattr(found, name), 0) for name in ("x", "d", "x_negative", "d_negative", "fired")
    }
    of_slots: dict[str, Any] = {name: where(used, getattr(slots, name), 0) for name in ("first", "begins", "before")}
    return found._replace(slots=slots._replace(**of_slots, active=where(active, slots.active, 0)), **of_lines)


@dataclass(frozen=True)
class Devices:
    """Devices of one model, as values.

    Attributes:
        model: Of the devices.
        w: The weights that pulses change [rows, columns].
        shown: The visible weights, with their write noise; ``w`` where the model has none.
        hidden: What was drawn for each device, [rows, columns] by name.
    """

    model: PulsedDevice | ArithmeticDevice
    w: Tensor
    shown: Tensor
    hidden: dict[str, Tensor]

    @property
    def noisy_writes(self) -> bool:
        """Whether the visible weights have noise of their own."""
        return isinstance(self.model, PulsedDevice) and self.model.write_noise_std > 0.0

    def keys(self, generator: Keys) -> list[Tensor]:
        """The keys of a change: of its noise, and of the write noise of devices that have it."""
        device = self.w.device
        return [generator.key(device=device), *([generator.key(device=device)] if self.noisy_writes else [])]

    def pulsed(self, pulses: Pulses, generator: Keys, side: int = BOTH) -> tuple[Devices, Tensor]:
        """The devices after the pulses of an update, and the number of pulses of each, int32; 0 for updates by arithmetic.

        Args:
            pulses: From ``pulses_of``.
            generator: Of the noise.
            side: Which of them; see ``BOTH``.
        """
        model, trains, x, d = self.model, pulses.trains, pulses.x, pulses.d
        if isinstance(model, ArithmeticDevice) or trains is None:
            change = self._arithmetic(pulses, side)
            return self.changed(change, pulses.parameters.pulse_type, generator), zeros(
                self.w.shape, dtype=int32, device=x.device
            )
        operands: Any = self.w, self.shown, self.hidden, x, d, trains, pulses.ascent, self.keys(generator)
        kind = pulses.parameters.pulse_type
        if runs_as_program(x.shape[0] * self.w.size, model):
            program = _program_of_pulses(model, kind, side, x.aval, trains.x.aval, self.w.aval, x.device.name)
            w, shown, counts = program(*operands)
        else:
            w, shown, counts = _pulsed(*operands, model=model, kind=kind, side=side)
        return replace(self, w=w, shown=shown), counts

    def _arithmetic(self, pulses: Pulses, side: int) -> Tensor:
        x, rate = pulses.x, pulses.rate
        change = matmul(matrix_transpose(pulses.d), x * rate[:, None] if rate.ndim else x)
        change = -change if rate.ndim else change * -rate
        return change if side == BOTH else maximum(change * float(side), 0.0)

    def changed(self, change: Tensor, pulse_type: PulseType, generator: Keys) -> Devices:
        """The devices after an update by arithmetic, within their bounds for ``NONE_WITH_DEVICE``.

        Args:
            change: Of the weights [rows, columns].
            pulse_type: Of the update.
            generator: Of the write noise.
        """
        w = self.w + change
        w = self.within(w) if pulse_type is PulseType.NONE_WITH_DEVICE else w
        return replace(self, w=w, shown=self._with_write_noise(w, generator))

    def reset(self, chosen: Tensor, generator: Keys) -> Devices:
        """The devices after a reset of some: w ← clip(b + reset_std · ξ).

        Args:
            chosen: Which, bool.
            generator: Of the noise.
        """
        std = _reset_std(self.model)
        noise = normals(generator.key(device=self.w.device), self.w.shape[0], self.w.shape[1], 0)
        after = self.within(self.hidden["reset_bias"] + noise * std)
        w = where(chosen, after, self.w)
        shown = where(chosen, self._with_write_noise(after, generator), self.shown) if self.noisy_writes else w
        return replace(self, w=w, shown=shown)

    def within(self, w: Tensor) -> Tensor:
        """Weights clipped to the bounds of the devices."""
        limits = self.model.limits(self.hidden)
        return w if limits is None else minimum(maximum(w, limits[0]), limits[1])

    def _with_write_noise(self, w: Tensor, generator: Keys) -> Tensor:
        if not self.noisy_writes:
            return w
        model: Any = self.model
        noise = normals(generator.key(device=w.device), w.shape[0], w.shape[1], 0)
        return w + noise * float(model.write_noise_std * model.dw_min)

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Devices:
        """The devices with a function of each of their arrays, such as some of their columns.

        Args:
            change: From an array [rows, columns] to another.
        """
        w = change(self.w)
        return Devices(
            self.model, w, change(self.shown) if self.noisy_writes else w, {n: change(v) for n, v in self.hidden.items()}
        )


def _reset_std(model: PulsedDevice | ArithmeticDevice) -> float:
    std = getattr(model, "reset_std", None)
    if std is None:
        raise ConfigError("Tile.reset: a device that can be reset", type(model).__name__, "use another device")
    return float(std)


class DeviceArray(Module):
    """An array of devices of one model.

    Args:
        model: Of the devices.
        weight: Their visible weights [rows, columns].
        generator: Of the random numbers of updates, which the tile has.
        draws: Of the parameters of the devices.

    Attributes:
        weight: The visible weights.
        hidden: What was drawn for each device, buffers [rows, columns] by name.
        persistent: The weights without write noise, for devices that have it; else None.
    """

    def __init__(
        self, model: PulsedDevice | ArithmeticDevice, *, weight: Parameter | Buffer, generator: Generator, draws: Generator
    ) -> None:  # fmt: skip
        rows, columns = weight.shape
        self.rows, self.columns, self.model, self.weight, self.generator = rows, columns, model, weight, generator
        sent = partial(asarray, dtype=float32, device=weight.device)

        def normal() -> np.ndarray[Any, Any]:
            return np.array(draws.normal((rows, columns), device="numpy").numpy(), np.float64)

        def uniform() -> np.ndarray[Any, Any]:
            return np.array(draws.uniform((rows, columns), device="numpy").numpy(), np.float64)

        drawn = model.populate((rows, columns), normal, uniform)
        self.hidden = {n: Buffer(sent(np.broadcast_to(v, (rows, columns)))) for n, v in drawn.items()}
        noisy = isinstance(model, PulsedDevice) and model.write_noise_std > 0.0
        self.persistent = Buffer(sent(np.zeros((rows, columns)))) if noisy else None
        if isinstance(model, PulsedDevice):
            model.names(drawn)
            if model.drift.active:
                self.drift_state = {n: Buffer(sent(np.zeros((rows, columns)))) for n in ("last", "start", "written")}
                self.drift_time = Buffer(sent(0.0))

    def apply_pulses(self, pulses: Pulses, side: int = BOTH) -> Tensor:
        """Apply the pulses of an update.

        Args:
            pulses: From ``pulses_of``.
            side: Which of them; see ``BOTH``.

        Returns:
            The number of pulses that each device got, int32 [rows, columns]; zeros where the update is by arithmetic.
        """
        after, counts = self.devices.pulsed(pulses, self.generator, side)
        self.store(after)
        return counts

    def update(self, x: Tensor, d: Tensor, lr: float | Tensor, parameters: UpdateParameters) -> Tensor:
        """Apply the pulses of an update: a large one as one program, which changes the weights where they are.

        Args:
            x: Inputs [samples, columns].
            d: Errors [samples, rows].
            lr: Learning rate: a number or a 0-d tensor.
            parameters: Of the update.

        Returns:
            As of ``apply_pulses``.
        """
        model = self.model
        known = parameters.fixed_bl or parameters.update_bl_management  # the longest train, without the rate
        if isinstance(model, PulsedDevice) and known and runs_as_program(x.shape[0] * self.weight.size, model, parameters):
            rate = lr.detach() if isinstance(lr, Tensor) else asarray(lr, dtype=float32, device=x.device)
            found: Tensor = _program_of_update(model, parameters, x.aval, self.weight.aval, x.device.name)(self, x, d, rate)
            return found
        step = model.granularity if isinstance(model, PulsedDevice) else None
        return self.apply_pulses(pulses_of(x, d, lr, parameters, step, self.generator))

    @property
    def devices(self) -> Devices:
        """The devices as values, untracked."""
        hidden = {n: b.detach() for n, b in self.hidden.items()}
        return Devices(self.model, self.acted_on, self.weight.detach(), hidden)

    def store(self, devices: Devices) -> None:
        """Set the weights to those of devices.

        Args:
            devices: What became of ``self.devices``.
        """
        self._rebind(devices.w, devices.shown)

    def change(self, change: Tensor, pulse_type: PulseType) -> None:
        """Add to the weights by arithmetic, within the bounds of the devices for ``NONE_WITH_DEVICE``.

        Args:
            change: Untracked tensor [rows, columns].
            pulse_type: Of the update.
        """
        self.store(self.devices.changed(change, pulse_type, self.generator))

    @property
    def acted_on(self) -> Tensor:
        """The weights that pulses change, untracked."""
        return (self.weight if self.persistent is None else self.persistent).detach()

    def set(self, w: Tensor) -> None:
        """Set the weights that pulses change, and the visible ones."""
        self._rebind(w, w if self.persistent is None else self._with_write_noise(w))

    def _rebind(self, w: Tensor, visible: Tensor) -> None:
        """Set the weights that pulses change and the visible ones, both or none."""
        commit = Commit()
        commit.rebind(self.weight, visible)
        if self.persistent is not None:
            commit.rebind(self.persistent, w)
        commit.apply()

    def _with_write_noise(self, w: Tensor) -> Tensor:
        model = self.model
        assert isinstance(model, PulsedDevice)
        noise: Tensor = normals(self.generator.key(device=w.device), self.rows, self.columns, 0)
        return w + noise * (model.write_noise_std * model.dw_min)

    def within(self, w: Tensor) -> Tensor:
        """Weights clipped to the bounds of the devices."""
        return self.devices.within(w)

    def place(self, wanted: Tensor) -> int:
        """Set the weights, clipped to the bounds of the devices.

        Args:
            wanted: Untracked tensor [rows, columns].

        Returns:
            Number of weights that were clipped; 0 inside a trace, where it is not known.
        """
        w = self.within(wanted)
        if getattr(self.model, "apply_write_noise_on_set", True):
            self.set(w)
        else:
            self._rebind(w, w)
        return 0 if hooks.trace() is not None else int(total(w != wanted).item())

    def decay(self) -> None:
        """Weights decay towards the reset level by one mini-batch: w ← clip((w - b) · s + b)."""
        p = self.hidden
        self.set(self.within((self.acted_on - p["reset_bias"]) * p["decay_scales"] + p["reset_bias"]))

    def diffuse(self) -> None:
        """Weights diffuse by one mini-batch: w ← clip(w + rate · ξ)."""
        noise = normals(self.generator.key(device=self.weight.device), self.rows, self.columns, 0)
        self.set(self.within(self.acted_on + noise * self.hidden["diffusion_rates"]))

    def end_mini_batch(self) -> None:
        """What happens after each mini-batch: decay and diffusion, where the device has them. ``analog.SGD`` calls it."""
        if self.model.lifetime > 0.0:
            self.decay()
        if self.model.diffusion > 0.0:
            self.diffuse()

    def reset(self, chosen: Tensor) -> None:
        """Reset devices: w ← clip(b + reset_std · ξ).

        Args:
            chosen: Which, bool [rows, columns] or [columns].

        Raises:
            ConfigError: The device cannot be reset.
        """
        std = _reset_std(self.model)
        noise = normals(self.generator.key(device=self.weight.device), self.rows, self.columns, 0)
        after = self.within(self.hidden["reset_bias"] + noise * std)
        self.set(where(chosen, after, self.acted_on))

    def drift(self, seconds: float) -> None:
        """Conductances drift for a time; nothing happens where the model has no drift.

        Args:
            seconds: Time that passes.
        """
        model = self.model
        if not isinstance(model, PulsedDevice) or not model.drift.active:
            return
        p, device = model.drift, self.weight.device
        w, before, state = self.acted_on, self.drift_time.detach(), self.drift_state
        written = absolute(state["last"] - w) > p.reset_tol
        first, start = where(written, w, state["written"]), where(written, before, state["start"])
        now = before + seconds / p.t_0
        nu = self.hidden["drift_nu"].detach()
        if p.nu_std > 0.0:
            nu = nu * (normals(self.generator.key(device=device), self.rows, self.columns, 0) * p.nu_std + 1.0)
        if p.nu_k != 0.0:
            least = (first - p.w_offset) / p.wg_ratio + p.g_offset
            if hooks.trace() is None and not bool(all_of(least > 0.0).item()):
                raise OutOfRangeError(
                    "Tile.drift: conductances (w - w_offset) / wg_ratio + g_offset above 0, of which nu_k takes the logarithm",
                    f"{int(total(logical_not(least > 0.0)).item())} of {least.size} devices with others",
                    "correct g_offset and w_offset, or leave out nu_k",
                )  # fmt: skip
            nu = nu - log((first - p.w_offset) / p.wg_ratio + p.g_offset) * p.nu_k + p.nu_k * p.log_g0
        share = pow_(maximum(now - start, 1.0), -nu)
        offset = p.g_offset * p.wg_ratio + p.w_offset
        after = first * share + (share - 1.0) * offset
        if p.w_noise_std > 0.0:
            after = after + normals(self.generator.key(device=device), self.rows, self.columns, 0) * p.w_noise_std
        self.set(self.within(after))
        commit = Commit()
        for name, t in {"written": first, "start": start, "last": self.acted_on}.items():
            commit.rebind(state[name], t)
        commit.rebind(self.drift_time, now)
        commit.apply()


def _pulsed(
    w: Tensor, shown: Tensor, hidden: dict[str, Tensor], x: Tensor, d: Tensor, trains: Trains, ascent: Tensor,
    keys: list[Tensor], *, model: PulsedDevice, kind: PulseType, side: int,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """What pulses make of devices: their weights, the visible weights, and the number of pulses that each got.

    Args:
        w: Weights that pulses change [rows, columns].
        shown: Visible weights.
        hidden: What was drawn for each device.
        x: Inputs [samples, columns].
        d: Errors [samples, rows].
        trains: Of the update.
        ascent: Whether the learning rate is negative.
        keys: Of the noise of pulses, and of the write noise of devices that have it.
        model: Of the devices.
        kind: How pulses are counted.
        side: Which pulses count; see ``BOTH``.
    """
    own, shared = model.names(hidden)
    joint = model.joint_pulses()
    kernel = update_kernel(model.pulse_function(), own, shared, kind, model.noisy, joint, model.long_pulse)
    low, high = model.limits(hidden)
    slots, lists = trains.slots, column_lists_of(trains, kind if joint is None else None, w.size)
    numbers = [asarray(float(getattr(model, n)), dtype=float32, device=x.device) for n in shared]
    after, counts = kernel(
        w, low, high, x, d, trains.x, trains.d, trains.x_negative, trains.d_negative, slots.length, slots.first,
        slots.begins, slots.used, trains.fired, *lists, keys[0], ascent, side,
        *(hidden[n] for n in own), *numbers,
    )  # fmt: skip
    if len(keys) == 1:
        return after, after, counts
    std = model.write_noise_std * model.dw_min
    return after, with_write_noise(after, counts, slots.used, *lists, keys[1], std, shown), counts


def _updated(array: DeviceArray, x: Tensor, d: Tensor, rate: Tensor, *, parameters: UpdateParameters) -> Tensor:
    return array.update(x, d, rate, parameters)


@lru_cache(maxsize=256)
def _program_of_update(model: PulsedDevice, parameters: UpdateParameters, *_of_operands: Any) -> Any:
    return jit(partial(_updated, parameters=parameters))


@lru_cache(maxsize=256)
def _program_of_pulses(model: PulsedDevice, kind: PulseType, side: int, *_of_operands: Any) -> Any:
    return jit(partial(_pulsed, model=model, kind=kind, side=side))
