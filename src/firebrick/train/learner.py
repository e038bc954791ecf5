"""``Learner``: trains a model, epoch by epoch, and keeps everything a run needs to be looked at and gone on with.

A run that is resumed, at the end of an epoch or in the middle of one, gives the same bits as one that was never stopped:
parameters, the optimizer's state, the random generators, the loader's place and the metrics of the running epoch are all in
the checkpoint. ``loop`` has the epochs and steps, ``readings`` their numbers, ``snapshots`` the checkpoints.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from firebrick import random
from firebrick.core.dtypes import DType
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import python_settings, whole
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader
from firebrick.nn import Module
from firebrick.optim import EMA
from firebrick.random.generator import check_seed
from firebrick.train import figures
from firebrick.train.assigned import assigned
from firebrick.train.batches import check_call, inputs_of
from firebrick.train.callbacks import Callback, notify, notify_of
from firebrick.train.checkpoint import Checkpoint, write
from firebrick.train.claim import claimed
from firebrick.train.compiled import Compiled, compiled_in, line_of
from firebrick.train.default_loss import default_loss
from firebrick.train.errors import TrainingError
from firebrick.train.evaluation import Evaluation, evaluated, evaluating
from firebrick.train.history import Epoch
from firebrick.train.interrupt import Interrupts
from firebrick.train.loop import Loop, batches_until_stopped
from firebrick.train.loss_state import LossState
from firebrick.train.measures import named_metrics
from firebrick.train.metrics import Metric
from firebrick.train.optimizers import Optimizers, several
from firebrick.train.own_step import Minimizer, OwnStep, check_own_step
from firebrick.train.parallel import SingleDevice
from firebrick.train.precision import precision_of
from firebrick.train.preflight import check_learner, check_undivided
from firebrick.train.prepared import prepared, to_evaluate
from firebrick.train.progress import Progress, progress_for
from firebrick.train.readings import Readings
from firebrick.train.records import Records
from firebrick.train.run_state import RunState
from firebrick.train.rundir import RunDirectory
from firebrick.train.snapshots import Snapshots
from firebrick.train.steps import EvaluationStep, Prediction, TrainingStep
from firebrick.train.strategy import Strategy


class Learner:
    """Trains ``model`` with ``optimizer`` on the batches of loaders.

    Args:
        model: Called as ``model(*inputs)``, with the inputs of a batch (see ``target``).
        optimizer: Made for the model, such as ``optim.Adam(model, lr=1e-3)``; with ``step``, several by name, each made for a
            part of the model.
        loss: Called as ``loss(output, target)``; returns the mean over the batch, a floating tensor of one element. By default
            the cross entropy of integer labels; floating targets need a loss that is named.
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
        batches_per_step: Batches of the loader that make one step: its gradients are those of one batch with all their rows,
            and each batch draws random numbers of its own. The last step of an epoch takes the batches that are left.
            Checkpoints are made between two steps.
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
        target: Key or field of the target in batches that are dicts or dataclasses. The model gets the other entry, or the
            others by name where there are several. Without it, a batch is a tuple (inputs…, target), or anything else (a dict,
            a single tensor), which is input and target: ``loss(model(batch), batch)``.
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
        loss: Callable[[Any, Any], Tensor] = default_loss,
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
        batches_per_step: int = 1,
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
        target: str | None = None,
    ) -> None:
        device = check_learner(model, config, seconds=checkpoint_seconds)
        self.model, self.loss = model, loss
        self.optimizer = several(model, optimizer, step) if isinstance(optimizer, Mapping) else optimizer
        self.optimizers: Optimizers | None = None  # by name, of a step of the user's
        self.moves = strategy is not None
        self.strategy: Strategy = strategy if strategy is not None else SingleDevice(device)
        self._given_out = None if out is None else Path(out)
        self.out = self._given_out if self.strategy.main else None  # of several processes one writes
        self.config = dict(config or {})
        self.class_names = class_names
        self.clip_norm, self.jit, self.target = clip_norm, jit, target
        self.accumulate, self.batches_per_step = accumulate, batches_per_step
        self.ema: EMA | None = ema  # type: ignore[assignment]  # a decay makes one
        self.precision = precision_of(precision, model, self.strategy.devices)
        check_undivided(
            self.optimizer, self.strategy, accumulate=self.accumulate, batches_per_step=self.batches_per_step,
            clip_norm=clip_norm, scaled=self.precision is not None and self.precision.scaler is not None,
        )  # fmt: skip
        if step is not None:
            own = self.optimizer
            self.optimizers = own if isinstance(own, Optimizers) else Optimizers(model, {"optimizer": own})
            check_own_step(step, self.precision, self.strategy)
        self.own_step = step
        self.callbacks, self.metrics = callbacks, named_metrics(metrics)
        self.interrupts = Interrupts()
        self.progress = progress
        self.compiled: dict[str, Compiled] = {}
        self._log = log if self.strategy.main else None
        self._seed = None if seed is None else check_seed(seed)
        self._state = RunState()
        self._readings = Readings(self.metrics, whole("Learner", "patience", patience, 1), self.precision, step is not None)
        self._records = Records(self.out, events, record_every) if self.strategy.main else Records(None, None, None)
        keep = whole("Learner", "keep", keep, 1)
        steps = None if checkpoint_steps is None else whole("Learner", "checkpoint_steps", checkpoint_steps, 1)
        run = None if self.out is None else RunDirectory(self.out, keep)
        self._snapshots = Snapshots(self, self._state, run, LossState(model, loss), checkpoint_seconds, steps)
        self._shown = ""  # what was last written of what is compiled

    def __setattr__(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, assigned(self.__dict__, name, value))

    def __repr__(self) -> str:
        names = [getattr(part, "__name__", type(part).__name__) for part in (self.model, self.optimizer, self.loss)]
        devices = ", ".join(d.name for d in self.strategy.devices)
        return f"Learner({', '.join(names)}, devices=[{devices}], epoch={self.epoch}, step={self.step})"

    @property
    def history(self) -> list[Epoch]:
        """One ``Epoch`` for each finished epoch."""
        return self._state.history

    @property
    def epoch(self) -> int:
        """Finished epochs."""
        return self._state.epoch

    @property
    def step(self) -> int:
        """Finished steps."""
        return self._state.step

    @property
    def cursor(self) -> dict[str, Any] | None:
        """Where in its epoch the next ``fit`` goes on; None at its beginning."""
        return self._state.cursor

    @cursor.setter
    def cursor(self, cursor: dict[str, Any] | None) -> None:
        self._state.cursor = cursor

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
            train_loader: Gives batches (see ``target``). The loader itself is left as it is. A loader of PyTorch is taken as
                ``fb.data.from_torch`` makes it.
            valid_loader: Evaluated after each epoch; the epoch that does best on it is kept in ``best/``: that of the highest
                accuracy, and of equal ones or where there is none that of the lowest loss. Without it training's numbers count.
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
        state, run = self._state, self._snapshots.run
        if state.running:
            raise TrainingError(
                "a learner's fit is called when no other one runs",
                "a call within fit",
                "call learner.stop() there, and fit after it",
            )
        train, valid, found = prepared(self, state, self._snapshots, train_loader, valid_loader, epochs)
        self._say(found)
        if run is not None:
            run.open()
        if self._seed is not None and state.step == 0:
            random.seed(self._seed)
        progress = progress_for(self._log) if self.progress is None else self.progress
        loop = Loop(self, state, self._readings, self._records, self._snapshots, progress, epochs)
        training = self.model.training
        state.running = True
        try:
            with (
                claimed(self.out),
                self.interrupts,
                self._records.writing(state.step),
                nullcontext() if run is None else run.writing(),
            ):
                step = self._compile("training step", self._training_step())
                loop.run(step, train, None if valid is None else lambda: self.evaluate(valid, shared=self.moves))
                if state.epoch < epochs:
                    self._say(f"stopped after epoch {state.epoch} of {epochs}: {state.stopping}")
                notify(self, "on_fit_end")
        except BaseException as e:
            notify_of(self, e)
            raise
        finally:
            state.running = False
            state.stop(None)
            progress.close()
            train.close()
            self.model.train() if training else self.model.eval()
        line = line_of(self.compiled)
        if line != self._shown:
            self._shown = line
            self._say(line)
        if draw:
            self.draw(loop.validation)
        return self.history

    def evaluate(self, loader: DataLoader, *, shared: bool = False) -> Evaluation:
        """Mean loss, and accuracy and confusion matrix or errors, over a loader, in evaluation mode.

        Args:
            loader: Gives batches (see ``target``).
            shared: Whether the ranks of ``Distributed`` take its batches in turn and all get the result, as in ``fit``; all of
                them must call it then. Else a rank evaluates by itself.

        Raises:
            TrainingError: The loader is on another device and no strategy was named; or ranks that share have other models or
                other batches than each other.
        """
        step = self._compile("evaluation", EvaluationStep(self.model, self.loss, self.metrics, self.target))
        with self._averaged():
            return evaluated(
                step,
                self.model,
                self.loss,
                to_evaluate(self, loader),
                self.metrics,
                self.strategy if shared else None,
                lambda dealt: batches_until_stopped(dealt, self),
                self.target,
            )

    def predict(self, *inputs: Any, **named: Any) -> Any:
        """The model's output for one batch, in evaluation mode and untracked.

        Args:
            *inputs: The model's arguments. With ``target``, a dict or dataclass is one too, which may have the target or not.
            **named: The model's arguments by name.
        """
        if not inputs and not named:
            raise TrainingError(
                "predict takes a batch of each of the model's inputs", "none", "call e.g. learner.predict(images)"
            )
        given, by_name = inputs_of(inputs, self.target) if inputs else ((), {})
        step = self._compile("prediction", Prediction(self.model))
        try:
            with evaluating(self.model), self._averaged():
                return step(given, {**by_name, **named})
        except TypeError:
            check_call(self.model, given, {**by_name, **named}, self.target)
            raise

    def stop(self, reason: str = "asked to", *, lasting: bool = True) -> None:
        """End a running ``fit`` after its epoch; for callbacks. ``fit`` returns as if that epoch had been the last.

        Another ``fit`` goes on. After ``resume`` from a checkpoint that was made since the request, the first ``fit`` ends
        after that epoch too, and the next one goes on.

        Args:
            reason: The text of the line of output.
            lasting: Whether checkpoints keep the request. Not for a callback that has a state of its own and asks again in
                ``on_fit_begin``.
        """
        if self._state.running:
            self._state.stop(reason, lasting=lasting)

    def wait(self) -> None:
        """Wait for the checkpoint that is being written.

        Raises:
            CheckpointError: It could not be written.
        """
        self._snapshots.wait()

    def _compile(self, name: str, step: Any) -> Compiled:
        """A step as graphs; those of before, if it is the same step."""
        return compiled_in(self.compiled, name, step, self.strategy if self.jit else None)

    def _averaged(self) -> AbstractContextManager[None]:
        """The model with its averages for parameters, where there are any."""
        return nullcontext() if self.ema is None else self.ema.applied(checked=False)  # ranks may exchange them

    def resume(self, path: str | os.PathLike[str] | None = None) -> Checkpoint:
        """Take over everything a checkpoint holds; ``fit`` then goes on where it was made.

        A ``ResumeWarning`` lists what differs from what was saved, and which of both is used: this learner's ``clip_norm``,
        ``precision``, ``accumulate``, ``batches_per_step``, ``loss`` and plain settings of model and loss (``drop.p``), and the
        checkpoint's learning rate, optimizer settings and averages.

        Args:
            path: A checkpoint or a run directory; the learner's own run directory if None.

        Raises:
            CheckpointError: There is none, it is damaged, of a newer format, or of another model.
            StateError: It is of another kind of optimizer, or of a version that kept another state; the model stays as it was.
        """
        goal = self._given_out if path is None else Path(path)
        if goal is None:
            raise TrainingError("resume needs a checkpoint", "no path, and a learner without run directory", "pass the path")
        return self._snapshots.resume(goal)

    def load_best(self) -> Checkpoint:
        """Give the model, and averages of its parameters, the values of the epoch that did best, from the run directory.

        Best is as ``fit`` says, by accuracy and then loss; ``EarlyStopping`` goes by the number that it monitors, so its best
        epoch may be another one. The optimizer, the history and the place in the run stay as they are.

        Returns:
            The checkpoint of that epoch.

        Raises:
            TrainingError: There is no run directory, or that epoch has averages of the parameters and the learner has none.
            CheckpointError: No epoch was finished in it, or the checkpoint is damaged.
        """
        return self._snapshots.load_best()

    def save(self, path: str | os.PathLike[str], cursor: dict[str, Any] | None = None) -> Path:
        """Write a checkpoint of where training stands.

        Args:
            path: The checkpoint's directory.
            cursor: The training loader's cursor; by default the beginning of the next epoch.
        """
        self._snapshots.wait()
        return write(self._snapshots.take(cursor, self._readings.measures.state()), path)

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

    def _training_step(self) -> TrainingStep | OwnStep:
        if self.own_step is not None:
            assert self.optimizers is not None
            return OwnStep(
                self.model, self.optimizers, self.own_step, self.strategy, self.clip_norm, self.ema, self.accumulate,
                self.batches_per_step,
            )  # fmt: skip
        return TrainingStep(
            self.model, self.optimizer, self.loss, self.strategy, self.clip_norm, self.ema, self.precision, self.accumulate,
            self.metrics, self.target, self.batches_per_step,
        )  # fmt: skip

    def _say(self, line: str) -> None:
        if self._log is not None and line:
            self._log(line)
