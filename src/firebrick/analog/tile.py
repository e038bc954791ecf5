"""``Tile``: an array of resistive cross-points with its periphery, and the operations on it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from firebrick.analog.config import RPUConfig
from firebrick.analog.factors import Factors, keep
from firebrick.analog.ideal_devices import ArithmeticDevice
from firebrick.analog.io_parameters import IOParameters, NoiseManagementType
from firebrick.analog.matvec import analog_product, drawn_of
from firebrick.analog.normal_numbers import normals
from firebrick.analog.pulse_trains import made_trains, most_slots
from firebrick.analog.pulsed_device import PulsedDevice
from firebrick.analog.pulsed_update import update_kernel
from firebrick.analog.update_parameters import PulseType
from firebrick.autodiff.tape import grad_enabled, no_grad
from firebrick.backends.registry import find_device
from firebrick.core.commit import Commit
from firebrick.core.dtypes import float32
from firebrick.core.errors import ConfigError, DTypeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.lines import warn
from firebrick.core.op import Cost, Op, Operand, Vjp
from firebrick.core.operands import check_devices, describe, not_a_tensor
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import asarray
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import log, maximum, minimum, where
from firebrick.functions.elementwise import pow as pow_
from firebrick.functions.linear import matmul
from firebrick.functions.movement import matrix_transpose, reshape
from firebrick.functions.statistical import max as largest
from firebrick.functions.statistical import sum as total
from firebrick.nn import Buffer, Module, Parameter
from firebrick.nn.checks import check_shape, check_sizes
from firebrick.random import Generator, initial_generator


class Tile(Module):
    """An array of resistive devices, whose conductances are the weights W of y = W x.

    Its three operations are products W x and Wᵀ d and the update W ← W - lr · d xᵀ, each with its periphery. Gradients flow
    through it: that of the inputs is the analog product Wᵀ d, and ``analog.SGD`` updates the weights by the inputs and errors
    of the backward pass. All random numbers come from one generator, so a tile is reproducible from a seed on every engine.

    Args:
        rows: Number of outputs.
        columns: Number of inputs.
        config: Devices and periphery.
        seed: Seed of its generator.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        weight: The visible weights, Parameter [rows, columns], from 0.
        parameters_of_devices: What was drawn for each device, buffers [rows, columns] by name: ``max_bound``, ``min_bound``,
            ``dwmin_up``, ``dwmin_down``, ``decay_scales``, ``diffusion_rates``, ``reset_bias`` and those of the model.
        persistent: The weights without write noise, for devices that have it; else None.
        scale: Digital factors of the outputs, buffer [rows]; None for 1. The tile then stands for scale · W.

    Raises:
        ConfigError: A size or the configuration has no meaning.

    Example:
        >>> import firebrick as fb
        >>> tile = fb.analog.Tile(2, 3, seed=0)
        >>> tile.update(fb.ones((1, 3)), -fb.ones((1, 2)), lr=0.02).shape
        (2, 3)
        >>> tile(fb.ones((4, 3))).shape
        (4, 2)
    """

    def __init__(
        self, rows: int, columns: int, config: RPUConfig | None = None, *, seed: int | None = None,
        generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        check_sizes("Tile", rows=rows, columns=columns)
        config = RPUConfig() if config is None else config
        if not isinstance(config, RPUConfig):
            raise ConfigError("Tile: config is an RPUConfig", repr(config)[:80], "pass analog.RPUConfig(device=…)")
        self.rows, self.columns, self.config = rows, columns, config
        self.generator = generator or (initial_generator().fork() if seed is None else Generator(seed))
        where_ = find_device(device)
        sent = partial(asarray, dtype=float32, device=where_)
        model = config.device
        seed_of_devices = getattr(model, "construction_seed", 0)
        draws = Generator(seed_of_devices) if seed_of_devices else self.generator.fork()

        def normal(shape: tuple[int, ...] = (rows, columns)) -> np.ndarray[Any, Any]:
            return np.array(draws.normal(shape, device="numpy").numpy(), np.float64)

        def uniform() -> np.ndarray[Any, Any]:
            return np.array(draws.uniform((rows, columns), device="numpy").numpy(), np.float64)

        drawn = model.populate((rows, columns), normal, uniform)
        self.parameters_of_devices = {n: Buffer(sent(np.broadcast_to(v, (rows, columns)))) for n, v in drawn.items()}
        self.drawn_forward = {n: Buffer(sent(v)) for n, v in drawn_of(config.forward, rows, columns, normal).items()}
        self.drawn_backward = {n: Buffer(sent(v)) for n, v in drawn_of(config.backward, columns, rows, normal).items()}
        self.weight = Parameter(sent(np.zeros((rows, columns))))
        self.persistent = Buffer(sent(np.zeros((rows, columns)))) if self._write_noise else None
        self.scale = Buffer(sent(np.ones(rows))) if config.mapping.weight_scaling_omega else None
        averages = NoiseManagementType.AVERAGE_ABS_MAX
        self.average_input = Buffer(sent(0.0)) if config.forward.noise_management is averages else None
        self.average_error = Buffer(sent(0.0)) if config.backward.noise_management is averages else None
        if isinstance(model, PulsedDevice):
            model.names(drawn)
            if model.drift.active:
                self.drift_state = {n: Buffer(sent(np.zeros((rows, columns)))) for n in ("last", "start", "written")}
                self.drift_time = Buffer(sent(0.0))

    # products

    def forward(self, x: Tensor) -> Tensor:
        """The analog product W x of each vector.

        Args:
            x: Float32 tensor [..., columns].
        """
        vectors = self._vectors("x", x, self.columns)
        y = self._product(vectors, self.weight, self.config.forward, self.drawn_forward, "average_input", True)
        if self.scale is not None:
            with no_grad():
                y = y * self.scale
        if grad_enabled() and (x.node is not None or self.weight.node is not None):
            op = _recorded(self._pull)
            hooks.record(op, (vectors, self.weight), {}, (y,))
        return reshape(y, (*x.shape[:-1], self.rows))

    def backward(self, d: Tensor) -> Tensor:
        """The analog product Wᵀ d of each vector.

        Args:
            d: Float32 tensor [..., rows].
        """
        vectors = self._vectors("d", d, self.rows)
        with no_grad():
            vectors = vectors if self.scale is None else vectors * self.scale
            transposed = matrix_transpose(self.weight)
        x = self._product(vectors, transposed, self.config.backward, self.drawn_backward, "average_error", False)
        return reshape(x, (*d.shape[:-1], self.columns))

    def _product(self, x: Tensor, weights: Tensor, io: IOParameters, drawn: Any, average: str, bounded: bool) -> Tensor:
        with no_grad():
            if io.is_perfect:
                return analog_product(x, weights, io, {}, x, None)
            scale = self._average(x, io, average) if getattr(self, average) is not None else None
            return analog_product(x, weights, io, dict(drawn), self.generator.key(device=x.device), scale, bounded)

    def _average(self, x: Tensor, io: IOParameters, name: str) -> Tensor:
        """The running mean of the largest absolute inputs at each vector; in training it goes on."""
        before, top = getattr(self, name), largest(absolute(x), axis=1)
        n = x.shape[0]
        if not self.training or n == 0:
            return where(before > 0.0, before, 1.0) + top[:, None] * 0.0
        kept = 1.0 - io.nm_decay
        powers = np.arange(1, n + 1)
        weights = np.tril(kept ** (powers[:, None] - powers[None, :])) * io.nm_decay
        first = where(before > 0.0, before, top[0])
        sent = partial(asarray, dtype=float32, device=x.device)
        means = matmul(sent(weights), reshape(top, (n, 1))) + first * sent(kept ** powers[:, None])
        setattr(self, name, means[n - 1, 0])
        return means

    def _pull(self, cotangents: Any, r: Vjp) -> tuple[Tensor | None, Tensor | None]:
        d = cotangents[0] if isinstance(cotangents, tuple) else cotangents
        x, _ = r.inputs
        of_weights = None
        if r.needs[1]:
            of_weights = matmul(matrix_transpose(d if self.scale is None else d * self.scale), x)
            keep(of_weights, Factors(x, d))
        return (self.backward(d) if r.needs[0] else None), of_weights

    # update

    def update(self, x: Tensor, d: Tensor, lr: float | Tensor) -> Tensor:
        """W ← W - lr · d xᵀ by pulses, one vector after the other; W ← W - lr / scale · d xᵀ where the tile has a scale.

        Args:
            x: Inputs, float32 [..., columns].
            d: Errors, float32 [..., rows], as many vectors.
            lr: Learning rate: a number or a 0-d tensor.

        Returns:
            The number of pulses that each device got, int32 [rows, columns]; zeros where the update is by arithmetic.

        Raises:
            ShapeError: x and d do not fit the tile or each other.
            OutOfRangeError: x, d or lr is not finite.
        """
        x, d = self._vectors("x", x, self.columns), self._vectors("d", d, self.rows)
        if x.shape[0] != d.shape[0]:
            raise ShapeError(
                "Tile.update: x and d are as many vectors", f"{describe('x', x)} and {describe('d', d)}", "correct one"
            )
        with no_grad():
            return self._updated(x.detach(), d.detach() if self.scale is None else d.detach() / self.scale, lr)

    def _updated(self, x: Tensor, d: Tensor, lr: float | Tensor) -> Tensor:
        w: Tensor
        pulses: Tensor
        model, parameters = self.config.device, self.config.update
        rate = lr.detach() if isinstance(lr, Tensor) else asarray(lr, dtype=float32, device=x.device)
        if isinstance(model, ArithmeticDevice) or parameters.pulse_type in (PulseType.NONE, PulseType.NONE_WITH_DEVICE):
            w = self._acted_on - matmul(matrix_transpose(d), x) * rate
            self._set(self._within(w) if parameters.pulse_type is PulseType.NONE_WITH_DEVICE else w)
            return asarray(np.zeros((self.rows, self.columns), np.int32), device=x.device)
        assert isinstance(model, PulsedDevice)
        slots = parameters.desired_bl
        if not parameters.fixed_bl and not parameters.update_bl_management:
            if isinstance(lr, Tensor):
                raise ConfigError(
                    "Tile.update: the length of trains that grow (fixed_bl=False) is known before the update",
                    "a learning rate in a tensor", "pass a Python number, or fixed_bl=True",
                )  # fmt: skip
            slots = most_slots(parameters, float(lr), model.granularity)
        keys = [self.generator.key(device=x.device) for _ in range(3)]
        trains = made_trains(x, d, rate, model.granularity, parameters, slots, (keys[0], keys[1]))
        own, shared = model.names(self.parameters_of_devices)
        kernel = update_kernel(model.pulse_function(), own, shared, parameters.pulse_type, model.noisy)
        low, high = model.limits(dict(self.parameters_of_devices))
        numbers = [asarray(float(getattr(model, n)), dtype=float32, device=x.device) for n in shared]
        w, pulses = kernel(
            self._acted_on, low, high, x, d, trains.x, trains.d, trains.length, keys[2], rate < 0.0, slots,
            *(self.parameters_of_devices[n] for n in own), *numbers,
        )  # fmt: skip
        self._rebind(w, w if self.persistent is None else where(pulses > 0, self._with_write_noise(w), self.weight))
        return pulses

    # state

    @property
    def _write_noise(self) -> bool:
        model = self.config.device
        return isinstance(model, PulsedDevice) and model.write_noise_std > 0.0

    @property
    def _acted_on(self) -> Tensor:
        """The weights that pulses change, untracked."""
        return (self.weight if self.persistent is None else self.persistent).detach()

    def _set(self, w: Tensor) -> None:
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
        model = self.config.device
        assert isinstance(model, PulsedDevice)
        noise: Tensor = normals(self.generator.key(device=w.device), self.rows, self.columns, 0)
        return w + noise * (model.write_noise_std * model.dw_min)

    def _within(self, w: Tensor) -> Tensor:
        limits = self.config.device.limits(dict(self.parameters_of_devices))
        return w if limits is None else minimum(maximum(w, limits[0]), limits[1])

    def set_weights(self, weights: Any) -> int:
        """Set the weights. Each is clipped to the bounds of its device, with a warning of how many were.

        Args:
            weights: Tensor or array [rows, columns].

        Returns:
            Number of weights that were clipped; 0 under ``fb.jit``, where it is not known.

        Raises:
            ShapeError: The shape is not that of the tile.
        """
        clipped = self.place(weights)
        if clipped:
            count = f"{clipped} of {self.rows * self.columns}"
            warn(f"Tile.set_weights: {count} weights were outside of the bounds of their devices and are clipped", UserWarning)
        return clipped

    def place(self, weights: Any, scale: Any = None) -> int:
        """``set_weights`` without a warning.

        Args:
            weights: Tensor or array [rows, columns], already divided by the scale.
            scale: New digital factors of the outputs, [rows]; None leaves them as they are.
        """
        given = (
            weights if isinstance(weights, Tensor) else asarray(np.asarray(weights), dtype=float32, device=self.weight.device)
        )
        if given.shape != (self.rows, self.columns):
            raise ShapeError(
                f"Tile.set_weights: weights are [{self.rows}, {self.columns}]", describe("weights", given), "reshape them"
            )
        with no_grad():
            wanted = given.detach()
            w = self._within(wanted)
            if not getattr(self.config.device, "apply_write_noise_on_set", True):
                self._rebind(w, w)
            else:
                self._set(w)
            if scale is not None and self.scale is not None:
                commit = Commit()
                commit.rebind(self.scale, asarray(np.array(scale), dtype=float32, device=self.weight.device))
                commit.apply()
        return 0 if hooks.trace() is not None else int(total(w != wanted).item())

    def scaled_weights(self) -> Tensor:
        """The weights that the tile stands for: scale · W, untracked."""
        w = self.weight.detach()
        return w if self.scale is None else w * self.scale[:, None]

    def decay(self) -> None:
        """Weights decay towards the reset level by one mini-batch: w ← clip((w - b) · s + b)."""
        with no_grad():
            p = self.parameters_of_devices
            self._set(self._within((self._acted_on - p["reset_bias"]) * p["decay_scales"] + p["reset_bias"]))

    def diffuse(self) -> None:
        """Weights diffuse by one mini-batch: w ← clip(w + rate · ξ)."""
        with no_grad():
            noise = normals(self.generator.key(device=self.weight.device), self.rows, self.columns, 0)
            self._set(self._within(self._acted_on + noise * self.parameters_of_devices["diffusion_rates"]))

    def end_mini_batch(self) -> None:
        """What happens after each mini-batch: decay and diffusion, where the device has them. ``analog.SGD`` calls it."""
        if self.config.device.lifetime > 0.0:
            self.decay()
        if self.config.device.diffusion > 0.0:
            self.diffuse()

    def reset(self, first: int = 0, count: int | None = None, probability: float = 1.0) -> None:
        """Reset the devices of columns: w ← clip(b + reset_std · ξ).

        Args:
            first: First column.
            count: Number of columns, from the last on to the first; all by default.
            probability: Of each device's reset.

        Raises:
            ConfigError: The device cannot be reset, or an argument has no meaning.
        """
        std = getattr(self.config.device, "reset_std", None)
        if std is None:
            raise ConfigError("Tile.reset: a device that can be reset", type(self.config.device).__name__, "use another device")
        count = self.columns if count is None else count
        if not 0 <= first < self.columns or not 0 <= count <= self.columns or not 0.0 <= probability <= 1.0:
            raise ConfigError(
                f"Tile.reset: columns below {self.columns}, and a probability",
                f"{first}, {count}, {probability}",
                "correct them",
            )
        with no_grad():
            device = self.weight.device
            noise = normals(self.generator.key(device=device), self.rows, self.columns, 0)
            after = self._within(self.parameters_of_devices["reset_bias"] + noise * std)
            chosen = asarray((np.arange(self.columns) - first) % self.columns < count, device=device)
            if probability < 1.0:
                chosen = chosen & self.generator.bernoulli((self.rows, self.columns), p=probability, device=device)
            self._set(where(chosen, after, self._acted_on))

    def drift(self, seconds: float) -> None:
        """Conductances drift for a time, by the device's ``DriftParameter``; nothing happens where it has none.

        A device that was written since the last call drifts from then on: w ← clip(w₀ s + a (s - 1) + w_noise_std · ξ), with
        s = max(t / t₀, 1)^-ν and a = g_offset · wg_ratio + w_offset.

        Args:
            seconds: Time that passes.

        Raises:
            ConfigError: ``seconds`` is no number > 0.
        """
        given: Any = seconds
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0.0 < given < math.inf:
            raise ConfigError("Tile.drift: seconds is a number > 0", repr(seconds), "pass the time that passes")
        model = self.config.device
        if not isinstance(model, PulsedDevice) or not model.drift.active:
            return
        p, device = model.drift, self.weight.device
        with no_grad():
            w, before, state = self._acted_on, self.drift_time.detach(), self.drift_state
            written = absolute(state["last"] - w) > p.reset_tol
            first, start = where(written, w, state["written"]), where(written, before, state["start"])
            now = before + seconds / p.t_0
            nu = self.parameters_of_devices["drift_nu"].detach()
            if p.nu_std > 0.0:
                nu = nu * (normals(self.generator.key(device=device), self.rows, self.columns, 0) * p.nu_std + 1.0)
            if p.nu_k != 0.0:
                nu = nu - log((first - p.w_offset) / p.wg_ratio + p.g_offset) * p.nu_k + p.nu_k * p.log_g0
            share = pow_(maximum(now - start, 1.0), -nu)
            offset = p.g_offset * p.wg_ratio + p.w_offset
            after = first * share + (share - 1.0) * offset
            if p.w_noise_std > 0.0:
                after = after + normals(self.generator.key(device=device), self.rows, self.columns, 0) * p.w_noise_std
            self._set(self._within(after))
            commit = Commit()
            for name, t in {"written": first, "start": start, "last": self._acted_on}.items():
                commit.rebind(state[name], t)
            commit.rebind(self.drift_time, now)
            commit.apply()

    def describe(self) -> str:
        return f"{self.rows}, {self.columns}, {type(self.config.device).__name__}"

    def _vectors(self, name: str, v: Any, size: int) -> Tensor:
        """An argument as [samples, size]."""
        if not isinstance(v, Tensor):
            raise not_a_tensor("Tile", name, v, self.weight.device.name)
        check_devices("Tile", **{name: v, "weight": self.weight})
        if v.dtype is not float32:
            raise DTypeError(f"Tile: {name} is float32", describe(name, v), f"cast it: fb.astype({name}, fb.float32)")
        check_shape("Tile", name, v, f"..., {size}", size)
        return v if v.ndim == 2 else reshape(v, (math.prod(v.shape[:-1]), size))


def _recorded(pull: Any) -> Op:
    """The entry of the tape for one product, with the rule of its gradient."""
    return Op(
        name="analog product", doc="A product of a tile with vectors.",
        operands=(Operand("x", "any"), Operand("weight", "any")),
        infer=lambda x, weight: x, reference=lambda x, weight: x, vjp=pull, residuals=("inputs",),
        samples=lambda rng, dtype: [], cost=lambda inputs, outputs, params: Cost(0.0, 0.0), bound="compute", fusion="none",
        tolerance=0,
    )  # fmt: skip
