"""``PulsedDevice``: the base of models of a resistive device, and the parameters that all of them share.

A model is a frozen dataclass. It has ``pulse``, a function in the kernel language that gives the weight after one pulse, and
``populate``, which draws the parameters of each device of an array. The parameters of ``pulse`` after the first three are names
of what ``populate`` draws, then of settings of the dataclass.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from firebrick.analog.checks import check_flags, check_numbers, keep_python_numbers
from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.core.errors import ConfigError

Array = np.ndarray[Any, Any]
Draw = Callable[[], Array]
"""Draws a normal number for each device of an array."""


@dataclass(frozen=True)
class DriftParameter:
    """How conductances drift where ``Tile.drift`` is called.

    Args:
        nu: Mean exponent of the power law.
        nu_dtod: Its relative spread from device to device.
        nu_std: Its relative noise in each call.
        nu_k: Dependence of the exponent on the logarithm of the conductance.
        log_g0: Logarithm of the conductance at which that is 0.
        wg_ratio: Weight of a unit of conductance.
        g_offset: Conductance of the weight ``w_offset``.
        w_offset: See there.
        t_0: Time after writing at which the drift begins, in seconds.
        reset_tol: Change of a weight by which it counts as written.
        w_noise_std: Standard deviation of the noise of each call.

    Raises:
        ConfigError: A setting is no finite number.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.DriftParameter(nu=0.1).t_0
        1.0
    """

    nu: float = 0.0
    nu_dtod: float = 0.0
    nu_std: float = 0.0
    nu_k: float = 0.0
    log_g0: float = 0.0
    wg_ratio: float = 1.0
    g_offset: float = 0.0
    w_offset: float = 0.0
    t_0: float = 1.0
    reset_tol: float = 1e-7
    w_noise_std: float = 0.0

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        name = type(self).__name__
        check_numbers(name, self, "nu", "nu_k", "log_g0", "g_offset", "w_offset")
        check_numbers(name, self, "nu_dtod", "nu_std", "reset_tol", "w_noise_std", least=0.0)
        check_numbers(name, self, "t_0", "wg_ratio", above=0.0)

    @property
    def active(self) -> bool:
        """Whether weights drift at all."""
        return self.nu != 0.0 or self.nu_k != 0.0 or self.w_noise_std != 0.0


@dataclass(frozen=True)
class PulsedDevice:
    """Base of devices that pulses change.

    A subclass is a frozen dataclass with ``pulse``, and, where it needs them, ``populate``, ``granularity``, ``limits`` and
    ``noisy``.

    Args:
        construction_seed: Seed of the parameters that are drawn; 0 for the tile's generator.
        dw_min: Mean step of a pulse.
        dw_min_dtod: Relative spread of the step from device to device.
        dw_min_dtod_log_normal: Whether that spread is log-normal.
        dw_min_std: Relative noise of the step from pulse to pulse.
        w_max: Mean upper bound of the weight.
        w_max_dtod: Its relative spread.
        w_min: Mean lower bound of the weight, at most 0.
        w_min_dtod: Its relative spread.
        up_down: Asymmetry: below 0 steps up are smaller by this share of ``dw_min``, above 0 steps down.
        up_down_dtod: Spread of the asymmetry.
        enforce_consistency: Whether steps and bounds that were drawn with the wrong sign get the right one.
        perfect_bias: Whether the last column has no spread, and bounds 100 times as wide.
        corrupt_devices_prob: Probability that a device is stuck.
        corrupt_devices_range: Largest absolute weight of a stuck device.
        diffusion: Standard deviation of a weight's diffusion in a mini-batch.
        diffusion_dtod: Its relative spread.
        lifetime: Mini-batches in which a weight decays to 1/e; 0 for no decay.
        lifetime_dtod: Its relative spread.
        reset: Weight that ``Tile.reset`` sets and weights decay to.
        reset_dtod: Its spread, absolute.
        reset_std: Standard deviation of each reset.
        drift: See ``DriftParameter``.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        A device whose steps shrink with the square of the weight, in a few lines:

        >>> from dataclasses import dataclass
        >>> import firebrick as fb
        >>> @dataclass(frozen=True)
        ... class QuadraticDevice(fb.analog.PulsedDevice):
        ...     curvature: float = 0.5
        ...
        ...     @fb.kernel.function
        ...     def pulse(w, up, xi, dwmin_up, dwmin_down, dw_min_std, curvature):
        ...         step = dwmin_up if up else -dwmin_down
        ...         return w + step * (1.0 - curvature * w * w) * (1.0 + dw_min_std * xi)
        >>> tile = fb.analog.Tile(2, 3, fb.analog.RPUConfig(QuadraticDevice(dw_min=0.01)), seed=0)
        >>> pulses = tile.update(fb.ones((10, 3)), -fb.ones((10, 2)), lr=0.05)
        >>> bool(fb.all(tile.weight > 0.0))
        True
    """

    construction_seed: int = 0
    dw_min: float = 0.001
    dw_min_dtod: float = 0.3
    dw_min_dtod_log_normal: bool = False
    dw_min_std: float = 0.3
    w_max: float = 0.6
    w_max_dtod: float = 0.3
    w_min: float = -0.6
    w_min_dtod: float = 0.3
    up_down: float = 0.0
    up_down_dtod: float = 0.01
    enforce_consistency: bool = True
    perfect_bias: bool = False
    corrupt_devices_prob: float = 0.0
    corrupt_devices_range: float = 0.1
    diffusion: float = 0.0
    diffusion_dtod: float = 0.0
    lifetime: float = 0.0
    lifetime_dtod: float = 0.0
    reset: float = 0.0
    reset_dtod: float = 0.0
    reset_std: float = 0.01
    drift: DriftParameter = field(default_factory=DriftParameter)

    pulse: ClassVar[HelperFunction]
    write_noise_std: ClassVar[float] = 0.0
    """Standard deviation of the visible weight about the persistent one, in units of ``dw_min``."""
    apply_write_noise_on_set: ClassVar[bool] = True
    long_pulse: ClassVar[bool] = False
    """Whether a pulse is a long chain of operations, such as one with an exponential: then it is left out where no device of a
    group gets it. The results are the same."""

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        self.check()

    def check(self) -> None:
        """Raise ConfigError for settings without meaning; subclasses add their own."""
        name = type(self).__name__
        flags = [n for n in _fields(self) if isinstance(_default(self, n), bool)]
        check_flags(name, self, *flags)
        numbers = [n for n in _fields(self) if type(_default(self, n)) in (int, float)]
        check_numbers(name, self, *numbers)
        spreads = (
            n for n in numbers if n.endswith(("_dtod", "_std")) or n in ("diffusion", "lifetime", "corrupt_devices_range")
        )
        check_numbers(name, self, *spreads, least=0.0)
        check_numbers(name, self, "dw_min", above=0.0)
        if not self.w_min <= 0.0 <= self.w_max or self.w_min == self.w_max:
            raise ConfigError(
                f"{name}: w_min ≤ 0 ≤ w_max, and not both are 0",
                f"w_min={self.w_min}, w_max={self.w_max}",
                "swap or widen them",
            )
        if not 0.0 <= self.corrupt_devices_prob <= 1.0:
            raise ConfigError(
                f"{name}: corrupt_devices_prob is in [0, 1]", repr(self.corrupt_devices_prob), "pass a probability"
            )
        if not isinstance(self.drift, DriftParameter):
            raise ConfigError(f"{name}: drift is a DriftParameter", repr(self.drift)[:60], "pass analog.DriftParameter(nu=0.1)")

    @property
    def granularity(self) -> float:
        """Mean step of a pulse at the weight 0, by which updates are counted in pulses."""
        return self.dw_min

    @property
    def noisy(self) -> bool:
        """Whether pulses have noise."""
        return self.dw_min_std > 0.0

    def pulse_function(self) -> HelperFunction:
        """The function that gives the weight after a pulse: ``pulse``, unless settings choose between several."""
        return type(self).pulse

    def joint_pulses(self) -> HelperFunction | None:
        """Several noisy pulses at once, where the law of their sum is known as long as no bound is in reach; None otherwise.

        It is a function of the weight, the numbers of pulses up and down, a normal number and the parameters of ``pulse``, and
        gives the weight afterwards, and the highest and the lowest weight that the pulses come to.
        """
        return None

    def populate(self, shape: tuple[int, int], normal: Draw, uniform: Draw) -> dict[str, Array]:
        """Draw the parameters of an array of devices.

        Args:
            shape: Rows and columns.
            normal: Draws a normal number for each device.
            uniform: Draws a number in [0, 1) for each device.

        Returns:
            Arrays by name: ``max_bound``, ``min_bound``, ``dwmin_up``, ``dwmin_down``, ``decay_scales``, ``diffusion_rates``,
            ``reset_bias`` and ``drift_nu``, and what subclasses add.
        """
        high = self.w_max * (1.0 + self.w_max_dtod * normal())
        low = self.w_min * (1.0 + self.w_min_dtod * normal())
        spread = self.dw_min_dtod * normal()
        gain = np.exp(spread) if self.dw_min_dtod_log_normal else 1.0 + spread
        asymmetry = self.up_down_dtod * normal()
        up = (min(self.up_down, 0.0) + gain + asymmetry) * self.dw_min
        down = (-max(self.up_down, 0.0) + gain - asymmetry) * self.dw_min
        if self.enforce_consistency:
            up, down = np.abs(up), np.abs(down)
            low, high = np.minimum(low, high), np.maximum(low, high)
            low, high = -np.abs(low), np.abs(high)
        else:
            middle = 0.5 * (low + high)
            low, high = np.where(low > high, middle, low), np.where(low > high, middle, high)
        if self.corrupt_devices_prob > 0.0:
            stuck, limit = uniform() < self.corrupt_devices_prob, self.corrupt_devices_range
            first, last = np.maximum(low, -limit), np.minimum(high, limit)
            at = first + (last - first) * uniform()
            low, high = np.where(stuck, at, low), np.where(stuck, at, high)
            up, down = np.where(stuck, 0.0, up), np.where(stuck, 0.0, down)
        if self.perfect_bias:
            up[:, -1], down[:, -1] = self.dw_min, self.dw_min
            low[:, -1], high[:, -1] = 100.0 * self.w_min, 100.0 * self.w_max
        rate = np.abs(self.diffusion * (1.0 + self.diffusion_dtod * normal()))
        bias = self.reset + self.reset_dtod * normal()
        decay = np.ones(shape)
        if self.lifetime > 0.0:
            life = self.lifetime * (1.0 + self.lifetime_dtod * normal())
            decay = np.where(life > 1.0, 1.0 - 1.0 / np.where(life > 1.0, life, 1.0), 0.0)
        return {
            "max_bound": high, "min_bound": low, "dwmin_up": up, "dwmin_down": down, "decay_scales": decay,
            "diffusion_rates": rate, "reset_bias": bias,
            "drift_nu": self.drift.nu * (1.0 + self.drift.nu_dtod * normal()),
        }  # fmt: skip

    def limits(self, parameters: dict[str, Any]) -> tuple[Any, Any]:
        """The least and the greatest visible weight of each device.

        Args:
            parameters: What ``populate`` drew, as arrays or tensors.
        """
        return parameters["min_bound"], parameters["max_bound"]

    def names(self, drawn: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the parameters of ``pulse_function``: those of each device, and those of all.

        Args:
            drawn: Names of what ``populate`` drew.

        Raises:
            ConfigError: A name is neither, or they are not in this order.
        """
        names = list(inspect.signature(self.pulse_function().function).parameters)[3:]
        own = tuple(n for n in names if n in drawn)
        shared = tuple(n for n in names if n not in drawn)
        unknown = [n for n in shared if not isinstance(getattr(self, n, None), (int, float))]
        if unknown or list(own + shared) != names:
            raise ConfigError(
                f"{type(self).__name__}.pulse has the parameters w, up and xi, then such of each device "
                f"({', '.join(drawn)}), then numbers among the settings of the class",
                f"{unknown[0]}, which is neither" if unknown else ", ".join(names),
                "correct the name, or draw the parameter in populate" if unknown else "write them in this order",
            )
        return own, shared


def _fields(device: Any) -> tuple[str, ...]:
    return tuple(type(device).__dataclass_fields__)


def _default(device: Any, name: str) -> Any:
    return type(device).__dataclass_fields__[name].default
