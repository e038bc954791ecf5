"""Loggers: callbacks that write the numbers of a run to files; for services that follow experiments see ``train.services``.

Each writes a row an epoch, and some of them one every n-th step too. A run that is resumed goes on with the same files: rows of
steps that are done again are taken out first. With several ranks the main one writes.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firebrick.core.settings import whole
from firebrick.core.untrusted import content_of, json_of
from firebrick.train.callbacks import Callback
from firebrick.train.errors import TrainingError
from firebrick.train.events import EventWriter
from firebrick.train.history import Epoch, replace
from firebrick.train.records import tag_of

if TYPE_CHECKING:
    from firebrick.train.learner import Learner


class CSVLogger(Callback):
    """Writes a row an epoch to a file of comma-separated values, with a header.

    Args:
        path: The file. Its folder is made if it is not there.

    Raises:
        TrainingError: When training begins: the file has rows and the run is new, or it is no such file or cannot be written.

    Example:
        >>> import tempfile, numpy as np, firebrick as fb
        >>> from pathlib import Path
        >>> from firebrick.train import CSVLogger, Learner
        >>> model = fb.nn.Linear(2, 2)
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(np.eye(2, dtype=np.float32), np.arange(2)), 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     logger = CSVLogger(Path(folder) / "run.csv")
        ...     rows = Learner(model, fb.optim.SGD(model, lr=0.1), callbacks=[logger], log=None).fit(loader, epochs=2)
        ...     logger.path.read_text().splitlines()[0].split(",")[:3]
        ['epoch', 'step', 'train_loss']
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._rows: list[dict[str, str]] = []

    def on_fit_begin(self, learner: Learner) -> None:
        """Leave the rows of epochs that are done."""
        if not learner.strategy.main:
            return
        lines = _lines_of(self.path, learner)
        if lines and not lines[0].startswith("epoch,step"):
            raise _not_ours(self.path, "a header that begins with epoch,step")
        self._rows = []
        for row in csv.DictReader(io.StringIO("".join(lines))):
            if len(self._rows) == learner.epoch or row["epoch"] != str(len(self._rows) + 1):
                break
            self._rows.append({k: v for k, v in row.items() if k is not None and v is not None})
        if lines:
            self._write()

    def on_epoch_end(self, learner: Learner, row: Epoch) -> None:
        """Add the epoch."""
        if not learner.strategy.main:
            return
        self._rows.append({n: "" if v is None else str(v) for n, v in row.values().items()})
        self._write()

    def _write(self) -> None:
        """The whole file anew, which is whole at every moment; a metric that comes later gets a column."""
        names = list(dict.fromkeys(n for row in self._rows for n in row))
        stream = io.StringIO(newline="")
        writer = csv.DictWriter(stream, names, restval="")
        if names:
            writer.writeheader()
        writer.writerows(self._rows)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        replace(self.path, stream.getvalue().encode())


