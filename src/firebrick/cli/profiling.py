"""``firebrick train --profile``: a timeline of the first steps of a run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import firebrick.backends.decorators as decorators
from firebrick.cli.placing import say
from firebrick.distributed import rank, world_size
from firebrick.train import Callback

if TYPE_CHECKING:
    from firebrick.train import Learner

STEPS = 20
"""Steps in a timeline: enough to see what repeats, few enough for a viewer."""


class FirstSteps(Callback):
    """Profiles the first steps of a fit, and writes their timeline.

    Args:
        path: The file; in a run of several processes each has its rank in the name.
        steps: How many steps; what follows runs as without a profile.
    """

    def __init__(self, path: Path, steps: int = STEPS) -> None:
        self.path = path if world_size() == 1 else path.with_name(f"{path.stem}.rank{rank()}{path.suffix}")
        self._steps = steps
        self._profile = ExitStack()
        self._report: decorators.Report | None = None

    def on_fit_begin(self, learner: Learner) -> None:
        """Begin to record."""
        self._report = self._profile.enter_context(decorators.profile(kernels=True))
        self._last = learner.step + self._steps

    def on_step_end(self, learner: Learner, step: int, values: Mapping[str, float]) -> None:
        """End after the last of the steps."""
        if step >= self._last:
            self.finish()

    def finish(self) -> None:
        """End recording, if it has not, and write the file."""
        report, self._report = self._report, None
        if report is not None:
            self._profile.close()
            report.save_timeline(self.path)
            say(f"timeline of the first steps: {self.path}; https://ui.perfetto.dev and chrome://tracing open it")
