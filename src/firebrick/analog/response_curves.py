"""``response``: the weights of devices under single pulses up and down, as a table, a file or a picture."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from firebrick.analog.device_array import DeviceArray
from firebrick.analog.normal_numbers import normal_pair, normals
from firebrick.analog.pictures import dressed, saved
from firebrick.analog.pulsed_device import PulsedDevice
from firebrick.analog.typed_kernel import reads, results
from firebrick.autodiff.tape import no_grad
from firebrick.backends.registry import find_device
from firebrick.compiler.kernel.language.annotations import ArrayTuple
from firebrick.compiler.kernel.language.calls import HelperFunction, IndexedFunction
from firebrick.core.dtypes import float32, int64, uint32
from firebrick.core.errors import ConfigError
from firebrick.core.settings import python_numbers, whole
from firebrick.functions.conversion import asarray
from firebrick.functions.kernels import Kernel, kernel
from firebrick.functions.movement import reshape
from firebrick.nn import Parameter
from firebrick.random import Generator

SPREADS = (
    "dw_min_dtod", "w_max_dtod", "w_min_dtod", "up_down_dtod", "gamma_up_dtod", "gamma_down_dtod", "pow_gamma_dtod",
    "pow_up_down_dtod", "slope_up_dtod", "slope_down_dtod", "reference_std", "corrupt_devices_prob",
)  # fmt: skip
"""Settings of the spread from device to device."""
NOISES = ("dw_min_std", "write_noise_std", "dw_min_std_add", "dw_min_std_slope")
"""Settings of the noise from pulse to pulse and of reads."""


@lru_cache(maxsize=64)
def response_kernel(pulse: HelperFunction, hidden: tuple[str, ...], settings: tuple[str, ...], noisy: bool) -> Kernel:
    """The kernel of a course of single pulses.

    Args:
        pulse: Of the device: a function of the weight, the direction, a normal number and its parameters.
        hidden: Names of the parameters that each device has.
        settings: Names of those that all have in common.
        noisy: Whether pulses use their normal number; it is 0 otherwise.

    Returns:
        Kernel of the weights at the start, their bounds, the direction of each pulse (1 is up), the key of the normal numbers
        and the parameters. Its result is the weight after each pulse, [rows, columns, pulses].
    """
    whole = "rows, columns"
    step = IndexedFunction(pulse, (*(((0, 1),) * len(hidden)), *(((),) * len(settings))))

    def pulse_response(
        weights: Any, low: Any, high: Any, directions: Any, key: Any, parameters: Any, course: Any
    ) -> None:  # fmt: skip
        i, j = kernel.index()
        w, least, most = weights[i, j], low[i, j], high[i, j]
        for k in range(directions.shape[0]):
            z = 0.0
            if noisy:
                z, _other = normal_pair(key, 2 * ((i * weights.shape[1] + j) * directions.shape[0] + k))
            w = min(max(step((w, directions[k] > 0, z), parameters, (i, j)), least), most)
            course[i, j, k] = w

    pulse_response.__annotations__ = {
        "weights": reads(float32, whole), "low": reads(float32, whole), "high": reads(float32, whole),
        "directions": reads(int64, "pulses"), "key": reads(uint32, "4"),
        "parameters": ArrayTuple((
            *((f"device_{name}", reads(float32, whole)) for name in hidden),
            *((f"device_{name}", reads(float32, "")) for name in settings),
        )), "course": results(float32, "rows, columns, pulses"),
    }  # fmt: skip
    return kernel(grid=whole)(pulse_response)


@dataclass(frozen=True)
class Response:
    """Weights of devices under single pulses. It prints as a table and draws itself.

    Attributes:
        device: Name of the model.
        directions: Of each pulse, int array [pulses]: 1 up, -1 down.
        weights: Array [devices, pulses + 1]; the first are those before the first pulse.

    Example:
        >>> import firebrick as fb
        >>> print(fb.analog.response(fb.analog.ConstantStepDevice(dw_min=0.1), 4, spread=False, noise=False))
        ConstantStepDevice, 1 device
        pulses  mean weight  deviation
             0       0.0000     0.0000
             1       0.1000     0.0000
             2       0.2000     0.0000
             3       0.3000     0.0000
             4       0.4000     0.0000
             5       0.3000     0.0000
             6       0.2000     0.0000
             7       0.1000     0.0000
             8       0.0000     0.0000
    """

    device: str
    directions: np.ndarray[Any, Any]
    weights: np.ndarray[Any, Any]

    @property
    def mean(self) -> np.ndarray[Any, Any]:
        """Mean over devices, [pulses + 1]."""
        return np.asarray(self.weights.mean(axis=0))

    @property
    def std(self) -> np.ndarray[Any, Any]:
        """Standard deviation over devices, [pulses + 1]."""
        return np.asarray(self.weights.std(axis=0))

    def __str__(self) -> str:
        count = len(self.directions)
        shown = sorted({round(count * k / 12) for k in range(13)})
        lines = [f"{self.device}, {len(self.weights)} device{'s' if len(self.weights) != 1 else ''}"]
        lines.append("pulses  mean weight  deviation")
        lines += [f"{k:>6}  {self.mean[k]:>11.4f}  {self.std[k]:>9.4f}" for k in shown]
        return "\n".join(lines)

    def save(self, path: str | Path) -> Path:
        """Write the mean response as a CSV file that ``fit`` reads: columns ``direction`` and ``weight``, a row a pulse.

        Args:
            path: File to write.
        """
        found = Path(path)
        directions = [0, *self.directions.tolist()]
        rows = [f"{d},{w:.9g}" for d, w in zip(directions, self.mean, strict=True)]
        found.write_text("\n".join(["direction,weight", *rows]) + "\n", encoding="utf-8")
        return found

    def plot(self, path: str | Path) -> Path:
        """Draw the mean, a band of one standard deviation, and up to 20 devices, as a PNG, SVG or PDF.

        Args:
            path: File to write; its ending is the format.

        Raises:
            ConfigError: matplotlib is not installed, or the ending is none of the formats.
        """
        figure, axes = dressed("Response.plot", f"{self.device}: response to single pulses", "pulses", "weight")
        pulses = np.arange(len(self.directions) + 1)
        if len(self.weights) > 1:
            for k, w in enumerate(self.weights[:20]):
                axes.plot(pulses, w, color="#57606a", alpha=0.25, linewidth=0.6, label=None if k else "devices")
            low, high = self.mean - self.std, self.mean + self.std
            axes.fill_between(pulses, low, high, color="#1f6feb", alpha=0.15, linewidth=0.0, label="± one deviation")
        axes.plot(pulses, self.mean, color="#1f6feb", linewidth=1.8, label="mean")
        for turn in np.flatnonzero(np.diff(self.directions)) + 1:
            axes.axvline(turn, color="#d0d7de", linestyle="--", linewidth=1.0)
        axes.legend(frameon=False, fontsize=9)
        return saved("Response.plot", figure, path)


def without(device: PulsedDevice, *, spread: bool, noise: bool) -> PulsedDevice:
    """A device whose parameters have no spread, or whose pulses have no noise.

    Args:
        device: The device.
        spread: Whether parameters have their spread.
        noise: Whether pulses and reads have their noise.
    """
    known = {f.name for f in fields(device) if f.init}
    dropped = (() if spread else SPREADS) + (() if noise else NOISES)
    changes: dict[str, Any] = {name: 0.0 for name in dropped if name in known}
    return replace(device, **changes)


def response(
    device: PulsedDevice, pulses: int = 1000, *, devices: int = 1, cycles: int = 1, start: float = 0.0, spread: bool = True,
    noise: bool = True, seed: int = 0, directions: Any = None, on: Any = None,
) -> Response:  # fmt: skip
    """The weights of devices under pulses up, then as many down.

    Args:
        device: A model of a device.
        pulses: Pulses in each direction.
        devices: Number of devices.
        cycles: How many times up and down.
        start: Weight before the first pulse, within the bounds of each device.
        spread: Whether devices differ from each other.
        noise: Whether pulses and reads have noise.
        seed: Of the devices and of the noise.
        directions: Of each pulse, 1 or -1, in place of ``pulses`` and ``cycles``.
        on: Device of Firebrick that computes; the default device if None.

    Raises:
        ConfigError: The device is updated without pulses, or a number has no meaning.

    Example:
        >>> import firebrick as fb
        >>> found = fb.analog.response(fb.analog.SoftBoundsDevice(dw_min=0.01), 100, devices=50)
        >>> found.weights.shape
        (50, 201)
    """
    if not isinstance(device, PulsedDevice):
        received = device.__name__ if isinstance(device, type) else type(device).__name__
        raise ConfigError("analog.response: a device that pulses change", received, "pass e.g. analog.SoftBoundsDevice()")
    pulses, devices, cycles = (
        whole("analog.response", name, n, 1) for name, n in (("pulses", pulses), ("devices", devices), ("cycles", cycles))
    )
    first_weight: Any = python_numbers(start)
    if not isinstance(first_weight, (int, float)) or not math.isfinite(first_weight):
        raise ConfigError("analog.response: start is a finite number", repr(start)[:40], "pass e.g. 0.0")
    given = np.tile(np.repeat([1, -1], pulses), cycles) if directions is None else np.asarray(directions)
    if given.ndim != 1 or not given.size or not np.isin(given, (1, -1)).all():
        raise ConfigError("analog.response: directions are 1 or -1, at least one", repr(directions)[:60], "correct them")
    model, home = without(device, spread=spread, noise=noise), find_device(on)
    generator = Generator(seed)
    draws = Generator(model.construction_seed) if model.construction_seed else generator.fork()
    weight = Parameter(asarray(np.zeros((devices, 1), np.float32), device=home))
    array = DeviceArray(model, weight=weight, generator=generator, draws=draws)
    with no_grad():
        first = array.within(weight.detach() + float(start))
        own, shared = model.names(array.hidden)
        low, high = model.limits(dict(array.hidden))
        numbers = [asarray(float(getattr(model, n)), dtype=float32, device=home) for n in shared]
        course = response_kernel(model.pulse_function(), own, shared, model.noisy)(
            first, low, high, asarray(given.astype(np.int64), device=home), generator.key(device=home),
            *(array.hidden[n] for n in own), *numbers,
        )  # fmt: skip
        seen = reshape(course, (devices, given.size))
        if model.write_noise_std > 0.0:
            read = normals(generator.key(device=home), devices, given.size, 0)
            seen = seen + read * (model.write_noise_std * model.dw_min)
    weights = np.concatenate([first.numpy(), seen.numpy()], axis=1)
    return Response(type(device).__name__, given.astype(np.int64), weights)
