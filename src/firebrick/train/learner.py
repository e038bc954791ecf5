"""``Learner``: trains a model, epoch by epoch, and keeps everything a run needs to be looked at and gone on with.

A run that is resumed, at the end of an epoch or in the middle of one, gives the same bits as one that was never stopped:
parameters, the optimizer's state, the random generators, the loader's place and the metrics of the running epoch are all in
the checkpoint.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, replace
from itertools import groupby
from numbers import Real
from operator import itemgetter
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from firebrick import random
from firebrick.backends.dispatch import read
from firebrick.core.bind import constant
from firebrick.core.dtypes import DType, bool_
from firebrick.core.settings import whole
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader, UnknownLengthError, WorkerDiedError
from firebrick.functions.losses import cross_entropy
from firebrick.nn import Module
from firebrick.optim import EMA
from firebrick.train import figures, history
from firebrick.train.checkpoint import Checkpoint, Snapshot, load_checkpoint, take_snapshot, write
from firebrick.train.claim import claimed
from firebrick.train.compiled import BY_REQUEST, Compiled, name_of, naming
from firebrick.train.errors import NonFiniteLossError, TrainingError, TrainingInterrupted
from firebrick.train.evaluation import Evaluation, evaluated, evaluating
from firebrick.train.frozen import HOST_ENGINES, FrozenWatch, Zeros
from firebrick.train.history import Epoch
from firebrick.train.interrupt import Interrupts
from firebrick.train.measures import Measures
from firebrick.train.parallel import SingleDevice
from firebrick.train.precision import precision_of
from firebrick.train.preflight import check_places, try_batch
from firebrick.train.progress import Progress, progress_for
from firebrick.train.records import Records
from firebrick.train.rundir import RunDirectory
from firebrick.train.standing import check_averages, generators_of, give_back, resumed
from firebrick.train.steps import EvaluationStep, Forward, Prediction, Stepped, TrainingStep
from firebrick.train.strategy import Strategy, bring

_READ_EVERY = 16  # steps between readings of the loss on engines where reading waits


class Learner:
    """Trains ``model`` with ``optimizer`` on what loaders give.

    Args:
        model: Called as ``model(*inputs)``.
        optimizer: Made for the model, such as ``optim.Adam(model, lr=1e-3)``.
        loss: Called as ``loss(output, target)``; returns the mean over the batch.
        strategy: Where steps run. Named, it moves model, optimizer and loaders to its devices; None runs on the model's
            device and moves nothing.
        out: Run directory for metrics, figures and checkpoints; None writes nothing.
        seed: Restarts the generators of ``fb.random`` before the first epoch; None leaves them.
        log: Takes each line of output; ``print`` in a terminal shows a live bar too. None is silent.
        config: Plain values that say how to build the model again; kept in each checkpoint.
        class_names: Names of the classes, for the confusion matrix; of the series, where they are forecast.
        patience: Steps after which what stands still is warned of.
        checkpoint_seconds: Most seconds of training between two checkpoints within an epoch; each epoch ends with one.
        checkpoint_steps: Most steps between two checkpoints within an epoch; None counts seconds alone.
        keep: Checkpoints that stay in the run directory, the newest among them; the best one stays besides.
        accumulate: Parts that each device's rows of a batch are run in, one after the other: gradients are those of the whole
            batch, and the memory is that of a part. Dropout draws what it would draw in the whole batch.
        clip_norm: Largest global norm of a step's gradients; None clips nothing.
        ema: Averages of the parameters to evaluate and predict with: their decay, or an ``optim.EMA`` of the model.
        jit: Whether steps of training, of evaluation and predictions run as graphs. One that cannot be traced runs as it is
            written, and a warning says why; the results are the same.
        precision: "bfloat16" or "float16": what the model computes in while it trains. Parameters, the loss, updates and
            evaluation stay float32; in float16 the loss is scaled, and steps whose gradients overflow are left out.
        events: Folder for event files that TensorBoard reads; None writes none.
        record_every: Steps between two rows of ``steps.jsonl`` in ``out``, and two points of the curves of single steps in
            ``events``; None records whole epochs only.
        progress: Who is told what happens; by default a live bar in a terminal, and a line an epoch elsewhere.

    Schedules that wait for a metric (``optim.reduce_on_plateau``) are given one after each epoch: the loss, or the accuracy
    for mode "max", of the validation if there is one.

    Attributes:
        history: One ``Epoch`` for each finished epoch.
        epoch: Finished epochs.
        step: Finished steps.
        interrupts: ``interrupts.stop()`` ends a running ``fit`` as Ctrl-C does, ``interrupts.save()`` asks for a checkpoint;
            both from any thread.
        compiled: What runs as graphs, by name ("training step", "evaluation", "prediction"): how many graphs (``traces``), why
            each was made (``recompiles``) in how many ``seconds``, or the ``reason`` why there is none.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> from firebrick.train import Learner
        >>> fb.random.seed(0)
        >>> model = fb.nn.Linear(2, 2)
        >>> x = np.random.default_rng(0).normal(size=(64, 2))
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(x, (x[:, 0] > 0).astype(int)), 16, shuffle=True)
        >>> learner = Learner(model, fb.optim.Adam(model, lr=0.1), log=None)
        >>> rows = learner.fit(loader, epochs=10)
        >>> learner.evaluate(loader).accuracy > 0.9
        True
    """

    def __init__(
        self,
        model: Module,
        optimizer: Any,
        loss: Callable[[Any, Tensor], Tensor] = cross_entropy,
        *,
        strategy: Strategy | None = None,
        out: str | os.PathLike[str] | None = None,
        seed: int | None = None,
        log: Callable[[str], Any] | None = print,
        config: Mapping[str, Any] | None = None,
        class_names: Sequence[str] | None = None,
        patience: int = 10,
        checkpoint_seconds: float = 600.0,
        checkpoint_steps: int | None = None,
        keep: int = 2,
        accumulate: int = 1,
        clip_norm: float | None = None,
        ema: EMA | float | None = None,
        jit: bool = True,
        precision: str | DType | None = None,
        events: str | os.PathLike[str] | None = None,
        record_every: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        parameters = model.named_parameters()
        if not parameters:
            raise TrainingError(
                "a Learner needs a model with parameters",
                f"{type(model).__name__} has none",
                "assign nn.Parameter or modules as its attributes",
            )
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self._moves = strategy is not None
        self.strategy: Strategy = strategy if strategy is not None else SingleDevice(parameters[0][1].device)
        self._given_out = None if out is None else Path(out)
        self.out = self._given_out if self.strategy.main else None  # of several processes one writes
        self.config = dict(config or {})
        self.class_names = class_names
        self.history: list[Epoch] = []
        self.epoch = self.step = 0
        self._log = log if self.strategy.main else None
        self._seed = seed
        self._best: Epoch | None = None
        self._cursor: dict[str, int] | None = None
        self._metrics: dict[str, Any] | None = None  # of an epoch that a checkpoint was made in
        self._run = None if self.out is None else RunDirectory(self.out, keep)
        self._checkpoint_seconds = checkpoint_seconds
        self._saved = 0.0, 0  # when and after which step the last checkpoint was taken, or the epoch entered
        self._checkpoint_steps = None if checkpoint_steps is None else whole("Learner", "checkpoint_steps", checkpoint_steps, 1)
        self._watch = FrozenWatch(patience)
        self._measures = Measures()
        self._unread: list[tuple[int, str, int]] = []  # step, batch and samples of each loss not read yet
        if clip_norm is not None and not (isinstance(clip_norm, Real) and 0.0 < clip_norm < float("inf")):
            raise TrainingError("clip_norm is a finite number > 0, or None", repr(clip_norm), "pass e.g. 1.0")
        self.clip_norm = clip_norm
        self.accumulate = whole("Learner", "accumulate", accumulate, 1)
        self.ema: EMA | None = ema if ema is None or isinstance(ema, EMA) else EMA(model, ema)
        self.jit = jit
        self.precision = precision_of(precision, model, self.strategy.devices)
        self.interrupts = Interrupts()
        self._records = Records(self.out, events, record_every) if self.strategy.main else Records(None, None, None)
        self._progress = progress
        self.compiled: dict[str, Compiled] = {}
        self._told = ""  # what was last said of it
        self._norms: list[tuple[int, Tensor]] = []  # step and norm of gradients, not read yet
        self._zeros: list[Zeros] = []  # of gradients, not read yet
        self._validation: Evaluation | None = None

    # the public verbs

    def fit(
        self,
        train_loader: DataLoader,
        valid_loader: DataLoader | None = None,
        *,
        epochs: int,
        draw: bool = True,
    ) -> list[Epoch]:
        """Train until ``epochs`` epochs are done in all, those of a resumed run and of earlier calls among them.

        Args:
            train_loader: Gives batches (inputs…, target). The loader itself is left as it is.
            valid_loader: Evaluated after each epoch; the epoch that does best on it is kept in ``best/``.
            epochs: Number of epochs in all.
            draw: Whether to draw the figures at the end.

        Returns:
            ``history``.

        Raises:
            TrainingError: Something does not fit together; it is found before the first step.
            NonFiniteLossError: The loss became NaN or infinite. Checkpoints of earlier epochs stay.
            TrainingInterrupted: Ctrl-C or SIGTERM; the step was finished and a checkpoint written.
        """
        train = self._placed(train_loader)
        valid = None if valid_loader is None else self._beside(valid_loader)
        check_places(self.model, self.optimizer, [x for x in (train, valid) if x is not None], self.strategy)
        check_averages(self.ema, self.model)
        for holder in (self.optimizer, self.ema):
            bring(holder, self.strategy.devices[0])
        if self.epoch < epochs:
            try_batch(self.model, self.loss, train, self.strategy, self.accumulate)
            self._say(self.strategy.begin(Forward(self.loss), self.model, train))
        if self._run is not None:
            self._run.open()
        if self._seed is not None and self.step == 0:
            random.seed(self._seed)
        progress = progress_for(self._log) if self._progress is None else self._progress
        training = self.model.training
        try:
            with (
                claimed(self.out),
                self.interrupts as interrupts,
                self._records.writing(self.step),
                nullcontext() if self._run is None else self._run.writing(),
            ):
                if self.out is not None:  # a run that died may have left rows of epochs that are run again
                    history.rewrite(self.out, self.history)
                while self.epoch < epochs:
                    row = self._train_epoch(train, epochs, progress, interrupts)
                    row = self._finish_epoch(row, train, valid)
                    progress.end(row, epochs)
                    if self.epoch < epochs and self.strategy.agree(interrupts.pending):
                        self._settle()
                        raise TrainingInterrupted(self._checkpoint_path(), self.epoch, self.step)
        finally:
            progress.close()
            train.close()
            self.model.train() if training else self.model.eval()
        self._say_compiled()
        if draw:
            self.draw(self._validation)
        return self.history

    def evaluate(self, loader: DataLoader, *, shared: bool = False) -> Evaluation:
        """Mean loss, and accuracy and confusion matrix or errors, over a loader, in evaluation mode.

        Args:
            loader: Gives batches (inputs…, target).
            shared: Whether the ranks of ``Distributed`` take its batches in turn and all get the result, as in ``fit``; all of
                them must call it then. Else a rank evaluates by itself.

        Raises:
            TrainingError: The loader is on another device and no strategy was named; or ranks that share have other models or
                other batches than each other.
        """
        step = self._compile("evaluation", EvaluationStep(self.model, self.loss))
        with self._averaged():
            return evaluated(step, self.model, self._beside(loader), self.strategy if shared else None, self._batches)

    def predict(self, *inputs: Tensor) -> Any:
        """The model's output for one batch, in evaluation mode and untracked."""
        step = self._compile("prediction", Prediction(self.model))
        with evaluating(self.model), self._averaged():
            return step(inputs)

    def _compile(self, name: str, step: Any) -> Compiled:
        """A step as graphs; those of before, if it is the same step."""
        found = self.compiled.get(name)
        if found is None or found.step != step or (found.reason == BY_REQUEST) is self.jit:
            found = self.compiled[name] = Compiled(name, step, self.strategy.compile(step) if self.jit else None)
        return found

    def _say_compiled(self) -> None:
        """Say what was compiled, in how many graphs and how long, and what was not, if that is new."""
        parts = [str(c) for c in self.compiled.values() if c.recompiles or c.reason not in (None, BY_REQUEST)]
        line = f"compiled: {', '.join(parts)}"
        if parts and line != self._told:
            self._told = line
            self._say(line)

    def _averaged(self) -> AbstractContextManager[None]:
        """The model with its averages for parameters, where there are any."""
        return nullcontext() if self.ema is None else self.ema.applied()

    def resume(self, path: str | os.PathLike[str] | None = None) -> Checkpoint:
        """Take over everything a checkpoint holds; ``fit`` then goes on where it was made.

        Args:
            path: A checkpoint or a run directory; the learner's own run directory if None.

        Raises:
            CheckpointError: There is none, it is damaged, of a newer format, or of another model.
            StateError: It is of another kind of optimizer, or of a version that kept another state; the model stays as it was.
        """
        goal = self._given_out if path is None else Path(path)
        if goal is None:
            raise TrainingError("resume needs a checkpoint", "no path, and a learner without run directory", "pass the path")
        found = load_checkpoint(goal)
        own = resumed(found)
        give_back(found, self.model, self.optimizer, self.ema)
        if self.precision is not None:
            self.precision.load_state_dict(own.precision)
        self.strategy.load_state(own.strategy)
        self.epoch, self.step, self.history, self._best = own.epoch, own.step, own.history, own.best
        self._cursor, self._metrics = own.cursor, own.metrics
        if self._run is not None:
            self._run.adopt(found)
        return found

    def save(self, path: str | os.PathLike[str], cursor: dict[str, int] | None = None) -> Path:
        """Write a checkpoint of where training stands.

        Args:
            path: The checkpoint's directory.
            cursor: The training loader's cursor; by default the beginning of the next epoch.
        """
        self._settle()
        return write(self._snapshot(cursor), path)

    def _snapshot(self, cursor: dict[str, int] | None) -> Snapshot:
        """All that a checkpoint of where training stands holds."""
        state = {
            "epoch": self.epoch,
            "step": self.step,
            "learning_rate": self.optimizer.learning_rate,
            **generators_of(self.model),
            "strategy": self.strategy.state(),
            "cursor": cursor,
            "metrics": self._running() if cursor else None,
            "history": [asdict(row) for row in self.history],
            "best": None if self._best is None else asdict(self._best),
        }
        config = {"model_class": type(self.model).__name__, **self.config}
        optimizer = self.optimizer.state_dict()
        if self.ema is not None:
            optimizer["ema"] = self.ema.state_dict()
        if self.precision is not None:
            optimizer["precision"] = self.precision.state_dict()
        return take_snapshot(model=self.model.state_dict(), optimizer=optimizer, state=state, config=config)

    def _running(self) -> dict[str, Any]:
        """The metrics of the running epoch, as plain numbers."""
        return self._measures.state()

    def draw(self, evaluation: Evaluation | None = None, split: str = "validation") -> list[Path]:
        """Draw ``curves.png``, and ``confusion.png`` or ``forecast.png`` of an evaluation; returns what was drawn.

        Args:
            evaluation: Whose confusion matrix or forecast to draw.
            split: What the title calls its samples.
        """
        if self.out is None or not self.history:
            return []
        if not figures.can_draw():
            self._say(figures.NOTE)
            return []
        title = str(self.config.get("title", type(self.model).__name__))
        return figures.draw_run(self.out, self.history, evaluation, self.class_names, title, split)

    # one epoch

    def _train_epoch(self, train: DataLoader, epochs: int, progress: Any, interrupts: Interrupts) -> Epoch:
        model, optimizer, strategy = self.model, self.optimizer, self.strategy
        measures, watch = self._measures, self._watch
        measures.reset()
        self._unread, self._norms, self._zeros = [], [], []
        step = self._compile(
            "training step",
            TrainingStep(model, optimizer, self.loss, strategy, self.clip_norm, self.ema, self.precision, self.accumulate),
        )
        watching = [constant(w, bool_, strategy.devices[0]) for w in (False, True)]
        done = self._enter(train)
        batches = _length(train)
        progress.begin(self.epoch + 1, epochs, batches, done)
        parameters = model.trainable_parameters()
        read_every = 1 if all(d.engine in HOST_ENGINES for d in strategy.devices) else _READ_EVERY
        samples = 0
        model.train()
        started = perf_counter()
        self._saved = started, self.step
        for step_in_epoch, batch in enumerate(self._batches(train), 1):
            watched = step_in_epoch <= watch.patience
            watch.parameters(parameters)
            with naming(batch):
                found: Stepped = step(watching[watched], batch)
            self.step += 1
            done += 1
            if self._run is not None:
                self._run.check()
            samples += self._count(found, watched, batch)
            if step_in_epoch % read_every == 0:
                self._read()
            if progress.due():
                self._read()
                speed = samples / (perf_counter() - started)
                progress.step(done, measures.values(), speed)
            stop = strategy.agree(interrupts.pending)
            if (batches is None or done < batches) and (stop or interrupts.take_save() or self._checkpoint_due()):
                self._read()
                self._save_latest(train.cursor())
                if stop:
                    self._settle()
                    self._cursor, self._metrics = train.cursor(), self._running()  # where another fit goes on
                    raise TrainingInterrupted(self._checkpoint_path(), self.epoch + 1, self.step)
        self._read()
        seconds = perf_counter() - started
        values = measures.values("train_")
        return Epoch(
            epoch=self.epoch + 1,
            step=self.step,
            train_loss=measures.loss.compute(),
            train_accuracy=values["train_accuracy"],
            valid_loss=None,
            valid_accuracy=None,
            learning_rate=float(optimizer.learning_rate),
            samples_per_second=samples / seconds if seconds else 0.0,
            seconds=seconds,
            train_mse=values["train_mse"],
            train_mae=values["train_mae"],
        )

    def _batches(self, loader: DataLoader) -> Iterator[Any]:
        """A loader's batches; where a signal to all processes of a run ended its workers too, the last are made here."""
        try:
            yield from loader
        except WorkerDiedError:
            if not self.interrupts.pending:
                raise
            loader.load_cursor(loader.cursor())
            loader.num_workers = 0
            yield from loader

    def _checkpoint_due(self) -> bool:
        """Whether the last checkpoint within the epoch was long enough ago."""
        when, step = self._saved
        steps = self._checkpoint_steps
        return perf_counter() - when > self._checkpoint_seconds or (steps is not None and self.step - step >= steps)

    def _enter(self, train: DataLoader) -> int:
        """Bring the loader to where this epoch starts; returns the batches that are done already."""
        cursor, metrics, self._cursor, self._metrics = self._cursor, self._metrics, None, None
        if cursor is None:
            train.set_epoch(self.epoch)
            return 0
        train.load_cursor(cursor)
        if metrics is not None:
            self._measures.load_state(metrics)
        return cursor["position"] // train.batch_size

    def _count(self, found: Stepped, watched: bool, batch: Any) -> int:
        """Add a step to the metrics; returns its number of samples."""
        label = name_of(batch) or "a batch"
        losses = found.counts["loss"]
        self._measures.take(found.counts)
        self._unread += [(self.step, label, samples) for _, samples in losses]
        if found.norm is not None:
            self._norms.append((self.step, found.norm))
        if watched:
            self._zeros.append(found.zeros)
        return sum(samples for _, samples in losses)

    def _read(self) -> None:
        """Read the losses of the last steps; stop if one is NaN or infinite."""
        values = self._measures.read()
        unread, self._unread = self._unread, []
        if not unread:
            return
        for value, (step, label, _) in zip(values, unread, strict=True):
            if not np.isfinite(value):
                kept = f"; the last good epoch is in {self._checkpoint_path()}" if self.out and self.history else ""
                raise NonFiniteLossError(
                    "the loss must stay finite",
                    f"{value} at step {step} ({label}, epoch {self.epoch + 1}), learning rate {self.optimizer.learning_rate:g}",
                    "lower the learning rate or check the data; fb.detect_anomaly() names the operation that made the first "
                    f"NaN{kept}",
                    step=step,
                    epoch=self.epoch + 1,
                )
        losses = _by_step([(step, value, n) for value, (step, _, n) in zip(values, unread, strict=True)])
        self._watch.losses(losses)
        if self.precision is not None:
            self.precision.check()
        zeros, self._zeros = self._zeros, []
        self._watch.gradients(zeros)
        norms, self._norms = self._norms, []
        read_norms = dict(zip([s for s, _ in norms], read([n for _, n in norms]) if norms else [], strict=True))
        for step, norm in read_norms.items():
            if not np.isfinite(norm):
                raise NonFiniteLossError(
                    "the norm of the gradients must stay finite",
                    f"{norm} at step {step} (epoch {self.epoch + 1}), learning rate {self.optimizer.learning_rate:g}",
                    "lower the learning rate or check the data; fb.detect_anomaly() names the operation of the first NaN",
                    step=step,
                    epoch=self.epoch + 1,
                )
        for step, loss in zip(dict.fromkeys(step for step, _, _ in unread), losses, strict=True):
            norm_of = {"gradient_norm": float(read_norms[step])} if step in read_norms else {}
            self._records.step(step, self.epoch + 1, {"loss": float(loss), **norm_of})

    def _finish_epoch(self, row: Epoch, train: DataLoader, valid: DataLoader | None) -> Epoch:
        if valid is not None:
            self._validation = found = self.evaluate(valid, shared=self._moves)
            values = {f"valid_{n}": getattr(found, n) for n in ("loss", "accuracy", "mse", "mae")}
            row = replace(row, **values)
        row.show_to(self.optimizer)
        self.epoch += 1
        self.history.append(row)
        best = row.better_than(self._best)
        if best:
            self._best = row
        if self.out is not None:
            train.set_epoch(self.epoch)
            self._save_latest(None, best=best)
            history.append(self.out, row)
        self._records.epoch(row)
        return row

    # the run directory

    def _placed(self, loader: DataLoader) -> DataLoader:
        """The loader to train from: moved by a named strategy, else a copy, so that the caller's cursor stays."""
        _check_loader(loader)
        if not self._moves:
            return loader.to(loader.device)
        return self.strategy.place(self.model, self.optimizer, loader, self.ema)

    def _beside(self, loader: DataLoader) -> DataLoader:
        """A loader to evaluate: on the first device of a named strategy, else a copy."""
        _check_loader(loader)
        return loader.to(self.strategy.devices[0] if self._moves else loader.device)

    def _save_latest(self, cursor: dict[str, int] | None, *, best: bool = False) -> None:
        """Begin to write the newest checkpoint."""
        if self._run is not None:
            self._run.save(self._snapshot(cursor), best=best)
            self._saved = perf_counter(), self.step

    def _settle(self) -> None:
        """Wait for the checkpoint that is being written."""
        if self._run is not None:
            self._run.wait()

    def _checkpoint_path(self) -> Path | None:
        return None if self._run is None else self._run.latest

    def _say(self, line: str) -> None:
        if self._log is not None and line:
            self._log(line)


def _check_loader(loader: Any) -> None:
    if not isinstance(loader, DataLoader):
        raise TrainingError(
            "batches come from a DataLoader",
            type(loader).__name__,
            "make one: DataLoader(ArrayDataset(inputs, targets), batch_size=64)",
        )


def _length(loader: DataLoader) -> int | None:
    """The number of a loader's batches; None of a stream without a length."""
    try:
        return len(loader)
    except UnknownLengthError:
        return None


def _by_step(losses: list[tuple[int, float, int]]) -> list[float]:
    """The loss of each step from those of its shares: (step, mean loss, samples)."""
    out = []
    for _, found in groupby(losses, key=itemgetter(0)):
        shares = list(found)
        count = sum(n for _, _, n in shares)
        out.append(shares[0][1] if len(shares) == 1 else sum(v * n for _, v, n in shares) / count)
    return out
