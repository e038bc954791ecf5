"""``accuracy_over_time``: the accuracy of a model at times after programming, with mean and deviation over repetitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from firebrick.analog.inference import drift_weights, first_of, inference_tiles, program_weights
from firebrick.analog.inference_tile import time_of
from firebrick.analog.pictures import dressed, saved
from firebrick.autodiff.tape import no_grad
from firebrick.core.errors import ConfigError
from firebrick.core.settings import whole
from firebrick.functions.conversion import asarray
from firebrick.functions.searching import argmax
from firebrick.functions.statistical import sum as total
from firebrick.graph import jit
from firebrick.nn import Module
from firebrick.random import Generator

TIMES = (1.0, 60.0, 3600.0, 86400.0, 2592000.0, 31536000.0)
"""A second, a minute, an hour, a day, 30 days and a year, in seconds."""
_UNITS = ((31536000.0, "year"), (2592000.0, "month"), (86400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))


@dataclass(frozen=True)
class AccuracyOverTime:
    """Scores at times after programming. It prints as a table and draws itself.

    Attributes:
        times: Seconds since programming.
        scores: Array [repetitions, times].
        reference: The score of the weights as they are, without programming and drift.
        what: What the scores are, such as "accuracy".

    Example:
        >>> import numpy as np
        >>> import firebrick as fb
        >>> found = fb.analog.AccuracyOverTime((1.0, 86400.0), np.array([[0.9, 0.8], [0.92, 0.7]]), 0.95, "accuracy")
        >>> print(found)
        time after programming  accuracy  deviation
        not programmed            0.9500
        1 second                  0.9100     0.0141
        1 day                     0.7500     0.0707
        2 repetitions
    """

    times: tuple[float, ...]
    scores: np.ndarray[Any, Any]
    reference: float
    what: str

    @property
    def mean(self) -> np.ndarray[Any, Any]:
        """Mean over repetitions, [times]."""
        return np.asarray(self.scores.mean(axis=0))

    @property
    def std(self) -> np.ndarray[Any, Any]:
        """Standard deviation over repetitions, [times]; NaN of one repetition."""
        if len(self.scores) < 2:
            return np.full(len(self.times), math.nan)
        return np.asarray(self.scores.std(axis=0, ddof=1))

    def at(self, t_inference: float) -> float:
        """The mean score at one of the times.

        Args:
            t_inference: One of ``times``.

        Raises:
            ConfigError: It is none of them.
        """
        if t_inference not in self.times:
            shown = ", ".join(f"{t:g}" for t in self.times)
            raise ConfigError(f"AccuracyOverTime.at: one of the times {shown}", repr(t_inference)[:40], "pass one of them")
        return float(self.mean[self.times.index(t_inference)])

    def __str__(self) -> str:
        first, width = "time after programming", max(8, len(self.what))
        lines = [f"{first}  {self.what:>{width}}  deviation"]
        lines.append(f"{'not programmed':<{len(first)}}  {self.reference:>{width}.4f}")
        for t, mean, std in zip(self.times, self.mean, self.std, strict=True):
            lines.append(f"{name_of(t):<{len(first)}}  {mean:>{width}.4f}  {std:>9.4f}")
        return "\n".join([*lines, f"{len(self.scores)} repetition{'s' if len(self.scores) != 1 else ''}"])

    def plot(self, path: str | Path, *, others: dict[str, AccuracyOverTime] | None = None, label: str = "model") -> Path:
        """Draw the means over time, with a band of one standard deviation, as a PNG, SVG or PDF.

        Args:
            path: File to write; its ending is the format.
            others: Further curves, by their labels.
            label: Of this curve.

        Returns:
            The path.

        Raises:
            ConfigError: matplotlib is not installed, or the ending is none of the formats.
        """
        figure, axes = dressed("AccuracyOverTime.plot", f"{self.what} over time", "time after programming", self.what)
        curves = {label: self, **(others or {})}
        for (name, curve), colour in zip(curves.items(), _colours(len(curves)), strict=True):
            times = np.maximum(np.array(curve.times), 0.1)
            axes.plot(times, curve.mean, color=colour, marker="o", markersize=4, label=name)
            if len(curve.scores) > 1:
                low, high = curve.mean - curve.std, curve.mean + curve.std
                axes.fill_between(times, low, high, color=colour, alpha=0.15, linewidth=0.0)
            axes.axhline(curve.reference, color=colour, linestyle=":", linewidth=1.0)
        axes.set_xscale("log")
        shown = sorted({max(t, 0.1) for c in curves.values() for t in c.times})
        axes.set_xticks(shown, [name_of(t) for t in shown], rotation=30, ha="right")
        axes.minorticks_off()
        axes.legend(fontsize=9, title="dotted: not programmed", title_fontsize=8, framealpha=0.85, edgecolor="white")
        return saved("AccuracyOverTime.plot", figure, path)


def _colours(count: int) -> list[str]:
    known = ["#1f6feb", "#d9480f", "#2da44e", "#8250df", "#bf8700", "#57606a"]
    return [known[k % len(known)] for k in range(count)]


def name_of(seconds: float) -> str:
    """A time in the largest unit of which it is a whole number.

    Args:
        seconds: The time.
    """
    for size, name in _UNITS:
        if seconds >= size and seconds % size == 0.0:
            number = round(seconds / size)
            return f"{number} {name}{'s' if number != 1 else ''}"
    return f"{seconds:g} seconds"


def accuracy_over_time(
    model: Module, batches: Iterable[Any], times: Sequence[float] = TIMES, *, repeats: int = 25, seed: int = 0,
    score: Callable[[Module], float] | None = None, what: str = "accuracy",
) -> AccuracyOverTime:  # fmt: skip
    """Program copies of a model, let them drift, and measure each at times after programming.

    The model itself, its generators and its mode stay as they are. The random numbers of repetition k are those of the k-th
    fork of a generator of ``seed``, so it is the same on every engine and for any number of repetitions.

    Args:
        model: With inference tiles; a programmed one is programmed anew in each copy.
        batches: Pairs of inputs and classes, iterated over again for each measurement: a ``DataLoader``, or a list. It is not
            used where ``score`` is given.
        times: Seconds since programming, increasing.
        repeats: How many times the model is programmed.
        seed: Of the programming, drift and noise.
        score: What is measured of a model in evaluation mode; by default the share of samples with the right class.
        what: Name of what is measured.

    Raises:
        ConfigError: The model has no inference tiles, a time is negative or not later than the one before, a noise model has no
            such time, or there is no sample.

    Example:
        >>> import firebrick as fb
        >>> model = fb.analog.Linear(4, 3, config=fb.analog.InferenceRPUConfig(), seed=0)
        >>> x = fb.random.Generator(0).normal((64, 4))
        >>> found = fb.analog.accuracy_over_time(model, [(x, fb.argmax(model.eval()(x), axis=1))], (1.0, 86400.0), repeats=2)
        >>> found.scores.shape
        (2, 2)
    """
    name = "analog.accuracy_over_time"
    tiles = inference_tiles(model, name)
    several: Any = times
    if not isinstance(several, Iterable) or isinstance(several, str):
        raise ConfigError(f"{name}: a sequence of times", repr(times)[:60], "pass e.g. (1.0, 86400.0)")
    given = tuple(time_of(name, t) for t in times)
    if not given or any(b <= a for a, b in pairwise(given)):
        raise ConfigError(f"{name}: times that increase, at least one", repr(given)[:80], "pass e.g. (1.0, 86400.0)")
    repeats = whole(name, "repeats", repeats, 1)
    for _, tile in tiles:
        for t in given:
            tile.config.noise_model.check_time(t)
    measured = score or _accuracy_on(list(batches) if isinstance(batches, (list, tuple)) else batches, name)
    twin = model.fork().eval()
    streams, own = Generator(seed), [t for _, t in inference_tiles(twin, name)]
    for tile in own:
        tile.discard_programming()
    _seeded(own, streams.fork())
    reference = measured(twin)
    scores = np.zeros((repeats, len(given)))
    for k in range(repeats):
        _seeded(own, streams.fork())
        program_weights(twin, again=True)
        for i, t in enumerate(given):
            drift_weights(twin, t)
            scores[k, i] = measured(twin)
    return AccuracyOverTime(given, scores, reference, what)


def _seeded(tiles: list[Any], stream: Generator) -> None:
    """Give tiles streams of their own, in their order."""
    for tile in tiles:
        tile.generator.set_state(stream.fork().state())


def _accuracy_on(batches: Iterable[Any], name: str) -> Callable[[Module], float]:
    """The share of samples of batches whose largest output is that of their class."""
    run = jit(lambda model, x: argmax(model(x), axis=-1))

    def accuracy(model: Module) -> float:
        right = samples = 0
        with no_grad():
            for batch in batches:
                if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                    raise ConfigError(f"{name}: pairs of inputs and classes", repr(type(batch)), "pass score=… for other data")
                x, classes = first_of(batch), batch[1]
                found = run(model, x)
                wanted = asarray(classes, device=found.device)
                if found.shape != wanted.shape:
                    given = f"outputs for {found.shape} and classes {wanted.shape}"
                    raise ConfigError(f"{name}: a class for each sample", given, "pass score=… for other data")
                right += int(total(found == wanted).item())
                samples += found.size
        if samples == 0:
            raise ConfigError(f"{name}: at least one sample", "none", "pass a list or a loader")
        return right / samples

    return accuracy
