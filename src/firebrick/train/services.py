"""``MLflowLogger`` and ``WandbLogger``: loggers to services that follow experiments.

Their packages are imported when training begins. A run that is resumed goes on with the same run of the service: rows of
steps that are done again are left out where they are there already. With several ranks the main one writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from time import time
from typing import TYPE_CHECKING, Any

from firebrick.core.errors import ConfigError, UnsupportedError
from firebrick.train.callbacks import Callback
from firebrick.train.errors import TrainingInterrupted
from firebrick.train.history import Epoch
from firebrick.train.loggers import every_nth, numbers_of

if TYPE_CHECKING:
    from firebrick.train.learner import Learner


class MLflowLogger(Callback):
    """Logs to a run of MLflow: the numbers of each epoch and of every n-th step as metrics, ``learner.config`` as parameters.

    A checkpoint keeps the run's id, so a resumed learner goes on with the same run.

    Args:
        experiment: Name of the experiment, which is made if it is not there.
        name: Name of the run; MLflow makes one up if None.
        tracking_uri: Where MLflow keeps its data; what it is set to if None.
        every: Steps between two logged steps; None logs epochs alone.
        run_id: A run to go on with.

    Attributes:
        run_id: The run; None before training has begun.

    Raises:
        UnsupportedError: MLflow is not installed.
        ConfigError: ``every`` is no whole number of at least 1.

    Example:
        >>> from firebrick.core.errors import UnsupportedError
        >>> from firebrick.train import MLflowLogger
        >>> try:
        ...     logger = MLflowLogger("digits", tracking_uri="sqlite:///runs.db", every=10)
        ... except UnsupportedError as e:  # where it is not installed
        ...     assert "pip install mlflow" in e.remedy
    """

    def __init__(
        self,
        experiment: str = "Default",
        *,
        name: str | None = None,
        tracking_uri: str | None = None,
        every: int | None = None,
        run_id: str | None = None,
    ) -> None:
        self._mlflow = _installed("MLflowLogger", "mlflow")
        self.experiment, self.name, self.tracking_uri = experiment, name, tracking_uri
        self.every, self.run_id = every_nth("MLflowLogger", every), run_id
        self._client: Any = None
        self._logged = 0  # the last step that the run has numbers of
        self._epochs = 0  # likewise of epochs

    def on_fit_begin(self, learner: Learner) -> None:
        """Begin a run, or go on with one."""
        if not learner.strategy.main:
            return
        self._client = self._mlflow.MlflowClient(tracking_uri=self.tracking_uri)
        if self.run_id is None:
            found = self._client.get_experiment_by_name(self.experiment)
            of = self._client.create_experiment(self.experiment) if found is None else found.experiment_id
            self.run_id = self._client.create_run(of, run_name=self.name).info.run_id
            parameters = [self._mlflow.entities.Param(k, str(v)) for k, v in learner.config.items()]
            if parameters:
                self._client.log_batch(self.run_id, params=parameters)
        else:
            self._client.update_run(self.run_id, status="RUNNING")
            self._logged, self._epochs = (self._last("loss"), self._last("train_loss"))

    def _last(self, key: str) -> int:
        """The last step of a metric of the run."""
        return max((int(m.step) for m in self._client.get_metric_history(self.run_id, key)), default=0)

    def on_step_end(self, learner: Learner, step: int, values: Mapping[str, float]) -> None:
        """Log the step, if it is the n-th and the run has not logged it before."""
        if self._client is not None and self.every is not None and step % self.every == 0 and step > self._logged:
            self._log(values, step)

    def on_epoch_end(self, learner: Learner, row: Epoch) -> None:
        """Log the epoch, if the run has not logged it before."""
        if self._client is not None and row.step > self._epochs:
            self._log(numbers_of(row), row.step)

    def _log(self, values: Mapping[str, float], step: int) -> None:
        now = int(time() * 1000)
        metrics = [self._mlflow.entities.Metric(n, float(v), now, step) for n, v in values.items()]
        self._client.log_batch(self.run_id, metrics=metrics)

    def on_fit_end(self, learner: Learner) -> None:
        """End the run; another ``fit`` goes on with it."""
        self._end("FINISHED")

    def on_exception(self, learner: Learner, error: BaseException) -> None:
        """End the run as killed or failed; another ``fit`` goes on with it."""
        self._end("KILLED" if isinstance(error, KeyboardInterrupt | TrainingInterrupted) else "FAILED")

    def _end(self, status: str) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.set_terminated(self.run_id, status=status)

    def state(self) -> dict[str, Any]:
        """The run's id."""
        return {} if self.run_id is None else {"run_id": self.run_id}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on with the run of ``state()``."""
        self.run_id = _text(state["run_id"])


class WandbLogger(Callback):
    """Logs to a run of Weights & Biases: the numbers of each epoch and of every n-th step, and ``learner.config``.

    A checkpoint keeps the run's id, so a resumed learner goes on with the same run. In offline mode the package does not know
    which steps a run has, so those that are done again are logged again.

    Args:
        project: Name of the project.
        name: Name of the run; the service makes one up if None.
        every: Steps between two logged steps; None logs epochs alone.
        run_id: A run to go on with.
        options: Further arguments of ``wandb.init`` by name, such as ``{"mode": "offline"}``.

    Attributes:
        run_id: The run; None before training has begun.

    Raises:
        UnsupportedError: wandb is not installed.
        ConfigError: ``every`` is no whole number of at least 1, or an option is an argument of this class.

    Example:
        >>> from firebrick.core.errors import UnsupportedError
        >>> from firebrick.train import WandbLogger
        >>> try:
        ...     logger = WandbLogger("digits", every=10, options={"mode": "offline"})
        ... except UnsupportedError as e:  # where it is not installed
        ...     assert "pip install wandb" in e.remedy
    """

    def __init__(
        self,
        project: str,
        *,
        name: str | None = None,
        every: int | None = None,
        run_id: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._wandb = _installed("WandbLogger", "wandb")
        self.project, self.name, self.options = project, name, dict(options or {})
        self.every, self.run_id = every_nth("WandbLogger", every), run_id
        if taken := sorted(self.options.keys() & {"project", "name", "id", "resume", "config"}):
            raise ConfigError(
                "WandbLogger: options are further arguments of wandb.init",
                ", ".join(taken),
                "pass project, name and run_id to WandbLogger, and config to Learner",
            )
        self._run: Any = None
        self._first = self._epochs = 0

    def on_fit_begin(self, learner: Learner) -> None:
        """Begin a run, or go on with one."""
        if learner.strategy.main and self._run is None:
            self._run = self._wandb.init(
                project=self.project, name=self.name, id=self.run_id, resume="allow", config=learner.config, **self.options
            )
            self.run_id = self._run.id
            self._first = int(self._run.step)  # steps before are there already
            self._epochs = int(self._run.summary.get("epoch") or 0)

    def on_step_end(self, learner: Learner, step: int, values: Mapping[str, float]) -> None:
        """Log the step, if it is the n-th and the run has not logged it before."""
        if self._run is not None and self.every is not None and step % self.every == 0 and step >= self._first:
            self._run.log(dict(values), step=step)

    def on_epoch_end(self, learner: Learner, row: Epoch) -> None:
        """Log the epoch, if the run has not logged it before."""
        if self._run is not None and row.epoch > self._epochs:
            self._run.log({"epoch": row.epoch, **numbers_of(row)}, step=max(row.step, self._first))

    def on_fit_end(self, learner: Learner) -> None:
        """End the run; another ``fit`` goes on with it."""
        self._end(0)

    def on_exception(self, learner: Learner, error: BaseException) -> None:
        """End the run as crashed; another ``fit`` goes on with it."""
        self._end(1)

    def _end(self, exit_code: int) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.finish(exit_code=exit_code)

    def state(self) -> dict[str, Any]:
        """The run's id."""
        return {} if self.run_id is None else {"run_id": self.run_id}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on with the run of ``state()``."""
        self.run_id = _text(state["run_id"])


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} instead of a text")
    return value


def _installed(who: str, module: str) -> Any:
    try:
        return import_module(module)
    except ImportError as e:
        raise UnsupportedError(f"{who} logs by the package {module}", str(e), f"pip install {module}") from e
