"""``InferenceTile``: a tile whose weights are trained digitally, programmed once, and then drift."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from firebrick.analog.inference_config import InferenceRPUConfig
from firebrick.analog.normal_numbers import normals, uniforms
from firebrick.analog.tangents import Linear, inside_jvp
from firebrick.analog.tape_entries import tape_entry
from firebrick.analog.tile import Tile, exact_backward, in_rows, rows_before, transposed_product
from firebrick.analog.vmapped_products import changed_for_all, check_examples, of_all_examples
from firebrick.analog.weight_limits import WeightClipType, WeightRemapType
from firebrick.analog.weight_modifiers import modified
from firebrick.autodiff.tape import grad_enabled, no_grad
from firebrick.core.autocast import autocast
from firebrick.core.commit import Commit
from firebrick.core.dtypes import float32, python_scalar
from firebrick.core.errors import ConfigError, OutOfRangeError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.levels import running
from firebrick.core.lines import warn
from firebrick.core.op import Vjp
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.functions.conversion import asarray
from firebrick.functions.creation import full_like
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.elementwise import astype, clip, equal, isfinite, logical_and, maximum, where
from firebrick.functions.linear import matmul
from firebrick.functions.movement import broadcast_to, matrix_transpose, reshape
from firebrick.functions.statistical import std as deviation
from firebrick.functions.statistical import sum as total
from firebrick.functions.utility import all as all_of
from firebrick.nn import Buffer, Parameter
from firebrick.random import Generator


@dataclass(frozen=True)
class TileStatistics:
    """How far the weights that a programmed tile shows are from those that were aimed at.

    Attributes:
        time: Seconds since programming.
        error_mean: Mean of the differences, relative to the largest absolute weight; without drift compensation.
        error_std: Their standard deviation, relative to the largest absolute weight.
        compensation: Mean factor of the drift compensation.
        conductance_mean: Mean conductance after programming, in microsiemens.

    Example:
        >>> import firebrick as fb
        >>> tile = fb.analog.InferenceTile(8, 8, fb.analog.InferenceRPUConfig(), seed=0).eval()
        >>> _ = tile.set_weights(fb.random.Generator(1).normal((8, 8)))
        >>> tile.program_weights()
        >>> 0.0 < tile.statistics().error_std < 0.1
        True
    """

    time: float
    error_mean: float
    error_std: float
    compensation: float
    conductance_mean: float


class InferenceTile(Tile):
    """A tile for inference: its weights are trained digitally, programmed as conductances once, and drift from then on.

    In training mode products have the weights as the modifier changes them, and the gradient of the weights is that of the
    unmodified ones. In evaluation mode, after ``program_weights``, products have the weights that the
    conductances show. A training pass and new weights, by an optimizer or however they are written, discard what was
    programmed.

    Args:
        rows: Number of outputs.
        columns: Number of inputs.
        config: An ``InferenceRPUConfig``.
        seed: Seed of its generator.
        generator: Its generator, in place of a seed; by default one derived from ``fb.random.initial_generator()``.
        device: Device of the tensors.

    Attributes:
        conductances: After programming, buffer [devices · rows, columns] in microsiemens.
        drift_coefficients: Of each device, buffer of the same shape.
        shown: The weights that were last read, buffer [rows, columns].
        compensation: Factors of the outputs by drift compensation, buffer [rows].
        time: Seconds since programming of the last read; -1 where nothing is programmed.
        input_range: What was learned of the input range, parameter 0-d, added to ``range_of_data``; None without one.

    Raises:
        ConfigError: A size or the configuration has no meaning.

    Example:
        >>> import firebrick as fb
        >>> tile = fb.analog.InferenceTile(2, 3, fb.analog.InferenceRPUConfig(), seed=0).eval()
        >>> _ = tile.set_weights(fb.ones((2, 3)))
        >>> tile.program_weights()
        >>> tile.drift_weights(3600.0)
        >>> bool(fb.all(tile.shown < 1.0)), bool(fb.all(tile.compensation > 1.0))
        (True, True)
    """

    pulsed = False

    def __init__(
        self, rows: int, columns: int, config: InferenceRPUConfig | None = None, *, seed: int | None = None,
        generator: Generator | None = None, device: Any = None,
    ) -> None:  # fmt: skip
        config = InferenceRPUConfig() if config is None else config
        if not isinstance(config, InferenceRPUConfig):
            raise ConfigError(
                "InferenceTile: config is an InferenceRPUConfig", repr(config)[:80], "pass analog.InferenceRPUConfig(…)"
            )
        super().__init__(rows, columns, config, seed=seed, generator=generator, device=device)
        self.config: InferenceRPUConfig = config
        sent = partial(asarray, dtype=float32, device=self.weight.device)
        shape = (config.noise_model.converter.devices * rows, columns)
        self.conductances = Buffer(sent(np.zeros(shape)))
        self.drift_coefficients = Buffer(sent(np.zeros(shape)))
        self.targets = Buffer(sent(np.zeros((rows, columns))))
        self.conversion = Buffer(sent(np.ones(2)))
        self.shown = Buffer(sent(np.zeros((rows, columns))))
        self.compensation = Buffer(sent(np.ones(rows)))
        self.baseline = Buffer(sent(np.ones(rows)))
        self.time = Buffer(sent(-1.0))
        if self.scale is None and config.remap.type is not WeightRemapType.NONE:
            self.scale = Buffer(sent(np.ones(rows)))
        self.input_range: Parameter | None = None
        if config.input_range.enable:
            self.input_range = Parameter(sent(0.0), frozen=not config.input_range.learn_input_range)
            self.range_of_data = Buffer(sent(config.input_range.init_value))
            self.range_batches = Buffer(sent(0.0))

    @property
    def programmed(self) -> bool:
        """Whether the tile shows programmed weights in evaluation."""
        return bool(self._is_programmed().item())

    def _is_programmed(self) -> Tensor:
        """Whether weights were programmed and not changed since, 0-d bool."""
        with no_grad():
            return logical_and(self.time >= 0.0, all_of(equal(self.targets, self._wanted(self.weight.detach()))))

    def _wanted(self, weights: Tensor) -> Tensor:
        """What is programmed of weights: those within a fixed limit."""
        return self.config.clip.clipped(weights) if self.config.clip.fixed else weights

    # products

    def forward(self, x: Tensor) -> Tensor:
        """The analog product W x of each vector.

        Args:
            x: Float32 tensor [..., columns].
        """
        vectors = self._vectors("x", x, self.columns)
        found = of_all_examples(x, self.weight, self.forward)
        return reshape(self._forward_pass(rows_before(x), vectors)[0], (*x.shape[:-1], self.rows)) if found is None else found

    @autocast(None)
    def _forward_pass(self, before: int, vectors: Tensor) -> tuple[Tensor, _Pass]:
        """The product with its gradient, and what it was made of."""
        io, ranged = self.config.forward, self.input_range
        found = inside_jvp(vectors, partial(self._forward_pass, before))
        if found is None:
            check_examples(vectors, self.weight, ranged)
            bound = None if ranged is None else self._range_for(vectors)
            programmed = None if self.training else self._is_programmed()
            made = _Pass(self, before, vectors, self._weights_of_pass(programmed), self._factor(programmed), bound)
            with no_grad():
                inputs = made.inputs(vectors)
                y = self._product(inputs, made.weights, io, self.drawn_forward, "average_input", True, before)
                y = y if made.factor is None else y * made.factor
                y = y if bound is None else y * bound
            found = y, made
        y, made = found
        operands = (vectors, made.weights) if ranged is None else (vectors, made.weights, ranged)
        if grad_enabled() and any(t.node is not None for t in operands):
            names = ("x", "weight", "input_range")[: len(operands)]
            hooks.record(tape_entry("inference product", _PART, names, made.pull), operands, {}, (y,))
        return found

    def backward(self, d: Tensor) -> Tensor:
        """The analog product Wᵀ d of each vector, in evaluation with the weights that the tile shows.

        Args:
            d: Float32 tensor [..., rows].
        """
        vectors = self._vectors("d", d, self.rows)
        programmed = None if self.training else self._is_programmed()
        weights = self.weight if programmed is None else self._passed(self._shown_weights(programmed))
        x = self._transposed(weights, self._factor(programmed), rows_before(d), vectors)[0]
        return reshape(x, (*d.shape[:-1], self.columns))

    @autocast(None)
    def _transposed(self, weights: Tensor, factor: Tensor | None, before: int, d: Tensor) -> tuple[Tensor, Linear]:
        """The product Wᵀ d with its gradient, and its linear function of tangents."""
        io = self.config.backward
        exact = partial(exact_backward, weights=weights, factor=factor, io=io)
        whole = of_all_examples(d, weights, lambda v: in_rows(v, partial(self._transposed, weights, factor, before)))
        if whole is not None:
            return whole, exact
        found = inside_jvp(d, partial(self._transposed, weights, factor, before))
        if found is None:
            check_examples(d, weights)
            with no_grad():
                scaled = d if factor is None else d * factor
            x = self._product(scaled, weights, io, self.drawn_backward, "average_error", False, before)
            found = x, exact
        if grad_enabled() and (d.node is not None or weights.node is not None):
            hooks.record(transposed_product(None, factor, io), (d, weights), {}, (found[0],))
        return found

    def _factor(self, programmed: Tensor | None) -> Tensor | None:
        """Digital factors of the outputs, [rows]; ``programmed`` is None in training."""
        scale = None if self.scale is None else self.scale.detach()
        if programmed is None or self.config.drift_compensation is None:
            return scale
        with no_grad():
            factor = where(programmed, self.compensation.detach(), 1.0)
        return factor if scale is None else factor * scale

    def _weights_of_pass(self, programmed: Tensor | None) -> Tensor:
        """The weights of a product, whose gradient is that of the tile's weights."""
        with no_grad():
            found = self._wanted(self.weight.detach()) if programmed is None else self._shown_weights(programmed)
            if self.config.modifier.active and (self.training or self.config.modifier.enable_during_test):
                found = modified(found, self.config.modifier, *self._draws(self.rows))
            if self.training:
                with changed_for_all(running()):
                    self._note(time=full_like(self.time, -1.0))
        return self._passed(found)

    def _passed(self, found: Tensor) -> Tensor:
        """Weights that are used in place of the tile's own, with the gradient of these."""
        if grad_enabled() and self.weight.node is not None:
            hooks.record(_PASSED, (self.weight,), {}, (found,))
        return found

    def _shown_weights(self, programmed: Tensor) -> Tensor:
        with no_grad():
            return where(programmed, self.shown.detach(), self.weight.detach())

    def _draws(self, rows: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
        """What draws normal and what draws uniform numbers [rows, columns]; each call draws others."""
        key, streams = self.generator.key(device=self.weight.device), count()

        def normal() -> Tensor:
            found: Tensor = normals(key, rows, self.columns, next(streams))
            return found

        def uniform() -> Tensor:
            found: Tensor = uniforms(key, rows, self.columns, next(streams))
            return found

        return normal, uniform

    # input range

    def _range_for(self, x: Tensor) -> Tensor:
        """The input range for a batch, 0-d and untracked; in training the first batches set it."""
        assert self.input_range is not None
        p = self.config.input_range
        with no_grad():
            learned = self.input_range.detach()
            bound = absolute(self.range_of_data.detach() + learned)
            if self.training and p.init_from_data and x.size > 1:
                seen, spread = self.range_batches.detach(), deviation(x.detach(), correction=1.0)
                counts = (seen < float(p.init_from_data)) & (spread > 0.0)
                bound = where(counts, (bound * seen + spread * p.init_std_alpha) / (seen + 1.0), bound)
                self._note(range_of_data=bound - learned, range_batches=seen + astype(counts, float32))
            return maximum(bound, 1e-12)  # inputs are divided by it

    def set_input_range(self, bound: float) -> None:
        """Set the input range; no later batch changes it but by training.

        Args:
            bound: Largest input.

        Raises:
            ConfigError: The tile has no input range, or the bound is no positive number.
        """
        if self.input_range is None:
            raise ConfigError(
                "InferenceTile.set_input_range: a tile with an input range", "one without",
                "configure it: input_range=analog.InputRangeParameter(enable=True)",
            )  # fmt: skip
        given: Any = python_scalar(bound)
        if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0.0 < given < math.inf:
            raise ConfigError("InferenceTile.set_input_range: a positive number", repr(bound)[:60], "pass the largest input")
        with no_grad():
            commit = Commit()
            commit.rebind(self.range_of_data, full_like(self.range_of_data, float(given)))
            commit.rebind(self.input_range, full_like(self.input_range, 0.0))
            commit.rebind(self.range_batches, full_like(self.range_batches, float(self.config.input_range.init_from_data)))
            commit.apply()

    # programming and drift

    @autocast(None)
    def program_weights(self, *, again: bool = False) -> None:
        """Program the weights: from now on the tile shows, in evaluation, those of its conductances.

        Weights beyond a fixed limit of ``config.clip`` are clipped, with a warning of how many. They are converted to
        conductances, in proportion to the largest one, which are programmed with the noise of ``config.noise_model``.

        Args:
            again: Whether a tile that is programmed is programmed anew, with new noise.

        Raises:
            ConfigError: The tile is in training mode, or is programmed already.
            OutOfRangeError: A weight is not finite.
        """
        self._check_outside_of_training("program_weights")
        if self.programmed and not again:
            raise ConfigError(
                "InferenceTile.program_weights: a tile that is not programmed yet",
                f"one that was programmed and read {self.time.item():g} s later",
                "pass again=True to program it anew",
            )
        model, compensation = self.config.noise_model, self.config.drift_compensation
        with no_grad():
            given = self.weight.detach()
            if not bool(all_of(isfinite(given)).item()):
                raise OutOfRangeError(
                    "InferenceTile.program_weights: weights that are finite", describe("weight", self.weight),
                    "find out in training where NaN or infinity came from",
                )  # fmt: skip
            wanted = self._wanted(given)
            clipped = int(total(wanted != given).item()) if self.config.clip.fixed else 0
            g_target, conversion = model.converter.convert_to_conductances(wanted)
            normal, _ = self._draws(g_target.shape[0])
            g = model.apply_programming_noise_to_conductance(g_target, normal)
            coefficients = model.generate_drift_coefficients(g_target, g, normal)
            shown = model.converter.convert_back_to_weights(g, conversion)
            commit = Commit()
            for buffer, value in (
                (self.targets, wanted), (self.conductances, g), (self.drift_coefficients, coefficients), (self.shown, shown),
                (self.conversion, conversion), (self.compensation, full_like(self.compensation, 1.0)),
                (self.time, full_like(self.time, 0.0)),
            ):  # fmt: skip
                commit.rebind(buffer, value)
            if compensation is not None:
                commit.rebind(self.baseline, self._readout(wanted if compensation.exact_reference else shown))
            commit.apply()
        if clipped:
            warn(
                f"InferenceTile.program_weights: {clipped} of {self.rows * self.columns} weights were outside of "
                f"±{self.config.clip.fixed_value:g} and are clipped", UserWarning,
            )  # fmt: skip

    @autocast(None)
    def drift_weights(self, t_inference: float) -> None:
        """Read the weights at a time after programming, with drift and new read noise, and compensate the drift.

        Args:
            t_inference: Seconds since programming, at least 0.

        Raises:
            ConfigError: Nothing is programmed, the tile is in training mode, or the noise model has no such time.
        """
        given = time_of("InferenceTile.drift_weights", t_inference)
        self._check_outside_of_training("drift_weights")
        model, compensation = self.config.noise_model, self.config.drift_compensation
        model.check_time(given)
        if not self.programmed:
            raise ConfigError(
                "InferenceTile.drift_weights: weights that are programmed", "a tile that is not", "call program_weights first"
            )
        with no_grad():
            normal, _ = self._draws(self.conductances.shape[0])
            g = model.apply_drift_noise_to_conductance(
                self.conductances.detach(), self.drift_coefficients.detach(), given, normal
            )
            shown = model.converter.convert_back_to_weights(g, self.conversion.detach())
            commit = Commit()
            commit.rebind(self.shown, shown)
            commit.rebind(self.time, full_like(self.time, given))
            if compensation is not None:
                now = self._readout(shown)
                good = now > 0.0
                commit.rebind(self.compensation, where(good, self.baseline.detach() / where(good, now, 1.0), 1.0))
            commit.apply()

    def _readout(self, weights: Tensor) -> Tensor:
        """What drift compensation compares, [rows]."""
        assert self.config.drift_compensation is not None
        identity = asarray(np.eye(self.columns, dtype=np.float32), device=weights.device)
        outputs = self._product(identity, weights, self.config.forward, self.drawn_forward, "average_input", True)
        return broadcast_to(self.config.drift_compensation.readout(outputs), (self.rows,))

    def _check_outside_of_training(self, name: str) -> None:
        if hooks.trace() is not None:
            raise UnsupportedError(f"InferenceTile.{name} acts on the host", "a call under jit", "call it before")
        if self.training:
            raise ConfigError(f"InferenceTile.{name}: a tile in evaluation mode", "training mode", "call model.eval() before")

    def statistics(self) -> TileStatistics:
        """How far the weights that the tile shows are from those that were programmed.

        Raises:
            ConfigError: Nothing is programmed.
        """
        if not self.programmed:
            raise ConfigError("InferenceTile.statistics: a programmed tile", "one that is not", "call program_weights first")
        targets = self.targets.numpy().astype(np.float64)
        top = float(np.abs(targets).max()) or 1.0
        error = (self.shown.numpy().astype(np.float64) - targets) / top
        return TileStatistics(
            float(self.time.item()), float(error.mean()), float(error.std()), float(self.compensation.numpy().mean()),
            float(self.conductances.numpy().mean()),
        )  # fmt: skip

    # state

    def place(self, weights: Any, scale: Any = None) -> int:
        clipped = super().place(weights, scale)
        self.discard_programming()
        return clipped

    def discard_programming(self) -> None:
        """Show the tile's own weights again, in place of those that were programmed."""
        with no_grad():
            self._note(time=full_like(self.time, -1.0))

    def _note(self, **values: Tensor) -> None:
        """Change buffers, all or none."""
        commit = Commit()
        for name, value in values.items():
            commit.rebind(getattr(self, name), value)
        commit.apply()

    def update(self, x: Tensor, d: Tensor, lr: float | Tensor) -> Tensor:
        counts = super().update(x, d, lr)
        self.discard_programming()
        return counts

    def decay(self) -> None:
        super().decay()
        self.discard_programming()

    def diffuse(self) -> None:
        super().diffuse()
        self.discard_programming()

    def reset(self, first: int = 0, count: int | None = None, probability: float = 1.0) -> None:
        super().reset(first, count, probability)
        self.discard_programming()

    def drift(self, seconds: float) -> None:
        raise ConfigError(
            "InferenceTile: drift of what was programmed, by drift_weights", f"drift({seconds!r:.40})",
            "call drift_weights with the time since programming",
        )  # fmt: skip

    def _optimized_by(self, path: str, optimizer: Any) -> None:
        super()._optimized_by(path, optimizer)
        limits = self.config.clip.type is not WeightClipType.NONE or self.config.remap.type is not WeightRemapType.NONE
        if limits and not self.weight.frozen and not getattr(optimizer, "updates_tiles", False):
            warn(
                f"{type(optimizer).__name__} does not clip and remap the weights of the tile {path} after its updates, as their"
                " configuration says: use analog.SGD, or another optimizer behind analog.AnalogOptimizer",
                UserWarning,
            )

    def end_mini_batch(self) -> None:
        """What happens after each update: decay and diffusion where the device has them, then clipping, then remapping.

        Frozen weights are neither clipped nor remapped.
        """
        super().end_mini_batch()
        if self.weight.frozen:
            return
        with no_grad():
            w = self.config.clip.clipped(self.weight.detach())
            factors = self.config.remap.factors(w)
            commit = Commit()
            commit.rebind(self.weight, w if factors is None else w / factors)
            if factors is not None:
                assert self.scale is not None
                commit.rebind(self.scale, self.scale.detach() * factors[:, 0])
            commit.rebind(self.time, full_like(self.time, -1.0))
            commit.apply()


@dataclass(frozen=True)
class _Pass:
    """What one product was made of. Called, it is the product's linear function of tangents of the inputs.

    Attributes:
        tile: The tile.
        before: How many vectors of the whole batch come before these.
        vectors: The inputs.
        weights: Those of the product, whose gradient is that of the tile's weights.
        factor: Digital factors of the outputs; None for 1.
        bound: The input range; None without one.
    """

    tile: InferenceTile
    before: int
    vectors: Tensor
    weights: Tensor
    factor: Tensor | None
    bound: Tensor | None

    def inputs(self, x: Tensor) -> Tensor:
        """Inputs clipped to the range, in units of it."""
        return x if self.bound is None else clip(x, -self.bound, self.bound) / self.bound

    def inside(self, x: Tensor, v: Tensor) -> Tensor:
        """A gradient or tangent of the inputs, which is 0 for inputs that are clipped."""
        return v if self.bound is None else where(absolute(x.detach()) <= self.bound, v, 0.0)

    @autocast(None)
    def __call__(self, tangent: Tensor) -> Tensor:
        y = matmul(self.inside(self.vectors, tangent), matrix_transpose(self.weights))
        y = y if self.factor is None else y * self.factor
        scale = self.tile.config.forward.out_scale
        return y if scale == 1.0 else y * scale

    @autocast(None)
    def pull(self, cotangents: Any, r: Vjp) -> tuple[Tensor | None, ...]:
        """The gradients of inputs, weights and input range; that of the range is ``InputRangeParameter.gradient``."""
        d = cotangents[0] if isinstance(cotangents, tuple) else cotangents
        d = d if self.bound is None else d * self.bound
        x, weights, ranged = r.inputs[0], r.inputs[1], self.bound is not None and r.needs[2]
        of_x, of_range = None, None
        if r.needs[0] or ranged:
            of_x = self.tile._transposed(weights, self.factor, self.before, d)[0]
            of_x = of_x if self.bound is None else of_x / self.bound
        if ranged and self.bound is not None and of_x is not None:
            of_range = self.tile.config.input_range.gradient(x, self.bound, of_x)
        d = d if self.factor is None else d * self.factor
        of_weights = matmul(matrix_transpose(d), self.inputs(x)) if r.needs[1] else None
        found = (self.inside(x, of_x) if r.needs[0] and of_x is not None else None), of_weights
        return found if self.bound is None else (*found, of_range)


LONGEST = float(np.finfo(np.float32).max)
"""The longest time after programming, in seconds."""


def time_of(name: str, seconds: Any) -> float:
    """A time after programming as a Python number.

    Args:
        name: Of the function, for messages.
        seconds: What was passed.

    Raises:
        ConfigError: It is no number of at least 0, or more than float32 holds.
    """
    given: Any = python_scalar(seconds)
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not 0.0 <= given <= LONGEST:
        raise ConfigError(f"{name}: a time is a number of seconds of at least 0", repr(seconds)[:60], "pass e.g. 86400.0")
    return float(given)


_PART = "A part of a product of a tile with vectors."
_PASSED = tape_entry("weights of a pass", _PART, ("weight",), lambda g, r: (g[0] if isinstance(g, tuple) else g,))
"""Weights of a pass, whose gradient is passed to the weights as it is."""
