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
from functools import partial
from numbers import Real
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from firebrick import random
from firebrick.core import timeline
from firebrick.core.constants import constant
from firebrick.core.dtypes import DType, bool_
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import number, python_settings, whole
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader, WorkerDiedError
from firebrick.functions.losses import cross_entropy
from firebrick.nn import Module
from firebrick.optim import EMA
from firebrick.random.generator import check_seed
from firebrick.train import description, figures, history, settings
from firebrick.train.callbacks import Callback, checked, resume_callbacks, states_of
from firebrick.train.checkpoint import Checkpoint, Snapshot, load_checkpoint, take_snapshot, write
from firebrick.train.claim import claimed
from firebrick.train.compiled import BY_REQUEST, USUAL, Compiled, naming
from firebrick.train.errors import TrainingError, TrainingInterrupted
from firebrick.train.evaluation import Evaluation, evaluated, evaluating
from firebrick.train.frozen import HOST_ENGINES
from firebrick.train.history import Epoch, History
from firebrick.train.interrupt import Interrupts
from firebrick.train.loss_state import LossState, check_parameters
from firebrick.train.measures import named_metrics
from firebrick.train.metrics import Metric
from firebrick.train.optimizers import Optimizers
from firebrick.train.own_step import Minimizer, OwnStep, check_own_step
from firebrick.train.parallel import SingleDevice
from firebrick.train.precision import precision_of
from firebrick.train.preflight import (
    check_alone,
    check_config,
    check_loader,
    check_optimizer,
    check_pieces,
    check_places,
    length_of,
    try_batch,
    try_validation,
)
from firebrick.train.progress import Progress, progress_for
from firebrick.train.readings import Readings
from firebrick.train.records import Records
from firebrick.train.rundir import RunDirectory
from firebrick.train.standing import check_averages, generators_for, generators_of, give_back, resumed
from firebrick.train.steps import EvaluationStep, Forward, Prediction, Stepped, TrainingStep
from firebrick.train.strategy import Strategy, bring
from firebrick.train.trial import on_trial

_READ_EVERY = 16  # steps between readings of the loss on engines where reading waits


