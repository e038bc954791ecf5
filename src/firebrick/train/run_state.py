"""``RunState``: where a run stands, which ``fit`` goes on with and checkpoints keep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from firebrick.train.callbacks import Callback
from firebrick.train.history import Epoch, History


@dataclass
class Ending:
    """The end of an epoch that counts as finished: what an exception leaves of it, another ``fit`` does.

    Attributes:
        row: The numbers of the epoch.
        best: Whether it did best.
        notified: The callbacks whose ``on_epoch_end`` returned or failed.
    """

    row: Epoch
    best: bool
    notified: list[Callback] = field(default_factory=list)


@dataclass
class RunState:
    """Where a run stands.

    Attributes:
        epoch: Finished epochs.
        step: Finished steps.
        history: One row for each finished epoch.
        best: The row of the epoch that did best.
        cursor: Where in its epoch the next ``fit`` goes on; None at its beginning.
        measures: What was counted of the epoch up to the cursor.
        loader: The cursor of the last loader that was trained from.
        resumed: Whether a checkpoint was taken over that no ``fit`` has gone on from yet.
        stopping: Why ``fit`` ends after the running epoch; None if it does not. Between two calls of ``fit``: why the run that
            a checkpoint is of had ended.
        lasting: Whether checkpoints keep that.
        running: Whether ``fit`` runs.
        ending: The end of the last epoch, while it is not done; None else.
    """

    epoch: int = 0
    step: int = 0
    history: History = field(default_factory=History)
    best: Epoch | None = None
    cursor: dict[str, Any] | None = None
    measures: dict[str, Any] | None = None
    loader: dict[str, Any] | None = None
    resumed: bool = False
    stopping: str | None = None
    lasting: bool = False
    running: bool = False
    ending: Ending | None = None

    def stop(self, reason: str | None, *, lasting: bool = False) -> None:
        """End ``fit`` after the running epoch; None for not."""
        self.stopping, self.lasting = reason, lasting

    def goes_on(self, epochs: int) -> bool:
        """Whether another epoch is trained."""
        return self.epoch < epochs and self.stopping is None