class JSONLinesLogger(Callback):
    """Writes a line of JSON an epoch, and one every n-th step, to a file.

    A line of an epoch has the numbers of ``Epoch.values()``, with null for what is no finite number; one of a step has "step",
    "loss" and, where gradients are clipped, "gradient_norm".

    Args:
        path: The file. Its folder is made if it is not there.
        every: Steps between two lines of steps; None writes none.

    Raises:
        ConfigError: ``every`` is no whole number of at least 1.
        TrainingError: When training begins: the file has lines and the run is new, or it is no such file or cannot be written.

    Example:
        >>> import json, tempfile, numpy as np, firebrick as fb
        >>> from pathlib import Path
        >>> from firebrick.train import JSONLinesLogger, Learner
        >>> model = fb.nn.Linear(2, 2)
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(np.eye(2, dtype=np.float32), np.arange(2)), 1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     logger = JSONLinesLogger(Path(folder) / "run.jsonl", every=1)
        ...     rows = Learner(model, fb.optim.SGD(model, lr=0.1), callbacks=[logger], log=None).fit(loader, epochs=1)
        ...     [sorted(json.loads(line))[:2] for line in logger.path.read_text().splitlines()]
        [['loss', 'step'], ['loss', 'step'], ['epoch', 'learning_rate']]
    """

    def __init__(self, path: str | os.PathLike[str], *, every: int | None = None) -> None:
        self.path, self.every = Path(path), every_nth("JSONLinesLogger", every)

    def on_fit_begin(self, learner: Learner) -> None:
        """Leave the lines of steps and epochs that are done."""
        if not learner.strategy.main:
            return
        lines = _lines_of(self.path, learner)
        if lines and _object_of(lines[0]) is None:
            raise _not_ours(self.path, 'a JSON object with "step" in each line')
        kept = 0
        for line in lines:
            row = _object_of(line)
            if row is None or row["step"] > learner.step or row.get("epoch", 0) > learner.epoch:
                break
            kept += 1
        if lines:
            replace(self.path, "".join(lines[:kept]).encode())

    def on_step_end(self, learner: Learner, step: int, values: Mapping[str, float]) -> None:
        """Add the step, if it is the n-th."""
        if self.every is not None and step % self.every == 0 and learner.strategy.main:
            self._add({"step": step, **values})

    def on_epoch_end(self, learner: Learner, row: Epoch) -> None:
        """Add the epoch."""
        if learner.strategy.main:
            self._add(row.values())

    def _add(self, row: Mapping[str, Any]) -> None:
        text = json.dumps({k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")


class EventFileLogger(Callback):
    """Writes event files, which TensorBoard shows as curves: of each epoch, and of every n-th step.

    Args:
        folder: Where a file is added each time training begins. ``tensorboard --logdir`` takes it, or a folder above it.
        every: Steps between two points of the curves of steps; None writes none.

    Raises:
        ConfigError: ``every`` is no whole number of at least 1.
        TrainingError: When training begins: the folder cannot be written to.

    Example:
        >>> import tempfile, numpy as np, firebrick as fb
        >>> from pathlib import Path
        >>> from firebrick.train import EventFileLogger, Learner
        >>> model = fb.nn.Linear(2, 2)
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(np.eye(2, dtype=np.float32), np.arange(2)), 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     logger = EventFileLogger(folder, every=1)
        ...     rows = Learner(model, fb.optim.SGD(model, lr=0.1), callbacks=[logger], log=None).fit(loader, epochs=2)
        ...     len(list(Path(folder).glob("events.out.tfevents.*")))
        1
    """

    def __init__(self, folder: str | os.PathLike[str], *, every: int | None = None) -> None:
        self.folder, self.every = Path(folder), every_nth("EventFileLogger", every)
        self._writer: EventWriter | None = None

    def on_fit_begin(self, learner: Learner) -> None:
        """Begin a file, whose first record makes TensorBoard forget points of steps that are done again."""
        self._close()
        if learner.strategy.main:
            _check_folder(self.folder)
            self._writer = EventWriter(self.folder, learner.step)

    def on_step_end(self, learner: Learner, step: int, values: Mapping[str, float]) -> None:
        """Add points of the step, if it is the n-th."""
        if self._writer is not None and self.every is not None and step % self.every == 0:
            self._writer.scalars({f"step/{n}": v for n, v in values.items()}, step)

    def on_epoch_end(self, learner: Learner, row: Epoch) -> None:
        """Add points of the epoch."""
        if self._writer is not None:
            self._writer.scalars({tag_of(n): v for n, v in numbers_of(row).items()}, row.step)

    def on_fit_end(self, learner: Learner) -> None:
        """Close the file."""
        self._close()

    def on_exception(self, learner: Learner, error: BaseException) -> None:
        """Close the file."""
        self._close()

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def every_nth(who: str, every: Any) -> int | None:
    """Steps between two logged ones, checked; None for none."""
    return None if every is None else whole(who, "every", every, 1)


def numbers_of(row: Epoch) -> dict[str, float]:
    """The finite numbers of an epoch by name, but for its counters."""
    return {n: float(v) for n, v in row.values().items() if n not in ("epoch", "step") and v is not None and math.isfinite(v)}


def _lines_of(path: Path, learner: Learner) -> Sequence[str]:
    """The whole lines of a file that a run goes on with; none of a file that is not there.

    Raises:
        TrainingError: It cannot be read, or the run is new and there are some.
    """
    _check_folder(path.parent)
    if not os.path.lexists(path):
        return []
    try:
        text = content_of(path).decode("utf-8", "replace")
    except OSError as e:
        raise TrainingError(
            f"{path} is a file of rows", str(e.strerror or e), "move it away, or name another file"
        ) from e  # fmt: skip
    lines = [line for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if text and learner.step == 0:
        raise TrainingError(
            "a new run gets a log of its own, and overwrites nothing",
            f"{path}, which is not empty",
            "name another file, or call learner.resume() first to go on with the run that it is of",
        )
    return lines


def _check_folder(folder: Path) -> None:
    """Make a folder, and make sure that it can be written to, before there is anything to lose.

    Raises:
        TrainingError: It cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as e:
        raise TrainingError(
            f"a logger writes into {folder}",
            f"the system refuses to: {e.strerror or e}",
            "make it writable, or name another path",
        ) from e


def _not_ours(path: Path, expected: str) -> TrainingError:
    return TrainingError(f"the log {path} has {expected}", "another file", "name another file; this one stays as it is")


def _object_of(line: str) -> dict[str, Any] | None:
    """A line's object with a step; None of what is none, as a machine that lost its power may leave."""
    try:
        found = json_of(line.encode())
    except ValueError:
        return None
    if not isinstance(found, dict) or not all(type(found.get(k, 0)) is int for k in ("step", "epoch")):
        return None
    return found if "step" in found else None