class Learner:
    """Trains ``model`` with ``optimizer`` on the batches of loaders.

    Args:
        model: Called as ``model(*inputs)``.
        optimizer: Made for the model, such as ``optim.Adam(model, lr=1e-3)``; with ``step``, several by name, each made for a
            part of the model.
        loss: Called as ``loss(output, target)``; returns the mean over the batch.
        strategy: Where steps run. Named, it moves model, optimizer and loaders to its devices; None runs on the model's
            device and moves nothing. Where a launcher started several processes, ``fit`` asks for one.
        out: Run directory for metrics, figures and checkpoints; None writes nothing.
        seed: Restarts the generators of ``fb.random`` before the first epoch; None leaves them.
        log: Takes each line of output; ``print`` in a terminal shows a live bar too. None is silent.
        config: Plain values (text, numbers, bools, None, lists and dicts of them) that say how to build the model again; kept
            in each checkpoint.
        class_names: Names of the classes, for the confusion matrix; of the series, where they are forecast.
        patience: Number of steps with the same loss, or without a gradient of a parameter, after which a warning is given.
        checkpoint_seconds: Most seconds of training between two checkpoints within an epoch; each epoch ends with one.
        checkpoint_steps: Most steps between two checkpoints within an epoch; None counts seconds alone.
        keep: Number of latest checkpoints kept in the run directory; the best one is kept in addition.
        accumulate: Parts that each device's rows of a batch are run in, one after the other: gradients are those of the whole
            batch, and the memory is that of a part. Dropout draws what it would draw in the whole batch.
        clip_norm: Largest global norm of a step's gradients; None clips nothing.
        ema: Averages of the parameters to evaluate and predict with: their decay, or an ``optim.EMA`` of the model.
        jit: Whether steps of training, of evaluation and predictions run as graphs. One that cannot be traced runs
            eagerly, and a warning has the reason; the results are the same up to rounding.
        precision: What the model computes in while it trains: "float32" (as None), "bfloat16" or "float16". Parameters, the
            loss, updates and evaluation stay float32; in float16 the loss is scaled, and steps whose gradients overflow are
            left out.
        events: Folder for event files that TensorBoard reads; None writes none.
        record_every: Steps between two rows of ``steps.jsonl`` in ``out``, and two points of the curves of single steps in
            ``events``; None records whole epochs only.
        progress: Object whose methods are called with the progress; by default a live bar in a terminal, and a line for each
            epoch elsewhere.
        callbacks: ``Callback`` objects, called in their order after steps, epochs, validations and checkpoints.
        step: A step of training of one's own, called as ``step(minimizer, batch)``: see ``Minimizer``. It returns None, a loss,
            or numbers by name, which rows have as ``train_<name>``; "loss" is the sum of what it minimizes unless it returns
            another. ``loss`` is then that of the validation alone.
        metrics: Further metrics of training and validation, called as ``update(output, target)``: a list of ``Metric`` objects,
            called in rows as their classes ("train_f1", "valid_f1"), or a dict by name. They are copied, not changed.

    Schedules that wait for a metric (``optim.reduce_on_plateau``) are given one after each epoch: the loss, or the accuracy
    for mode "max", of the validation if there is one.

    Attributes:
        history: One ``Epoch`` for each finished epoch.
        epoch: Finished epochs.
        step: Finished steps.
        cursor: Where in its epoch the next ``fit`` goes on, after an exception or from a checkpoint; None at its beginning.
            Assign None to repeat the epoch, with another loader too.
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

    @python_settings
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
        callbacks: Sequence[Callback] = (),
        metrics: Sequence[Metric] | Mapping[str, Metric] = (),
        step: Callable[[Minimizer, Any], Any] | None = None,
    ) -> None:
        parameters = model.named_parameters()
        if not parameters:
            raise TrainingError(
                "a Learner needs a model with parameters",
                f"{type(model).__name__} has none",
                "assign nn.Parameter or modules as its attributes",
            )
        if isinstance(optimizer, Mapping):
            optimizer = Optimizers(model, optimizer)
            if step is None:
                raise TrainingError(
                    "several optimizers are used by a step of one's own",
                    "no step",
                    "pass step=, a function: see train.Minimizer",
                )
        check_optimizer(optimizer)
        self.model, self.optimizer, self.loss = model, optimizer, loss
        self._loss_state = LossState(model, loss)
        self._moves = strategy is not None
        self.strategy: Strategy = strategy if strategy is not None else SingleDevice(parameters[0][1].device)
        self._given_out = None if out is None else Path(out)
        self.out = self._given_out if self.strategy.main else None  # of several processes one writes
        self.config = dict(config or {})
        check_config(self.config)
        self.class_names = class_names
        self.history: list[Epoch] = History()
        self.epoch = self.step = 0
        self._log = log if self.strategy.main else None
        self._seed = None if seed is None else check_seed(seed)
        self._best: Epoch | None = None
        self.cursor: dict[str, Any] | None = None
        self._loader: dict[str, Any] | None = None  # the cursor of the last loader that was trained from
        self._done = 0, 0  # the epoch that was entered last, and the samples of it that steps were done of
        self._updates = 0  # of the optimizer before the first step
        self._counters: list[Tensor] = []  # of updates before the running step, of a step of one's own
        self._marks: list[tuple[random.Generator, Any]] = []  # where generators stood before the running step
        self._resumed = False  # by a checkpoint that no ``fit`` went on from yet
        self._metrics: dict[str, Any] | None = None  # of an epoch that a checkpoint was made in
        keep = whole("Learner", "keep", keep, 1)
        self._run = None if self.out is None else RunDirectory(self.out, keep)
        if not number("Learner", "checkpoint_seconds", checkpoint_seconds) >= 0.0:
            raise TrainingError(
                "checkpoint_seconds is a number ≥ 0", repr(checkpoint_seconds), "pass math.inf for none by time"
            )
        self._checkpoint_seconds = checkpoint_seconds
        self._saved = 0.0, 0  # when and after which step the last checkpoint was taken, or the epoch entered
        self._checkpoint_steps = None if checkpoint_steps is None else whole("Learner", "checkpoint_steps", checkpoint_steps, 1)
        if clip_norm is not None and not (isinstance(clip_norm, Real) and 0.0 < clip_norm < float("inf")):
            raise TrainingError("clip_norm is a finite number > 0, or None", repr(clip_norm), "pass e.g. 1.0")
        self.clip_norm = clip_norm
        self.accumulate = whole("Learner", "accumulate", accumulate, 1)
        self.ema: EMA | None = ema if ema is None or isinstance(ema, EMA) else EMA(model, ema)
        if not isinstance(jit, bool):
            raise TrainingError("jit is True or False", repr(jit), "pass one of the two")
        self.jit = jit
        self.precision = precision_of(precision, model, self.strategy.devices)
        self._own_step = step
        self._optimizers: Optimizers | None = None
        if step is not None:
            self._optimizers = optimizer if isinstance(optimizer, Optimizers) else Optimizers(model, {"optimizer": optimizer})
            check_own_step(step, self.precision, self.strategy)
        self.callbacks, self.metrics = checked(callbacks), named_metrics(metrics)
        self._readings = Readings(self.metrics, whole("Learner", "patience", patience, 1), self.precision, step is not None)
        self._stopping: str | None = None  # why ``fit`` ends after the running epoch
        self.interrupts = Interrupts()
        self._records = Records(self.out, events, record_every) if self.strategy.main else Records(None, None, None)
        self._progress = progress
        self.compiled: dict[str, Compiled] = {}
        self._told = ""  # what was last said of it
        self._validation: Evaluation | None = None

    def __repr__(self) -> str:
        names = [getattr(part, "__name__", type(part).__name__) for part in (self.model, self.optimizer, self.loss)]
        devices = ", ".join(d.name for d in self.strategy.devices)
        return f"Learner({', '.join(names)}, devices=[{devices}], epoch={self.epoch}, step={self.step})"

    # the public verbs

    @answers_arguments
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
            train_loader: Gives batches (inputs…, target). The loader itself is left as it is. A loader of PyTorch is taken as
                ``fb.data.from_torch`` makes it.
            valid_loader: Evaluated after each epoch; the epoch that does best on it is kept in ``best/``.
            epochs: Number of epochs in all.
            draw: Whether to draw the figures at the end.

        Returns:
            ``history``.

        Epochs that are done count: ``fit(…, epochs=2)`` twice trains 2 epochs, and the second call warns that nothing is left
        (``NothingTrainedWarning``); ``epochs=learner.epoch + 2`` trains 2 more.

        Raises:
            TrainingError: Model, loss, loaders or devices are incompatible, or the epoch was begun with other samples or in
                another order; raised before the first step.
            NonFiniteLossError: The loss became NaN or infinite. Checkpoints of earlier epochs stay.
            TrainingInterrupted: Ctrl-C or SIGTERM; the step was finished and a checkpoint written.
        """
        epochs = whole("fit", "epochs", epochs, 0)
        if not self._moves:
            check_alone()
        validation = "none" if valid_loader is None else "a loader"
        asked = {"epochs": epochs, "validation": validation, "jit": self.jit, **self._settings()}
        self.strategy.compare(
            {f"learner's {k}": v for k, v in description.of_settings(asked).items()}
            | {f"loss's {k}": v for k, v in self._loss_described().items()}
        )
        train = self._placed(train_loader)
        self._go_on_with(train)
        valid = None if valid_loader is None else self._beside(valid_loader)
        if valid is not None and valid.name == train.name:  # two names tell in messages which of both is meant
            valid.name = "validation"
        check_places(self.model, self.optimizer, [x for x in (train, valid) if x is not None], self.strategy)
        check_averages(self.ema, self.model)
        check_parameters(self.loss, self.model)
        if self.epoch >= epochs:
            settings.say_done(self.epoch, epochs)
        for holder in (self.optimizer, self.ema):
            bring(holder, self.strategy.devices[0])
        if self.epoch < epochs:
            with on_trial(self.model, self.loss):
                if self._own_step is not None:
                    check_pieces(train, self.strategy)
                else:
                    try_batch(self.model, self.loss, train, self.strategy, self.accumulate, self.metrics)
                if valid is not None:
                    try_validation(self.model, self.loss, valid, self.metrics)
                found = self.strategy.begin(Forward(self.loss), self.model, train)
            self._say(found)
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
                self._stopping = None
                self._tell("on_fit_begin")
                while self._goes_on(epochs):
                    try:
                        row = self._train_epoch(train, epochs, progress, interrupts)
                        row = self._finish_epoch(row, train, valid)
                    except BaseException:
                        self._keep_place(train)
                        raise
                    progress.end(row, epochs)
                    if self.callbacks:  # which must have asked the same on all ranks
                        self.strategy.compare({"a callback's request to stop": str(self._stopping)})
                    if self._goes_on(epochs) and self.strategy.agree(interrupts.pending):
                        self._settle()
                        raise TrainingInterrupted(self._checkpoint_path(), self.epoch, self.step)
                if self.epoch < epochs:
                    self._say(f"stopped after epoch {self.epoch} of {epochs}: {self._stopping}")
                self._tell("on_fit_end")
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
        step = self._compile("evaluation", EvaluationStep(self.model, self.loss, self.metrics))
        with self._averaged():
            return evaluated(
                step,
                self.model,
                self.loss,
                self._beside(loader),
                self.metrics,
                self.strategy if shared else None,
                self._batches,
            )

    def predict(self, *inputs: Tensor) -> Any:
        """The model's output for one batch, in evaluation mode and untracked.

        Args:
            inputs: First argument of the model, a tensor on its device.
        """
        if not inputs:
            raise TrainingError(
                "predict takes a batch of each of the model's inputs", "none", "call e.g. learner.predict(images)"
            )
        step = self._compile("prediction", Prediction(self.model))
        with evaluating(self.model), self._averaged():
            return step(inputs)

    def stop(self, reason: str = "asked to") -> None:
        """End a running ``fit`` after its epoch; for callbacks. ``fit`` returns as if that epoch had been the last.

        Args:
            reason: The text of the line of output.
        """
        self._stopping = reason

    def _goes_on(self, epochs: int) -> bool:
        return self.epoch < epochs and self._stopping is None

    def wait(self) -> None:
        """Wait for the checkpoint that is being written.

        Raises:
            CheckpointError: It could not be written.
        """
        self._settle()

    def _tell(self, event: str, *given: Any) -> None:
        """Call a method of all callbacks."""
        for callback in self.callbacks:
            getattr(callback, event)(self, *given)

    def _compile(self, name: str, step: Any) -> Compiled:
        """A step as graphs; those of before, if it is the same step."""
        found = self.compiled.get(name)
        if found is None or found.step != step or (found.reason == BY_REQUEST) is self.jit:
            found = self.compiled[name] = Compiled(name, step, self.strategy.compile(step) if self.jit else None)
        return found

    def _say_compiled(self) -> None:
        """Say how long compiling took, what was compiled often and what was not, if that is new."""
        steps = [c for c in self.compiled.values() if c.recompiles or c.reason not in (None, BY_REQUEST)]
        seconds = sum(c.seconds for c in steps)
        unusual = [str(c) for c in steps if c.traces > USUAL or not c.recompiles]
        line = "; ".join([*([f"compiled in {seconds:.2g} s"] if seconds else []), *unusual])
        if steps and line != self._told:
            self._told = line
            self._say(line)

    def _averaged(self) -> AbstractContextManager[None]:
        """The model with its averages for parameters, where there are any."""
        return nullcontext() if self.ema is None else self.ema.applied(checked=False)  # ranks may exchange them

    def resume(self, path: str | os.PathLike[str] | None = None) -> Checkpoint:
        """Take over everything a checkpoint holds; ``fit`` then goes on where it was made.

        A ``ResumeWarning`` lists what differs from what was saved, and which of both is used: this learner's ``clip_norm``,
        ``precision``, ``accumulate``, ``loss`` and plain settings of model and loss (``drop.p``), and the checkpoint's learning
        rate, optimizer settings and averages.

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
        own = resumed(found, self.metrics, self._own_step is not None)
        before = settings.optimizers(self.optimizer.state_dict(), self.ema)
        same_loss = (found.state.get("settings") or {}).get("loss") == self._settings()["loss"]
        load_loss = partial(self._loss_state.load, self.loss) if same_loss and "loss" in found.optimizer else None
        give_back(found, self.model, self.optimizer, self.ema, load_loss)
        if self.precision is not None:
            self.precision.load_state_dict(own.precision)
        self.strategy.load_state(own.strategy)
        self.epoch, self.step, self.history, self._best = own.epoch, own.step, History(own.history), own.best
        self.cursor, self._loader, self._metrics, self._resumed = own.cursor, own.loader, own.metrics, True
        if self._run is not None:
            self._run.adopt(found)
        notes = resume_callbacks(self.callbacks, found)
        settings.say_changes(found, self._settings(), self._parts(), before, self._loss_state.names(self.loss), notes)
        return found

    def save(self, path: str | os.PathLike[str], cursor: dict[str, Any] | None = None) -> Path:
        """Write a checkpoint of where training stands.

        Args:
            path: The checkpoint's directory.
            cursor: The training loader's cursor; by default the beginning of the next epoch.
        """
        self._settle()
        return write(self._snapshot(cursor), path)

    def _snapshot(self, cursor: dict[str, Any] | None) -> Snapshot:
        """All that a checkpoint of where training stands holds."""
        state = {
            "epoch": self.epoch,
            "step": self.step,
            "learning_rate": self.optimizer.learning_rate,
            **generators_of(self.model),
            "strategy": self.strategy.state(),
            "settings": self._settings(),
            "parts": self._parts(),
            "loader": self._loader,
            "cursor": cursor,
            "metrics": self._readings.measures.state() if cursor else None,
            "history": [asdict(row) for row in self.history],
            "best": None if self._best is None else asdict(self._best),
        }
        config = {"model_class": type(self.model).__name__, **self.config}
        optimizer = self.optimizer.state_dict()
        if self.ema is not None:
            optimizer["ema"] = self.ema.state_dict()
        if self.precision is not None:
            optimizer["precision"] = self.precision.state_dict()
        optimizer["loss"] = self._loss_state.state(self.loss)
        if states := states_of(self.callbacks):
            optimizer["callbacks"] = states
        return take_snapshot(model=self.model.state_dict(), optimizer=optimizer, state=state, config=config)

    def _settings(self) -> dict[str, Any]:
        return settings.learners(self.clip_norm, self.precision, self.accumulate, self.loss, self._own_step)

    def _parts(self) -> dict[str, description.Description]:
        """Classes and plain settings of model and loss."""
        return {"model": description.of_model(self.model), "loss": self._loss_described()}

    def _loss_described(self) -> description.Description:
        return {**description.of_loss(self.loss), **self._loss_state.settings(self.loss)}

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
        readings = self._readings
        measures, watch = readings.measures, readings.watch
        readings.begin()
        step = self._compile("training step", self._training_step())
        watching = [constant(w, bool_, strategy.devices[0]) for w in (False, True)]
        done = self._enter(train)
        batches = length_of(train)
        progress.begin(self.epoch + 1, epochs, batches, done)
        parameters = model.trainable_parameters()
        read_every = 1 if all(d.engine in HOST_ENGINES for d in strategy.devices) else _READ_EVERY
        samples = 0
        self._tell("on_epoch_begin")
        model.train()
        started = perf_counter()
        self._saved = started, self.step
        self._done = self.epoch, train.position
        self._updates = optimizer.step - self.step
        drawing = generators_for(model, self.loss, strategy.devices)
        for step_in_epoch, batch in enumerate(self._batches(train), 1):
            watched = step_in_epoch <= watch.patience
            watch.parameters(parameters)
            self._marks = [(g, g.mark()) for g in drawing]
            self._counters = [] if self._optimizers is None else self._optimizers.counters()
            with naming(batch), timeline.span(f"step {self.step + 1}", "train"):
                found: Stepped = step(watching[watched], batch)
            self.step += 1
            self._done, self._marks = (self.epoch, train.position), []
            done += 1
            samples += self._count(found, watched, batch)
            if self._run is not None:
                self._run.check()
            if step_in_epoch % read_every == 0:
                self._read()
            if progress.due():
                self._read()
                speed = samples / (perf_counter() - started)
                progress.step(done, measures.values(), speed)
            stop = strategy.agree(interrupts.pending)
            more = batches is None or done < batches
            save = strategy.agree_to_save(more and (interrupts.take_save() or self._checkpoint_due()))
            if more and (stop or save):
                self._read()
                strategy.check(model, optimizer, self.ema)
                self._loader = cursor = train.cursor()
                self._save_latest(cursor)
                if stop:
                    self._settle()
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
            metrics=_numbers(measures.further_values(), "train_"),
        )

    def _batches(self, loader: DataLoader) -> Iterator[Any]:
        """A loader's batches; where a signal to all processes of a run ended its workers too, the last are made here."""
        try:
            yield from loader
        except WorkerDiedError:
            if not self.interrupts.pending:
                raise
            loader.again()
            loader.num_workers = 0
            yield from loader

    def _keep_place(self, train: DataLoader) -> None:
        """After an exception within an epoch: another ``fit`` goes on after the last step that was done.

        A step that failed has changed nothing but where generators stand. One that Ctrl-C interrupted may be done: then the
        optimizer has counted it. With a loss scale, which leaves out updates, that does not show, and the batch is repeated.
        """
        epoch, position = self._done
        if epoch != self.epoch:
            return
        if self._marks and self._updated():
            self.step, position = self.step + 1, train.position
        else:
            for generator, mark in self._marks:
                generator.return_to(mark)
        self._marks = []
        if position:
            train.set_epoch(epoch)
            self.cursor, self._metrics = {**train.cursor(), "position": position}, self._readings.measures.state()

    def _updated(self) -> bool:
        """Whether the running step has updated parameters."""
        if self._optimizers is not None:
            return [int(t) for t in self._counters] != [int(t) for t in self._optimizers.counters()]
        counts = self.precision is None or self.precision.scaler is None
        return counts and bool(self.optimizer.step - self._updates == self.step + 1)

    def _training_step(self) -> TrainingStep | OwnStep:
        if self._own_step is not None:
            assert self._optimizers is not None
            return OwnStep(
                self.model, self._optimizers, self._own_step, self.strategy, self.clip_norm, self.ema, self.accumulate
            )
        return TrainingStep(
            self.model, self.optimizer, self.loss, self.strategy, self.clip_norm, self.ema, self.precision, self.accumulate,
            self.metrics,
        )  # fmt: skip

    def _checkpoint_due(self) -> bool:
        """Whether the last checkpoint within the epoch was long enough ago."""
        when, step = self._saved
        steps = self._checkpoint_steps
        if self._run is None:
            return False
        return perf_counter() - when > self._checkpoint_seconds or (steps is not None and self.step - step >= steps)

    def _go_on_with(self, train: DataLoader) -> None:
        """Bring a loader to where the run stands, before anything is trained; an epoch that was begun is refused another one's
        samples or order, and of other changes since a checkpoint is warned.

        Raises:
            TrainingError: See ``DataLoader.load_cursor``.
        """
        train.set_epoch(self.epoch)
        if self.cursor is not None:
            settings.enter(train, self.cursor)
        if self._resumed and self._loader is not None:
            settings.say_loader(self._loader, train)
        self._resumed = False

    def _enter(self, train: DataLoader) -> int:
        """Bring the loader to where this epoch starts; returns the batches that are done already."""
        cursor, metrics, self.cursor, self._metrics = self.cursor, self._metrics, None, None
        if cursor is None:
            train.set_epoch(self.epoch)
        elif metrics is not None:
            self._readings.measures.load_state(metrics)
        return train.position // train.batch_size

    def _count(self, found: Stepped, watched: bool, batch: Any) -> int:
        """Add a step to the readings; returns its number of samples."""
        return self._readings.count(found, self.step, batch, watched)

    def _read(self) -> None:
        """Read the numbers of the last steps, and tell of them; stop if a loss is NaN or infinite."""
        kept = f"; the last good epoch is in {self._checkpoint_path()}" if self.out and self.history else ""
        for step, values in self._readings.read(self.epoch + 1, self.optimizer.learning_rate, kept):
            self._records.step(step, self.epoch + 1, values)
            self._tell("on_step_end", step, values)

    def _finish_epoch(self, row: Epoch, train: DataLoader, valid: DataLoader | None) -> Epoch:
        self.strategy.check(self.model, self.optimizer, self.ema)
        if valid is not None:
            with timeline.span("validation", "train"):
                self._validation = found = self.evaluate(valid, shared=self._moves)
            values = {f"valid_{n}": getattr(found, n) for n in ("loss", "accuracy", "mse", "mae")}
            row = replace(row, **values, metrics={**row.metrics, **_numbers(found.metrics, "valid_")})
            self._tell("on_validation_end", found)
        row.show_to(self.optimizer)
        self.epoch += 1
        self.history.append(row)
        best = row.better_than(self._best)
        if best:
            self._best = row
        self._tell("on_epoch_end", row)
        if self.out is not None:
            train.set_epoch(self.epoch)
            self._loader = train.cursor()
            self._save_latest(None, best=best)
            history.append(self.out, self.history)
        self._records.epoch(row)
        return row

    # the run directory

    def _placed(self, loader: DataLoader) -> DataLoader:
        """The loader to train from: moved by a named strategy, else a copy, so that the caller's cursor stays."""
        loader = check_loader(loader)
        if not self._moves:
            return loader.to(loader.device)
        return self.strategy.place(self.model, self.optimizer, loader, self.ema)

    def _beside(self, loader: DataLoader) -> DataLoader:
        """A loader to evaluate: on the first device of a named strategy, else a copy."""
        loader = check_loader(loader)
        return loader.to(self.strategy.devices[0] if self._moves else loader.device)

    def _save_latest(self, cursor: dict[str, Any] | None, *, best: bool = False) -> None:
        """Begin to write the newest checkpoint."""
        if self._run is not None:
            self._run.save(self._snapshot(cursor), best=best)
            self._saved = perf_counter(), self.step
            self._tell("on_checkpoint", self._run.latest)

    def _settle(self) -> None:
        """Wait for the checkpoint that is being written."""
        if self._run is not None:
            self._run.wait()

    def _checkpoint_path(self) -> Path | None:
        return None if self._run is None else self._run.latest

    def _say(self, line: str) -> None:
        if self._log is not None and line:
            self._log(line)


def _numbers(metrics: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """The metrics that are one number, for the row of an epoch."""
    return {f"{prefix}{n}": float(v) for n, v in metrics.items() if np.ndim(v) == 0}
