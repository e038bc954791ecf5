"""Training: the learner, its strategies and metrics, and checkpoints that a run resumes from bit for bit."""

from firebrick.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from firebrick.train.compiled import Compiled
from firebrick.train.errors import (
    CheckpointError,
    EagerTrainingWarning,
    FrozenTrainingWarning,
    NonFiniteLossError,
    TrainingError,
    TrainingInterrupted,
    UndefinedMetricWarning,
)
from firebrick.train.evaluation import Evaluation, evaluate
from firebrick.train.figures import draw_confusion, draw_curves
from firebrick.train.history import Epoch
from firebrick.train.learner import Learner
from firebrick.train.metrics import (
    AUROC,
    F1,
    Accuracy,
    AveragePrecision,
    ConfusionMatrix,
    Loss,
    MeanAbsoluteError,
    MeanSquaredError,
    Metric,
    Perplexity,
    Precision,
    R2Score,
    Recall,
    TopKAccuracy,
    settle,
)
from firebrick.train.strategy import Share, SingleDevice, Strategy

__all__ = [
    "AUROC",
    "F1",
    "Accuracy",
    "AveragePrecision",
    "Checkpoint",
    "CheckpointError",
    "Compiled",
    "ConfusionMatrix",
    "EagerTrainingWarning",
    "Epoch",
    "Evaluation",
    "FrozenTrainingWarning",
    "Learner",
    "Loss",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "NonFiniteLossError",
    "Perplexity",
    "Precision",
    "R2Score",
    "Recall",
    "Share",
    "SingleDevice",
    "Strategy",
    "TopKAccuracy",
    "TrainingError",
    "TrainingInterrupted",
    "UndefinedMetricWarning",
    "draw_confusion",
    "draw_curves",
    "evaluate",
    "load_checkpoint",
    "save_checkpoint",
    "settle",
]
