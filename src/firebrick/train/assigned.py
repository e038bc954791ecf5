"""What is assigned to a learner's settings, by its constructor or later."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any

from firebrick.core.settings import whole
from firebrick.nn import Module
from firebrick.optim import EMA
from firebrick.train.callbacks import checked
from firebrick.train.errors import TrainingError
from firebrick.train.preflight import check_optimizer

_FIXED = frozenset({"model", "strategy", "precision", "metrics", "own_step"})
"""What other parts of a learner were made for."""


def _optimizer(model: Module, optimizer: Any) -> Any:
    check_optimizer(optimizer)
    return optimizer


def _loss(model: Module, loss: Any) -> Any:
    if not callable(loss):
        raise TrainingError(
            "the loss is a function of output and target, or a module", f"loss={loss!r:.80}", "pass e.g. nn.CrossEntropyLoss()"
        )
    return loss


def _clip_norm(model: Module, clip_norm: Any) -> Any:
    if clip_norm is not None and not (isinstance(clip_norm, Real) and 0.0 < float(clip_norm) < float("inf")):
        raise TrainingError("clip_norm is a finite number > 0, or None", repr(clip_norm), "pass e.g. 1.0")
    return clip_norm


def _jit(model: Module, jit: Any) -> bool:
    if not isinstance(jit, bool):
        raise TrainingError("jit is True or False", repr(jit), "pass one of the two")
    return jit


def _target(model: Module, target: Any) -> str | None:
    if target is not None and not isinstance(target, str):
        raise TrainingError("target is the key or field of the target, a text, or None", repr(target), 'pass e.g. "label"')
    return target


def _ema(model: Module, ema: Any) -> EMA | None:
    return ema if ema is None or isinstance(ema, EMA) else EMA(model, ema)


_SETTINGS: Mapping[str, Callable[[Module, Any], Any]] = {
    "optimizer": _optimizer,
    "loss": _loss,
    "clip_norm": _clip_norm,
    "jit": _jit,
    "target": _target,
    "accumulate": lambda model, n: whole("Learner", "accumulate", n, 1),
    "batches_per_step": lambda model, n: whole("Learner", "batches_per_step", n, 1),
    "ema": _ema,
    "callbacks": lambda model, given: checked(given),
}


def assigned(parts: Mapping[str, Any], name: str, value: Any) -> Any:
    """The value of an attribute of a learner, whose attributes so far are ``parts``, when it was checked.

    Raises:
        TrainingError: The value has no meaning, or the attribute stays as it is while ``fit`` runs, or for good.
    """
    made = parts.get("_state")  # None in the constructor
    fixed = name in _FIXED or (name == "optimizer" and parts.get("own_step") is not None)
    if made is not None and fixed:
        remedy = "make another Learner of the model and the optimizer"
        raise TrainingError(f"learner.{name} stays as it was made", f"{value!r:.60}", remedy)
    if made is not None and made.running and name in _SETTINGS:
        remedy = "call learner.stop(), and assign it when fit has returned: the next fit goes on with it"
        raise TrainingError(f"learner.{name} stays as it is while fit runs", f"{value!r:.60}", remedy)
    return _SETTINGS[name](parts["model"], value) if name in _SETTINGS else value
