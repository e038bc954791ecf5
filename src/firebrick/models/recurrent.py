"""A recurrent forecaster: an LSTM reads a window of a multivariate series, a dense layer says what comes next."""

from __future__ import annotations

from typing import Any

from firebrick.core.errors import ShapeError
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.tensor import Tensor
from firebrick.functions.movement import reshape
from firebrick.models.checks import check_counts
from firebrick.nn import LSTM, Dropout, Linear, Module
from firebrick.random import Generator


class LSTMForecaster(Module):
    """An LSTM over the window, relative to its last row, and a dense layer on its last output; ``lstm_forecaster`` builds it.

    Args:
        series: Number of series of a window.
        window: Rows of the input.
        horizon: Rows that are predicted.
        hidden: Features of the LSTM's state.
        layers: LSTM layers, one on the other.
        dropout: Probability of dropping an element of the last output in training.
        generator: Source of initial values.
        how: ``dtype`` and ``device`` of the parameters.

    Example:
        >>> import firebrick as fb
        >>> fb.models.LSTMForecaster(2, 12, 3, hidden=8, layers=1, dropout=0.0, generator=None)(fb.ones((4, 12, 2))).shape
        (4, 3, 2)
    """

    def __init__(
        self, series: int, window: int, horizon: int, hidden: int, layers: int, dropout: float, generator: Generator | None,
        **how: Any,
    ) -> None:  # fmt: skip
        check_counts("lstm_forecaster", series=series, window=window, horizon=horizon, hidden=hidden, layers=layers)
        self.series, self.window, self.horizon = series, window, horizon
        self.lstm = LSTM(series, hidden, layers, generator=generator, **how)
        self.dropout = Dropout(dropout, generator=None if generator is None else generator.fork())
        self.head = Linear(hidden, horizon * series, generator=generator, **how)

    def forward(self, x: Tensor) -> Tensor:
        """Map windows [batch, window, series] to forecasts [batch, horizon, series].

        Args:
            x: Floating tensor of the windows.
        """
        if x.ndim != 3 or x.shape[1:] != (self.window, self.series):
            raise ShapeError(
                f"lstm_forecaster: x is [batch, {self.window}, {self.series}]",
                describe("x", x),
                "cut the series into windows of this length, or build the model for them",
            )
        level = x[:, -1:, :]
        output, _ = self.lstm(x - level)
        change = self.head(self.dropout(output[:, -1, :]))
        return reshape(change, (x.shape[0], self.horizon, self.series)) + level


@answers_arguments
def lstm_forecaster(
    series: int = 7, window: int = 96, horizon: int = 24, *, hidden: int = 64, layers: int = 1, dropout: float = 0.0,
    generator: Generator | None = None, dtype: Any = None, device: Any = None,
) -> LSTMForecaster:  # fmt: skip
    """An LSTM that forecasts all series of a window at once, as changes from the window's last row.

    Args:
        series: Number of series of a window.
        window: Rows of the input.
        horizon: Rows that are predicted.
        hidden: Features of the LSTM's state.
        layers: LSTM layers, one on the other.
        dropout: Probability of dropping an element of the last output in training.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Returns:
        Module from [batch, window, series] to [batch, horizon, series].

    Source: Hochreiter, Schmidhuber, "Long Short-Term Memory", 1997.

    Example:
        >>> import firebrick as fb
        >>> fb.models.lstm_forecaster(series=2, window=12, horizon=3, hidden=8)(fb.ones((4, 12, 2))).shape
        (4, 3, 2)
    """
    return LSTMForecaster(series, window, horizon, hidden, layers, dropout, generator, dtype=dtype, device=device)
