"""What can go wrong in a training run."""

from __future__ import annotations

from pathlib import Path

from firebrick.core.errors import FirebrickError


class TrainingError(FirebrickError, ValueError):
    """A run cannot start, or does not support a call; the message reports what to change."""


class WorkerError(FirebrickError, RuntimeError):
    """A training function raised on a worker of a cluster, or its workers went on being lost."""


class NonFiniteLossError(FirebrickError, ArithmeticError):
    """The loss became NaN or infinite, so every further step would be lost."""


def not_finite(what: str, received: str, step: int, epoch: int, rate: float, kept: str = "") -> NonFiniteLossError:
    """The error of a loss, or a norm of gradients, that became NaN or infinite; ``received`` is continued within brackets."""
    within = f"{received}epoch {epoch})" if received.endswith("(") else f"{received}, epoch {epoch})"
    return NonFiniteLossError(
        f"the {what} must stay finite",
        f"{within}, learning rate {rate:g}",
        f"lower the learning rate or check the data; fb.detect_anomaly() names the operation that made the first NaN{kept}",
        step=step,
        epoch=epoch,
    )


class CheckpointError(FirebrickError, ValueError):
    """A checkpoint is missing, damaged, of a newer format or of another model, or cannot be written."""


class DamagedCheckpointError(CheckpointError):
    """A file of a checkpoint is missing, cut or changed."""

    @property
    def folder(self) -> Path:
        """The checkpoint that is damaged."""
        found: Path = self.context["folder"]
        return found


class DamagedCheckpointWarning(UserWarning):
    """A damaged checkpoint was passed over, and the one before it is used."""


class FrozenTrainingWarning(UserWarning):
    """A value that should change in every step did not change in several."""


class EagerTrainingWarning(UserWarning):
    """A step cannot be traced into a graph, and runs eagerly."""


class LossScaleWarning(UserWarning):
    """Gradients overflow float16 at every scale of the loss."""


class ResumeWarning(UserWarning):
    """A run goes on with other settings, data or batches than it was saved with; the message lists both."""


class NothingTrainedWarning(UserWarning):
    """``fit`` was called for epochs that are already trained, or a callback stopped it before the first one."""


class UndefinedMetricWarning(UserWarning):
    """A metric has no value for the samples it was given, and is NaN."""


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM came; the step was finished and the run saved.

    Attributes:
        checkpoint: Where it was saved, or None without a run directory.
        epoch: The epoch it stopped in, from 1.
        step: Steps done in all.
    """

    def __init__(self, checkpoint: Path | None, epoch: int, step: int) -> None:
        self.checkpoint, self.epoch, self.step = checkpoint, epoch, step
        saved = f"saved in {checkpoint}" if checkpoint else "not saved: the learner has no run directory"
        super().__init__(f"stopped in epoch {epoch} after step {step}; {saved}")
