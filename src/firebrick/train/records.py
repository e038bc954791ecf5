"""``Records``: what a run tells while it runs, for programs: ``steps.jsonl`` every n steps, and event files for TensorBoard.

``metrics.csv`` and ``metrics.jsonl``, one row an epoch, are ``history``'s. A run that is resumed goes on with the same files as
if it had never stopped: rows of steps that are done again are taken out first.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firebrick.core.settings import whole
from firebrick.core.untrusted import content_of, json_of
from firebrick.train.errors import TrainingError
from firebrick.train.events import EventWriter
from firebrick.train.history import Epoch, replace

STEPS, EVENTS = "steps.jsonl", "events"


class Records:
    """Where the numbers of steps and epochs go, beside the history.

    Args:
        out: The run directory, where ``steps.jsonl`` is written; None writes none.
        events: Folder of event files; None writes none.
        every: Steps between two rows, and two points of a curve; None records whole epochs only.
    """

    def __init__(self, out: Path | None, events: str | os.PathLike[str] | None, every: int | None) -> None:
        if every is not None and whole("Learner", "record_every", every, 1) and out is None and events is None:
            raise TrainingError(
                "steps are recorded in a run directory or in event files", "neither", "pass out=, or events="
            )  # fmt: skip
        self._steps = None if out is None or every is None else out / STEPS
        self._folder = events
        self._every = every
        self._writer: EventWriter | None = None

    @contextmanager
    def writing(self, step: int) -> Iterator[None]:
        """For a ``with`` block, go on after ``step`` steps."""
        if self._steps is not None and os.path.lexists(self._steps):
            _cut(self._steps, step)
        self._writer = None if self._folder is None else EventWriter(self._folder, step)
        try:
            yield
        finally:
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def step(self, step: int, epoch: int, values: dict[str, float]) -> None:
        """A step is done: its ``loss``, and ``gradient_norm`` where gradients are clipped."""
        if self._every is None or step % self._every:
            return
        if self._steps is not None:
            with self._steps.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps({"step": step, "epoch": epoch, **values}) + "\n")
        if self._writer is not None:
            self._writer.scalars({f"step/{n}": v for n, v in values.items()}, step)

    def epoch(self, row: Epoch) -> None:
        """An epoch is done."""
        if self._writer is not None:
            named = {n: v for n, v in row.values().items() if n not in ("epoch", "step")}
            self._writer.scalars({tag_of(n): v for n, v in named.items() if v is not None and math.isfinite(v)}, row.step)


def tag_of(name: str) -> str:
    """``loss/train`` for ``train_loss``, so that curves of the same thing share a picture."""
    split, _, what = name.partition("_")
    return f"{what}/{split}" if split in ("train", "valid") else f"run/{name}"


def _cut(path: Path, step: int) -> None:
    """Leave only whole rows of steps up to ``step``; the file is whole at every moment.

    Raises:
        TrainingError: It is no regular file, or cannot be read.
    """
    try:
        content = content_of(path)
    except OSError as e:
        raise TrainingError(
            f"{path} holds the rows of the steps before", str(e.strerror or e), "move it away; a new one is begun"
        ) from e
    end = 0
    while (stop := content.find(b"\n", end) + 1) and 0 < _step_of(content[end:stop]) <= step:
        end = stop
    replace(path, content[:end])


def _step_of(row: bytes) -> int:
    """The step of a row; 0 of what is none, as a machine that lost its power may leave."""
    try:
        found = json_of(row)["step"]
        return found if isinstance(found, int) else 0
    except (ValueError, LookupError, TypeError):
        return 0
