"""Metrics that are right over uneven batches: of classes, of rankings, of numbers, and of losses."""

from firebrick.train.metrics.classification import F1, Accuracy, ConfusionMatrix, Precision, Recall, TopKAccuracy
from firebrick.train.metrics.loss import Loss, Perplexity
from firebrick.train.metrics.metric import Metric, classes_of, settle
from firebrick.train.metrics.ranking import AUROC, AveragePrecision
from firebrick.train.metrics.regression import MeanAbsoluteError, MeanSquaredError, R2Score

__all__ = [
    "AUROC",
    "F1",
    "Accuracy",
    "AveragePrecision",
    "ConfusionMatrix",
    "Loss",
    "MeanAbsoluteError",
    "MeanSquaredError",
    "Metric",
    "Perplexity",
    "Precision",
    "R2Score",
    "Recall",
    "TopKAccuracy",
    "classes_of",
    "settle",
]
