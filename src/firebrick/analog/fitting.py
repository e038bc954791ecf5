"""``fit``: parameters of a model of a device from a measured response to pulses, by least squares.

Source: Marquardt, "An algorithm for least-squares estimation of nonlinear parameters", 1963.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from firebrick.analog.pictures import dressed, saved
from firebrick.analog.pulsed_device import PulsedDevice
from firebrick.analog.response_curves import response
from firebrick.core.errors import ConfigError

Array = np.ndarray[Any, Any]
DEFAULTS = ("dw_min", "up_down", "w_max", "w_min")
"""Parameters that are fitted where none are named."""
_WIDTH = 2e-3
"""Over which differences of parameters are taken: responses are float32."""


@dataclass(frozen=True)
class Fit:
    """A fitted device. It prints its parameters and draws the response beside the measured one.

    Attributes:
        device: The device with the fitted parameters, and without spread and noise.
        parameters: Fitted values by name.
        errors: Standard errors by name, from the deviations; NaN where the data say nothing of a parameter.
        deviation: Root of the mean square of the deviations, in units of the weight.
        directions: Of the pulses, [pulses].
        measured: Weights [pulses + 1].
        fitted: Weights of the fitted device, [pulses + 1].

    Example:
        >>> import numpy as np
        >>> import firebrick as fb
        >>> made = fb.analog.response(fb.analog.SoftBoundsDevice(dw_min=0.02), 60, spread=False, noise=False)
        >>> found = fb.analog.fit(fb.analog.SoftBoundsDevice, (made.directions, made.mean), parameters=("dw_min",))
        >>> print(found)
        SoftBoundsDevice, deviation 0.0000
        dw_min  0.02 ± 0
    """

    device: PulsedDevice
    parameters: dict[str, float]
    errors: dict[str, float]
    deviation: float
    directions: Array
    measured: Array
    fitted: Array

    def __str__(self) -> str:
        width = max(map(len, self.parameters))
        lines = [f"{type(self.device).__name__}, deviation {self.deviation:.4f}"]
        lines += [f"{n:<{width}}  {v:.4g} ± {_short(self.errors[n])}" for n, v in self.parameters.items()]
        return "\n".join(lines)

    def plot(self, path: str | Path) -> Path:
        """Draw the measured and the fitted response as a PNG, SVG or PDF.

        Args:
            path: File to write; its ending is the format.

        Raises:
            ConfigError: matplotlib is not installed, or the ending is none of the formats.
        """
        title = f"{type(self.device).__name__} fitted to a measured response"
        figure, axes = dressed("Fit.plot", title, "pulses", "weight")
        pulses = np.arange(len(self.measured))
        axes.plot(pulses, self.measured, ".", color="#57606a", markersize=3, label="measured")
        axes.plot(pulses, self.fitted, color="#d9480f", linewidth=1.5, label="fitted")
        axes.legend(frameon=False, fontsize=9)
        return saved("Fit.plot", figure, path)


def _short(error: float) -> str:
    return "0" if error < 1e-9 else "unknown" if math.isnan(error) else f"{error:.1g}"


def read_response(path: str | Path) -> tuple[Array, Array]:
    r"""A measured response from a CSV file.

    Args:
        path: File with a header that has ``direction`` and ``weight``, and a row for each pulse: its direction, 1 or -1, and
            the weight that is read after it. A first row of direction 0 has the weight before the first pulse; without it
            that is 0.

    Returns:
        Directions [pulses], and weights [pulses + 1].

    Raises:
        ConfigError: The file has other columns, or a row that is not as described.

    Example:
        >>> import tempfile, pathlib
        >>> import firebrick as fb
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = pathlib.Path(folder) / "measured.csv"
        ...     _ = file.write_text("direction,weight\n0,0.0\n1,0.1\n-1,0.05\n")
        ...     [a.tolist() for a in fb.analog.read_response(file)]
        [[1, -1], [0.0, 0.1, 0.05]]
    """
    found = Path(path)
    try:
        with found.open(encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file))
            names = rows[0].keys() if rows else []
    except (UnicodeDecodeError, csv.Error) as e:
        raise ConfigError("analog.fit: a CSV file in UTF-8", f"{found}: {e}", "save it as CSV") from None
    if not rows or "direction" not in names or "weight" not in names:
        shown = ", ".join(map(str, names)) if rows else "no rows"
        raise ConfigError("analog.fit: a CSV file with columns direction and weight", f"{found}: {shown}", "name the columns")
    directions: list[int] = []
    weights: list[float] = []
    for number, row in enumerate(rows, start=2):
        try:
            d, w = float(row["direction"]), float(row["weight"])
        except (TypeError, ValueError):
            d, w = math.nan, math.nan
        first = number == 2 and d == 0.0
        if not math.isfinite(w) or not (first or d in (1.0, -1.0)):
            received = f"{found}, line {number}: direction {row['direction']!r}, weight {row['weight']!r}"
            raise ConfigError("analog.fit: directions 1 or -1, and finite weights", received, "correct the row")
        if number == 2 and not first:
            weights.append(0.0)
        weights.append(w)
        directions += [] if first else [int(d)]
    if not directions:
        raise ConfigError("analog.fit: at least one pulse", f"{found}: none", "add rows of direction 1 or -1")
    return np.array(directions), np.array(weights)


def fit(
    device: PulsedDevice | type[PulsedDevice], measured: str | Path | tuple[Any, Any], *,
    parameters: Sequence[str] = DEFAULTS, iterations: int = 60,
) -> Fit:  # fmt: skip
    """Parameters of a model of a device from a measured response to single pulses.

    The sum of squares of the differences to the noise-free response of one device without spread is minimised. A parameter that
    begins at a number other than 0 keeps its sign; one that begins at 0, and whose sign has no meaning, is not negative. The
    fit begins with the ``dw_min``, of some up to 120 times as large or small, whose response is closest.

    Args:
        device: The model, from whose settings the fit begins: a class or an instance.
        measured: A CSV file, see ``read_response``; or directions [pulses] and weights [pulses + 1].
        parameters: Names of the settings that are fitted.
        iterations: Most steps.

    Raises:
        ConfigError: The device has no such setting, or the data are not as described.

    Example:
        >>> import firebrick as fb
        >>> true = fb.analog.LinearStepDevice(dw_min=0.02, gamma_up=0.6, gamma_down=0.4)
        >>> made = fb.analog.response(true, 80, spread=False, noise=False)
        >>> start = fb.analog.LinearStepDevice(dw_min=0.01, gamma_up=0.1, gamma_down=0.1)
        >>> found = fb.analog.fit(start, (made.directions, made.mean), parameters=("dw_min", "gamma_up", "gamma_down"))
        >>> round(found.device.dw_min, 4), round(found.device.gamma_up, 3)
        (0.02, 0.6)
    """
    model = device() if isinstance(device, type) and issubclass(device, PulsedDevice) else device
    if not isinstance(model, PulsedDevice):
        received = device.__name__ if isinstance(device, type) else type(device).__name__
        raise ConfigError("analog.fit: a device that pulses change", received, "pass e.g. analog.SoftBoundsDevice")
    if isinstance(measured, tuple):
        directions, weights = np.asarray(measured[0]), np.asarray(measured[1], np.float64)
    else:
        directions, weights = read_response(measured)
    if weights.shape != (directions.size + 1,) or not np.isfinite(weights).all():
        given = f"{directions.shape} directions and {weights.shape} weights"
        raise ConfigError("analog.fit: a finite weight before the first pulse and after each", given, "correct the data")
    if not directions.size or not np.isin(directions, (1, -1)).all():
        given = ", ".join(map(str, np.setdiff1d(directions, (1, -1))[:4])) or "none"
        raise ConfigError("analog.fit: directions 1 or -1, at least one", given, "correct the data")
    names = tuple(parameters)
    own = {n: f.default for n, f in type(model).__dataclass_fields__.items()}
    unknown = [n for n in names if type(own.get(n)) is not float]
    if unknown or not names or len(set(names)) != len(names):
        known = ", ".join(n for n, v in own.items() if type(v) is float)
        received = unknown[0] if unknown else ", ".join(names) or "none"
        raise ConfigError(f"analog.fit: parameters among {known}, each once", received, "correct the names")
    begin = np.array([getattr(model, n) for n in names], np.float64)
    signed = begin != 0.0

    def values_of(theta: Array) -> Array:
        return np.where(signed, begin * np.exp(np.where(signed, theta, 0.0)), theta)

    def device_of(theta: Array) -> PulsedDevice:
        changes: dict[str, Any] = {n: float(v) for n, v in zip(names, values_of(theta), strict=True)}
        return replace(model, **changes)

    def course(theta: Array) -> Array | None:
        try:
            made = response(device_of(theta), directions=directions, start=float(weights[0]), spread=False, noise=False)
        except ConfigError:  # such as crossed bounds, or a step of 0
            return None
        found = made.weights[0].astype(np.float64)
        return found if np.isfinite(found).all() else None

    theta = np.zeros(len(names))
    seen = course(theta)
    if seen is None:
        raise ConfigError("analog.fit: a device whose response is finite", repr(model)[:80], "begin with other settings")
    if "dw_min" in names:  # from a step that is far off, fits end where responses are flat
        along = 0.8 * (np.array(names) == "dw_min")
        tried = [(float(((weights - c) ** 2).sum()), k) for k in range(-6, 7) if (c := course(k * along)) is not None]
        theta = min(tried)[1] * along
        seen = course(theta)
        assert seen is not None
    sides = [(course(theta + h), course(theta - h)) for h in _WIDTH * np.eye(len(names))]
    # where the device has |γ|, central differences about 0 would be 0
    positive = ~signed & [
        a is not None and b is not None and np.array_equal(a, b) and not np.array_equal(a, seen) for a, b in sides
    ]
    damping, jacobian = 1e-2, _jacobian(course, theta, seen, positive)
    for _ in range(iterations):
        wrong = weights - seen
        square, step = jacobian.T @ jacobian, jacobian.T @ wrong
        try:
            change = np.linalg.solve(square + damping * np.diag(np.diag(square) + 1e-12), step)
        except np.linalg.LinAlgError:
            change = np.full(len(names), np.inf)
        change = np.where(positive, np.maximum(change, -theta), change)
        new = course(theta + change) if np.abs(change).max() < 5.0 else None
        if new is not None and ((weights - new) ** 2).sum() < (wrong**2).sum():
            done = np.abs(change).max() < 1e-7
            theta, seen, damping = theta + change, new, max(damping / 5.0, 1e-9)
            jacobian = _jacobian(course, theta, seen, positive)
            if done:
                break
        else:
            damping *= 4.0
            if damping > 1e8:
                break
    return _result(device_of(theta), names, values_of(theta), signed, jacobian, directions, weights, seen)


def _jacobian(course: Any, theta: Array, seen: Array, positive: Array) -> Array:
    """Central differences of the response by the parameters, [pulses + 1, parameters]; at 0, of one that has no sign, forward
    ones."""
    columns = []
    for k, h in enumerate(_WIDTH * np.eye(len(theta))):
        above, below = course(theta + h), course(theta - h)
        if positive[k] and theta[k] < _WIDTH:
            below = None
        up, down = (seen if above is None else above), (seen if below is None else below)
        width = _WIDTH * ((above is not None) + (below is not None))
        columns.append((up - down) / width if width else np.zeros(len(seen)))
    return np.stack(columns, 1)


def _result(
    device: PulsedDevice, names: tuple[str, ...], values: Array, signed: Array, jacobian: Array, directions: Array,
    weights: Array, seen: Array,
) -> Fit:  # fmt: skip
    wrong = weights - seen
    freedom = max(len(weights) - len(names), 1)
    known = np.abs(jacobian).max(axis=0) > 0.0
    errors = np.full(len(names), math.nan)
    if known.any():
        inverse = np.linalg.pinv(jacobian[:, known].T @ jacobian[:, known])
        of_theta = np.sqrt(np.maximum(np.diag(inverse), 0.0) * (wrong**2).sum() / freedom)
        errors[known] = of_theta * np.where(signed[known], np.abs(values[known]), 1.0)
    found = dict(zip(names, values.tolist(), strict=True))
    deviation = float(np.sqrt((wrong**2).mean()))
    return Fit(device, found, dict(zip(names, errors.tolist(), strict=True)), deviation, directions, weights, seen)
