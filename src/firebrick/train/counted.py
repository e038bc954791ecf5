"""What an evaluation counts, on one process or on several that share its batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.train.measures import Measures


@dataclass(frozen=True)
class Forecast:
    """One sample of a forecast, for people to look at.

    Attributes:
        seen: [rows, series], what the model was shown.
        target: [horizon, series], what came next.
        predicted: [horizon, series], what the model said.
    """

    seen: np.ndarray[Any, Any]
    target: np.ndarray[Any, Any]
    predicted: np.ndarray[Any, Any]


@dataclass
class Counted:
    """What was counted of the batches of a loader, or of those that one of several processes has taken.

    Attributes:
        measures: Loss, accuracy and errors.
        samples: How many there were.
        confusion: int64 [classes, classes]; None where no classes were scored.
        forecast: The first sample, where windows of series are forecast.
    """

    measures: Measures
    samples: int = 0
    confusion: np.ndarray[Any, np.dtype[np.int64]] | None = None
    forecast: Forecast | None = None
