"""``Tile``: an array of resistive cross-points with its periphery, and the operations on it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from firebrick.analog.checks import array_of
from firebrick.analog.config import RPUConfig
from firebrick.analog.device_array import ARITHMETIC, DeviceArray, grown
from firebrick.analog.factors import Factors, keep
from firebrick.analog.fixed_attributes import ANOTHER, check_assigned
from firebrick.analog.ideal_devices import ArithmeticDevice
from firebrick.analog.io_parameters import IOParameters, NoiseManagementType
from firebrick.analog.matvec import analog_product, drawn_of
from firebrick.analog.pulsed_device import PulsedDevice
from firebrick.analog.tangents import Linear, inside_jvp
from firebrick.analog.tape_entries import tape_entry
from firebrick.analog.tile_weight import TileWeight
from firebrick.analog.unit_cells import UnitCell
from firebrick.analog.update_parameters import PulseType
from firebrick.analog.vmapped_products import check_examples, of_all_examples
from firebrick.autodiff.tape import grad_enabled, no_grad
from firebrick.backends.registry import find_device
from firebrick.core.autocast import autocast, wide
from firebrick.core.commit import Commit
from firebrick.core.dtypes import float32, int32, python_scalar
from firebrick.core.errors import ConfigError, DTypeError, OperandError, OutOfRangeError, ShapeError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.journal import all_or_none
from firebrick.core.lines import warn
from firebrick.core.op import Op, Vjp
from firebrick.core.operands import check_devices, describe, not_a_tensor
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import asarray
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import astype, equal, greater, isfinite, logical_and, logical_not, where
from firebrick.functions.linear import matmul
from firebrick.functions.movement import concat, matrix_transpose, reshape
from firebrick.functions.searching import argmax
from firebrick.functions.statistical import cumulative_sum
from firebrick.functions.statistical import max as largest
from firebrick.functions.utility import all as all_of
from firebrick.nn import Buffer, Module, Parameter, StateError
from firebrick.nn.checks import check_shape, check_sizes
from firebrick.random import Generator, initial_generator
from firebrick.random.draws import rows


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
        arrays: The devices: one array, or one for each device of a unit cell.
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

    pulsed = True
    """Whether ``AnalogOptimizer`` updates the tile by ``update``, and not by the optimizer's own rule."""

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
        models = model.devices if isinstance(model, UnitCell) else (model,)
        self.weight = (Parameter if isinstance(model, ArithmeticDevice) else TileWeight)(sent(np.zeros((rows, columns))))
        self.arrays: list[DeviceArray] = []
        for one in models:
            seed_of_devices = getattr(one, "construction_seed", 0)
            draws = Generator(seed_of_devices) if seed_of_devices else self.generator.fork()
            weight = Buffer(sent(np.zeros((rows, columns)))) if isinstance(model, UnitCell) else self.weight
            self.arrays.append(DeviceArray(one, weight=weight, generator=self.generator, draws=draws))
        self.state_of_cell: dict[str, Buffer] = {}
        if isinstance(model, UnitCell):
            self.state_of_cell = {n: Buffer(asarray(v, device=where_)) for n, v in model.initial(rows, columns).items()}

        def normal(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
            return np.array(draws.normal(shape, device="numpy").numpy(), np.float64)

        self.drawn_forward = {n: Buffer(sent(v)) for n, v in drawn_of(config.forward, rows, columns, normal).items()}
        self.drawn_backward = {n: Buffer(sent(v)) for n, v in drawn_of(config.backward, columns, rows, normal).items()}
        self.scale = Buffer(sent(np.ones(rows))) if config.mapping.weight_scaling_omega else None
        averages = NoiseManagementType.AVERAGE_ABS_MAX
        self.average_input = Buffer(sent(0.0)) if config.forward.noise_management is averages else None
        self.average_error = Buffer(sent(0.0)) if config.backward.noise_management is averages else None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of the module.

        Raises:
            ConfigError: It is one that only the making of a tile decides, or a weight of devices with bounds.
        """
        check_assigned(self, name, value, _FIXED, _ABSENT)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        check_assigned(self, name, None, _FIXED, _ABSENT)
        super().__delattr__(name)

    @property
    def parameters_of_devices(self) -> dict[str, Buffer]:
        """What was drawn for each device, buffers [rows, columns] by name; of unit cells, for the first device of each."""
        return self.arrays[0].hidden

    @property
    def persistent(self) -> Buffer | None:
        """The weights without write noise, for devices that have it; of unit cells, those of the first device of each."""
        return self.arrays[0].persistent

    # products

    def forward(self, x: Tensor) -> Tensor:
        """The analog product W x of each vector.

        Args:
            x: Float32 tensor [..., columns].
        """
        vectors = self._vectors("x", x, self.columns)
        found = of_all_examples(x, self.weight, self.forward)
        return reshape(self._forward(rows_before(x), vectors)[0], (*x.shape[:-1], self.rows)) if found is None else found

    @autocast(None)
    def _forward(self, before: int, vectors: Tensor) -> tuple[Tensor, Linear]:
        """The product with its gradient, and its linear function of tangents."""
        io = self.config.forward
        found = inside_jvp(vectors, partial(self._forward, before))
        if found is None:
            check_examples(vectors, self.weight)
            y = self._product(vectors, self.weight, io, self.drawn_forward, "average_input", True, before)
            if self.scale is not None:
                with no_grad():
                    y = y * self.scale
            found = y, self._along
        if grad_enabled() and (vectors.node is not None or self.weight.node is not None):
            hooks.record(_product_entry(partial(self._pull, before)), (vectors, self.weight), {}, (found[0],))
        return found

    @autocast(None)
    def _along(self, tangent: Tensor) -> Tensor:
        """The exact product of a tangent of the inputs."""
        y = matmul(tangent, matrix_transpose(self.weight))
        y = y if self.scale is None else y * self.scale.detach()
        return y if self.config.forward.out_scale == 1.0 else y * self.config.forward.out_scale

    def backward(self, d: Tensor) -> Tensor:
        """The analog product Wᵀ d of each vector.

        Args:
            d: Float32 tensor [..., rows].
        """
        vectors = self._vectors("d", d, self.rows)
        return reshape(self._backward(rows_before(d), vectors)[0], (*d.shape[:-1], self.columns))

    @autocast(None)
    def _backward(self, before: int, vectors: Tensor) -> tuple[Tensor, Linear]:
        """The product with its gradient, which is that of the exact product, and its linear function of tangents."""
        io = self.config.backward
        exact = partial(exact_backward, weights=self.weight, factor=self.scale, io=io)
        whole = of_all_examples(vectors, self.weight, lambda d: in_rows(d, partial(self._backward, before)))
        if whole is not None:
            return whole, exact
        found = inside_jvp(vectors, partial(self._backward, before))
        if found is None:
            check_examples(vectors, self.weight)
            with no_grad():
                scaled = vectors if self.scale is None else vectors * self.scale
            x = self._product(scaled, self.weight, io, self.drawn_backward, "average_error", False, before)
            found = x, exact
        if grad_enabled() and (vectors.node is not None or self.weight.node is not None):
            hooks.record(transposed_product(None, self.scale, io), (vectors, self.weight), {}, (found[0],))
        return found

    def _product(
        self, x: Tensor, weights: Tensor, io: IOParameters, drawn: Any, average: str, forward: bool, before: int = 0
    ) -> Tensor:
        with no_grad():
            if io.is_perfect:
                return analog_product(x, weights, io, {}, x, None, backward=not forward)
            scale = self._average(x, io, average) if getattr(self, average) is not None else None
            key = self.generator.key(device=x.device)
            return analog_product(x, weights, io, dict(drawn), key, scale, forward, before, not forward)

    def _average(self, x: Tensor, io: IOParameters, name: str) -> Tensor:
        """The running mean of the largest absolute inputs at each vector; in training it goes on."""
        before, top = getattr(self, name), largest(absolute(x), axis=1)
        n = x.shape[0]
        if not self.training or n == 0:
            return where(before > 0.0, before, 1.0) + top[:, None] * 0.0
        kept = 1.0 - io.nm_decay
        started = before > 0.0
        first = where(started, before, top[argmax(astype(greater(top, 0.0), int32))])
        leading = logical_and(logical_not(started), equal(cumulative_sum(top), 0.0))  # vectors of zeros start no mean
        means = where(leading, first, top) * io.nm_decay
        past = 1
        while past < n:  # the sum over 2, 4, 8, … vectors up to each one
            means = means + concat([means[:past] * 0.0, means[:-past] * kept**past])
            past *= 2
        powers = asarray(kept ** np.arange(1, n + 1), dtype=float32, device=x.device)
        means = reshape(means + first * powers, (n, 1))
        setattr(self, name, means[n - 1, 0])
        return means

    @autocast(None)
    def _pull(self, before: int, cotangents: Any, r: Vjp) -> tuple[Tensor | None, Tensor | None]:
        d = cotangents[0] if isinstance(cotangents, tuple) else cotangents
        x, _ = r.inputs
        of_weights = None
        if r.needs[1]:
            of_weights = matmul(matrix_transpose(d if self.scale is None else d * self.scale), x)
            keep(of_weights, (Factors(x, d),))
        return (self._backward(before, d)[0] if r.needs[0] else None), of_weights

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
            DeviceMismatchError: x, d or lr is on another device than the tile.
            ShapeError: x and d do not fit the tile or each other, or lr is no 0-d tensor.
            DTypeError: x, d or lr is not float32.
            OutOfRangeError: x, d or lr is not finite; nothing was changed. Under ``fb.jit`` it is an ``ExecutionError`` where
                the update is by pulses; where it is by arithmetic, the weights are not finite then.
        """
        return all_or_none(partial(self.update_checked, *self.check_update(x, d, lr), lr))

    def check_update(self, x: Tensor, d: Tensor, lr: float | Tensor) -> tuple[Tensor, Tensor]:
        """Raise the errors that ``update`` has for these arguments, before anything changes.

        Args:
            x: Inputs, float32 [..., columns].
            d: Errors, float32 [..., rows], as many vectors.
            lr: Learning rate: a number or a 0-d tensor.

        Returns:
            The arguments of ``update_checked``: x [samples, columns] and d [samples, rows].

        Raises:
            ConfigError: Trains grow, the learning rate is that of a graph, and there would be too many words of trains.
            DeviceMismatchError: x, d or lr is on another device than the tile.
            ShapeError: x and d do not fit the tile or each other, or lr is no 0-d tensor.
            DTypeError: x, d or lr is not float32.
            OutOfRangeError: x, d or lr is not finite; under ``fb.jit`` that is not known.
        """
        x, d = self._vectors("x", x, self.columns), self._vectors("d", d, self.rows)
        if x.shape[0] != d.shape[0]:
            raise ShapeError(
                "Tile.update: x and d are as many vectors", f"{describe('x', x)} and {describe('d', d)}", "correct one"
            )
        _check_rate("Tile.update", lr, self.weight)
        _check_finite("Tile.update", x=x, d=d, lr=lr)
        if self.scale is not None:
            _check_finite("Tile.update", **{"d / scale": d.detach() / self.scale})
        model = self.config.device
        if not isinstance(model, ArithmeticDevice) and self.config.update.pulse_type not in ARITHMETIC:
            grown(self.config.update, lr, model.granularity, (x.shape[0], self.rows + self.columns))
        return x, d

    def update_checked(self, x: Tensor, d: Tensor, lr: float | Tensor) -> Tensor:
        """``update`` with the vectors that ``check_update`` returned.

        Args:
            x: Inputs [samples, columns].
            d: Errors [samples, rows].
            lr: Learning rate.
        """
        with no_grad(), autocast(None):
            x, d = x.detach(), d.detach() if self.scale is None else d.detach() / self.scale
            model = self.config.device
            if isinstance(model, UnitCell):
                counts = model.update(self, x, d, lr)
                self.show()
                return counts
            return self.arrays[0].update(x, d, lr, self.config.update)

    @property
    def by_arithmetic(self) -> bool:
        """Whether updates are by arithmetic, so that the gradient of the weights is all that they need."""
        model = self.config.device
        return isinstance(model, ArithmeticDevice) or (
            isinstance(model, PulsedDevice) and self.config.update.pulse_type in ARITHMETIC
        )

    @property
    def fades(self) -> bool:
        """Whether weights decay or diffuse at the end of each mini-batch, also where they are frozen."""
        return any(array.model.lifetime > 0.0 or array.model.diffusion > 0.0 for array in self.arrays)

    def _optimized_by(self, path: str, optimizer: Any) -> None:
        if getattr(optimizer, "updates_tiles", False):
            return
        name, model = type(optimizer).__name__, self.config.device
        if self.fades:
            warn(
                f"{name} ends no mini-batch of the tile {path}, so its weights neither decay nor diffuse: use analog.SGD, or "
                "another optimizer behind analog.AnalogOptimizer", UserWarning,
            )  # fmt: skip
        noisy = self.arrays[0].persistent is not None
        free = isinstance(model, ArithmeticDevice) or (self.config.update.pulse_type is PulseType.NONE and not noisy)
        if self.weight.frozen or (free and not isinstance(model, UnitCell)):
            return
        raise ConfigError(
            f"{name}: the weights of the tile {path} change by the updates of its device ({type(model).__name__})",
            "an optimizer that changes them by arithmetic, past the device's bounds",
            f"use analog.SGD(model, lr=…), or class Analog{name}(analog.AnalogOptimizer, optim.{name}): pass",
        )

    def _loaded_in_part(self, prefix: str, state: Any) -> None:
        absent = [n for n, _ in self._tensors() if f"{prefix}{n}" not in state]
        if absent and isinstance(self.weight, TileWeight) and f"{prefix}weight" in state:
            raise StateError(
                "a state with the weights of a tile has its devices too", f"{prefix}weight without {', '.join(absent[:3])}",
                "load all that state_dict() has of the tile, or call tile.set_weights(…). Nothing was loaded",
            )  # fmt: skip

    def descend(self, gradient: Tensor, lr: float | Tensor) -> None:
        """W ← W - lr · gradient / scale², by arithmetic: what ``update`` does where the gradient is scale · Σ d xᵀ.

        Args:
            gradient: Of the weights, float32 [rows, columns].
            lr: Learning rate: a number or a 0-d tensor.

        Raises:
            DeviceMismatchError: lr is on another device than the tile.
            ShapeError: The shape is not that of the tile, or lr is no 0-d tensor.
            UnsupportedError: The devices are updated by pulses, which a gradient alone does not decide.
        """
        if not self.by_arithmetic:
            raise UnsupportedError(
                "Tile.descend: a tile that is updated by arithmetic", type(self.config.device).__name__, "call Tile.update"
            )
        _check_rate("Tile.descend", lr, self.weight)
        if gradient.shape != (self.rows, self.columns):
            received = describe("gradient", gradient)
            raise ShapeError(f"Tile.descend: a gradient [{self.rows}, {self.columns}]", received, "reshape it")
        with no_grad():
            change = gradient.detach() if self.scale is None else gradient.detach() / (self.scale * self.scale)[:, None]
            self.arrays[0].change(change * -lr, self.config.update.pulse_type)

    # state

    def show(self) -> None:
        """Set the visible weights to those of the devices of unit cells, as after ``tile.arrays[0].place(w)``."""
        model = self.config.device
        if isinstance(model, UnitCell):
            commit = Commit()
            commit.rebind(self.weight, model.visible([a.weight.detach() for a in self.arrays], self.state_of_cell))
            commit.apply()

    def set_weights(self, weights: Any) -> int:
        """Set the weights. Each is clipped to the bounds of its device, with a warning of how many were.

        Args:
            weights: Tensor or array [rows, columns].

        Returns:
            Number of weights that were clipped; 0 under ``fb.jit``, where it is not known.

        Raises:
            OperandError: They are no numbers, or a ragged list.
            DTypeError: They are complex, or of a dtype that Firebrick has not.
            DeviceMismatchError: They are a tensor on another device.
            ShapeError: The shape is not that of the tile.
            OutOfRangeError: A weight is not finite; under ``fb.jit`` that is not known.
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
        given = weights
        if not isinstance(weights, Tensor):
            given = asarray(array_of("Tile.set_weights: weights", weights), dtype=float32, device=self.weight.device)
        if given.shape != (self.rows, self.columns):
            raise ShapeError(
                f"Tile.set_weights: weights are [{self.rows}, {self.columns}]", describe("weights", given), "reshape them"
            )
        check_devices("Tile.set_weights", weights=given, weight=self.weight)
        if given.dtype is not float32:
            if given.dtype.kind == "complex":
                raise DTypeError("Tile.set_weights: weights are real", describe("weights", given), "take the real part first")
            given = astype(given, float32)
        _check_finite("Tile.set_weights", weights=given)
        model = self.config.device
        with no_grad():
            wanted = [given.detach()] if not isinstance(model, UnitCell) else model.parts(given.detach())
            clipped = max(a.place(w) for a, w in zip(self.arrays, wanted, strict=True) if w is not None)
            self.show()
            if scale is not None and self.scale is not None:
                commit = Commit()
                commit.rebind(self.scale, asarray(np.array(scale), dtype=float32, device=self.weight.device))
                commit.apply()
        return clipped

    def scaled_weights(self) -> Tensor:
        """The weights that the tile stands for: scale · W, untracked."""
        w = self.weight.detach()
        return w if self.scale is None else w * self.scale[:, None]

    def decay(self) -> None:
        """Weights decay towards the reset level by one mini-batch: w ← clip((w - b) · s + b)."""
        with no_grad():
            for array in self.arrays:
                array.decay()
            self.show()

    def diffuse(self) -> None:
        """Weights diffuse by one mini-batch: w ← clip(w + rate · ξ)."""
        with no_grad():
            for array in self.arrays:
                array.diffuse()
            self.show()

    def end_mini_batch(self) -> None:
        """What happens after each mini-batch: decay and diffusion, where the device has them. ``analog.SGD`` calls it."""
        with no_grad():
            for array in self.arrays:
                array.end_mini_batch()
            self.show()

    def reset(self, first: int = 0, count: int | None = None, probability: float = 1.0) -> None:
        """Reset the devices of columns: w ← clip(b + reset_std · ξ).

        Args:
            first: First column.
            count: Number of columns, from the last on to the first; all by default.
            probability: Of each device's reset.

        Raises:
            ConfigError: The device cannot be reset, or an argument has no meaning.
        """
        count = self.columns if count is None else count
        for name, number in (("first", first), ("count", count)):
            if type(python_scalar(number)) is not int:
                raise ConfigError(
                    f"Tile.reset: {name} is an int", repr(number)[:60], "pass the number of a column, and how many"
                )
        if not 0 <= first < self.columns or not 0 <= count <= self.columns or not 0.0 <= probability <= 1.0:
            given = f"{first}, {count}, {probability}"
            raise ConfigError(f"Tile.reset: columns below {self.columns}, and a probability", given, "correct them")
        device = self.weight.device
        with no_grad():
            chosen = asarray((np.arange(self.columns) - first) % self.columns < count, device=device)
            if probability < 1.0:
                chosen = chosen & self.generator.bernoulli((self.rows, self.columns), p=probability, device=device)
            for array in self.arrays:
                array.reset(chosen)
            self.show()

    def drift(self, seconds: float) -> None:
        """Conductances drift for a time, by the device's ``DriftParameter``; nothing happens where it has none.

        A device that was written since the last call drifts from then on: w ← clip(w₀ s + a (s - 1) + w_noise_std · ξ), with
        s = max(t / t₀, 1)^-ν and a = g_offset · wg_ratio + w_offset.

        Args:
            seconds: Time that passes.

        Raises:
            ConfigError: ``seconds`` is no number > 0.
            OutOfRangeError: ``nu_k`` is not 0, and a conductance, of which the logarithm is taken, is not above 0.
        """
        given: Any = python_scalar(seconds)
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0.0 < given < math.inf:
            raise ConfigError("Tile.drift: seconds is a number > 0", repr(seconds), "pass the time that passes")
        with no_grad():
            for array in self.arrays:
                array.drift(given)
            self.show()

    def describe(self) -> str:
        return f"{self.rows}, {self.columns}, {type(self.config.device).__name__}"

    def _vectors(self, name: str, v: Any, size: int) -> Tensor:
        """An argument as [samples, size]."""
        if not isinstance(v, Tensor):
            raise not_a_tensor("Tile", name, v, self.weight.device.name)
        check_devices("Tile", **{name: v, "weight": self.weight})
        if self.weight.dtype is not float32:
            remedy = "cast digital parts of the model only; fb.autocast leaves tiles as they are"
            raise DTypeError("Tile: weights are float32", describe("weight", self.weight), remedy)
        v = wide(v)  # hardware is simulated in float32, also in mixed precision
        if v.dtype is not float32:
            raise DTypeError(f"Tile: {name} is float32", describe(name, v), f"cast it: fb.astype({name}, fb.float32)")
        check_shape("Tile", name, v, f"..., {size}", size)
        return v if v.ndim == 2 else reshape(v, (math.prod(v.shape[:-1]), size))


_FIXED = {
    "weight": "call tile.set_weights(…)", "generator": "call tile.generator.set_state(other.state())",
    **dict.fromkeys(("config", "rows", "columns", "arrays"), ANOTHER),
}  # fmt: skip
_ABSENT = {
    **dict.fromkeys(("lr", "learning_rate"), "assign optimizer.learning_rate, or pass lr to tile.update"),
    "pulsed": "make an InferenceTile for weights that an optimizer changes by arithmetic",
}  # fmt: skip


def _check_rate(name: str, lr: Any, weight: Tensor) -> None:
    """Raise unless a learning rate is a number, or a 0-d tensor of float32 on the device of the weights."""
    if isinstance(lr, Tensor):
        check_devices(name, lr=lr, weight=weight)
        if lr.shape != ():
            raise ShapeError(f"{name}: lr is a number, or a 0-d tensor", describe("lr", lr), "pass one rate")
        if lr.dtype is not float32:
            raise DTypeError(f"{name}: a learning rate in a tensor is float32", describe("lr", lr), "cast it")
        return
    given: Any = python_scalar(lr)
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise OperandError(f"{name}: lr is a number, or a 0-d tensor", repr(lr)[:60], "pass e.g. 0.1")


def _check_finite(name: str, **given: Any) -> None:
    """Raise OutOfRangeError for a tensor or number that is not finite; not inside a trace, where values are not known."""
    if hooks.trace() is not None:
        return
    for what, value in given.items():
        if isinstance(value, Tensor):
            host = value.device.backend.host_memory(value.device)
            good = bool(np.isfinite(value.numpy()).all() if host else all_of(isfinite(value.detach())).item())
            shown = describe(what, value)
        else:
            good, shown = abs(value) <= float(np.finfo(np.float32).max), f"{what}={value!r:.40}"
        if not good:
            raise OutOfRangeError(
                f"{name}: {what} is finite in float32", shown, "find out where NaN, infinity or the large value came from"
            )


def rows_before(vectors: Tensor) -> int:
    """How many vectors of the whole batch come before those of a share, whose first axis is the batch."""
    before = rows.get()
    return before * math.prod(vectors.shape[1:-1]) if before and vectors.ndim > 1 else 0


def in_rows(vectors: Tensor, product: Callable[[Tensor], tuple[Tensor, Linear]]) -> Tensor:
    """The product of vectors [examples, samples, size], which is made of vectors [samples, size].

    Args:
        vectors: The vectors of all examples.
        product: Makes the product.
    """
    y = product(reshape(vectors, (math.prod(vectors.shape[:-1]), vectors.shape[-1])))[0]
    return reshape(y, (*vectors.shape[:-1], y.shape[-1]))


_product_entry = partial(tape_entry, "analog product", "A product of a tile with vectors.", ("x", "weight"))


@autocast(None)
def exact_backward(tangent: Tensor, weights: Tensor, factor: Tensor | None, io: IOParameters) -> Tensor:
    """The exact product Wᵀ d of a tangent of the errors.

    Args:
        tangent: Of the errors [samples, rows].
        weights: W, [rows, columns].
        factor: Digital factors of the outputs; None for 1.
        io: Periphery of the product.
    """
    x = matmul(tangent if factor is None else tangent * factor.detach(), weights)
    return x if io.out_scale == 1.0 else x * io.out_scale


def transposed_product(weights: Tensor | None, factor: Tensor | None, io: IOParameters) -> Op:
    """The entry of the tape for a product Wᵀ d, from which second derivatives come: its gradient is that of the exact product.

    Args:
        weights: W of the product, [rows, columns], whose gradient is that of the second operand; None where they are equal.
        factor: Digital factors of the outputs; None for 1.
        io: Periphery of the product.
    """

    @autocast(None)
    def pull(cotangents: Any, r: Vjp) -> tuple[Tensor | None, Tensor | None]:
        g = cotangents[0] if isinstance(cotangents, tuple) else cotangents
        g = g if io.out_scale == 1.0 else g * io.out_scale
        d, of_d, of_weights = r.inputs[0], None, None
        if r.needs[0]:
            of_d = matmul(g, matrix_transpose(r.inputs[1] if weights is None else weights))
            of_d = of_d if factor is None else of_d * factor.detach()
        if r.needs[1]:
            of_weights = matmul(matrix_transpose(d if factor is None else d * factor.detach()), g)
        return of_d, of_weights

    return _product_entry(pull)
