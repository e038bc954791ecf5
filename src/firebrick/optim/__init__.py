"""Optimizers, learning-rate schedules, gradient clipping and averages of parameters."""

from typing import TYPE_CHECKING
from typing import Any as _Any

import firebrick.nn as _nn  # noqa: F401  before its parts
from firebrick.core.other_names import OPTIMIZERS as _NAMES
from firebrick.core.other_names import UnknownNameError as _UnknownNameError
from firebrick.optim.adam import Adam, AdamW
from firebrick.optim.adam_variants import Adamax, NAdam, RAdam
from firebrick.optim.adaptive import Adadelta, Adagrad, RMSprop
from firebrick.optim.clipping import clip_norm, clip_value
from firebrick.optim.ema import EMA
from firebrick.optim.lamb import LAMB, Lion
from firebrick.optim.lbfgs import LBFGS
from firebrick.optim.muon import Muon
from firebrick.optim.optimizer import Optimizer
from firebrick.optim.rates import (
    constant,
    cosine,
    cosine_restarts,
    exponential,
    linear,
    multi_step,
    one_cycle,
    one_cycle_momentum,
    polynomial,
    step,
)
from firebrick.optim.schedule import Schedule, product, reduce_on_plateau, sequential, warmup
from firebrick.optim.sgd import SGD

__all__ = [
    "EMA",
    "LAMB",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Schedule",
    "clip_norm",
    "clip_value",
    "constant",
    "cosine",
    "cosine_restarts",
    "exponential",
    "linear",
    "multi_step",
    "one_cycle",
    "one_cycle_momentum",
    "polynomial",
    "product",
    "reduce_on_plateau",
    "sequential",
    "step",
    "warmup",
]


if not TYPE_CHECKING:  # for which an unknown name is an error by itself

    def __getattr__(name: str) -> _Any:
        raise _UnknownNameError("module 'firebrick.optim'", name, _NAMES, __all__, "optim.{}")
