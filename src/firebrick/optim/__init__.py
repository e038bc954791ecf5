"""Optimizers and learning-rate schedules."""

from firebrick.optim.adam import Adam, AdamW
from firebrick.optim.optimizer import Optimizer
from firebrick.optim.schedule import Schedule, constant, cosine
from firebrick.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Optimizer", "Schedule", "constant", "cosine"]
