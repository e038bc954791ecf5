"""Training: the learner, its strategies and metrics, and checkpoints that a run resumes from bit for bit."""

import firebrick.data as _data  # noqa: F401  before its parts
import firebrick.distributed as _distributed  # noqa: F401  before its parts
import firebrick.optim as _optim  # noqa: F401  before its parts
from firebrick.train.batches import BatchGroup
from firebrick.train.callbacks import Callback, EarlyStopping
from firebrick.train.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from firebrick.train.cluster import Cluster, Worker
from firebrick.train.compiled import Compiled
from firebrick.train.errors import (
    CheckpointError,
    DamagedCheckpointError,
    DamagedCheckpointWarning,
    EagerTrainingWarning,
    FrozenTrainingWarning,
    LossScaleWarning,
    NonFiniteLossError,
    NothingTrainedWarning,
    ResumeWarning,
    TrainingError,
    TrainingInterrupted,
    UndefinedMetricWarning,
    WorkerError,
)
from firebrick.train.evaluation import Evaluation, evaluate
from firebrick.train.figures import draw_confusion, draw_curves
from firebrick.train.history import Epoch
from firebrick.train.learner import Learner
from firebrick.train.loggers import CSVLogger, EventFileLogger, JSONLinesLogger
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
from firebrick.train.own_step import Minimizer
from firebrick.train.parallel import DataParallel, Distributed, SingleDevice, together
from firebrick.train.precision import LossScaler
from firebrick.train.services import MLflowLogger, WandbLogger
from firebrick.train.strategy import Share, Strategy, parts_of

__all__ = [
    "AUROC",
    "F1",
    "Accuracy",
    "AveragePrecision",
    "BatchGroup",
    "CSVLogger",
    "Callback",
    "Checkpoint",
    "CheckpointError",
    "Cluster",
    "Compiled",
    "ConfusionMatrix",
    "DamagedCheckpointError",
    "DamagedCheckpointWarning",
    "DataParallel",
    "Distributed",
    "EagerTrainingWarning",
    "EarlyStopping",
    "Epoch",
    "Evaluation",
    "EventFileLogger",
    "FrozenTrainingWarning",
    "JSONLinesLogger",
    "Learner",
    "Loss",
    "LossScaleWarning",
    "LossScaler",
    "MLflowLogger",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "Minimizer",
    "NonFiniteLossError",
    "NothingTrainedWarning",
    "Perplexity",
    "Precision",
    "R2Score",
    "Recall",
    "ResumeWarning",
    "Share",
    "SingleDevice",
    "Strategy",
    "TopKAccuracy",
    "TrainingError",
    "TrainingInterrupted",
    "UndefinedMetricWarning",
    "WandbLogger",
    "Worker",
    "WorkerError",
    "draw_confusion",
    "draw_curves",
    "evaluate",
    "load_checkpoint",
    "parts_of",
    "save_checkpoint",
    "settle",
    "together",
]
