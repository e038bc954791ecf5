"""A plain description of what decides a run's results besides values: classes and settings, by path.

Ranks compare it when they first meet, and a checkpoint keeps it, so that what differs can be named. A description is texts by
path (``layers.2.p``: ``0.5``): JSON holds it, and two of them are compared entry by entry.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np

from firebrick.backends.dispatch import read
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.tensor import Tensor
from firebrick.nn import Buffer, Module, Parameter
from firebrick.random import Generator

Description = dict[str, str]
_LONG = 120  # characters of a setting that are kept as they are
_STATE = (Parameter, Buffer, Module, Generator)  # parts with an entry or a state of their own


def of_model(model: Module, shapes: bool = False) -> Description:
    """Classes, plain attributes and frozen parameters of a model.

    Args:
        model: The model. Modes are left out, and so are attributes that its class, or one that it derives from, lists as
            ``unwatched``.
        shapes: Whether to add dtype and shape of each parameter and buffer.
    """
    found: Description = {}
    for path, module in model.modules():
        found[path or "class"] = type(module).__qualname__
        skipped = {"training", "_forward_hooks", *(n for c in type(module).__mro__ for n in vars(c).get("unwatched", ()))}
        for name, value in vars(module).items():
            text = None if name in skipped else _text(value)
            if text is not None:
                found[f"{path}.{name}" if path else name] = text
    for name, p in model.named_parameters():
        found[name] = "frozen" if p.frozen else "trainable"
    if shapes:
        found |= {f"{n} holds": _facts(t) for n, t in [*model.named_parameters(), *model.named_buffers()]}
    return found


def of_loss(loss: Any) -> Description:
    """Class or name, plain attributes and enclosed values of a loss: a module, a function or any object that is called."""
    if isinstance(loss, Module):
        return of_model(loss)
    function = loss
    while isinstance(function, partial):
        function = function.func
    if isinstance(function, Module):
        return {**of_model(function), **_texts(held_by(loss))}
    name = _name(function) if hasattr(function, "__code__") else type(function).__qualname__
    return {"class": name, **_texts(held_by(loss))}


def held_by(loss: Any) -> dict[str, Any]:
    """What a loss that is no module holds, by name: given and enclosed values, and attributes of an object."""
    if isinstance(loss, partial):
        return {**held_by(loss.func), **{str(i): a for i, a in enumerate(loss.args)}, **loss.keywords}
    if isinstance(loss, Module):  # within a partial
        return {"func": loss}
    if hasattr(loss, "__code__"):
        return {**_enclosed(loss), **({"self": loss.__self__} if hasattr(loss, "__self__") else {})}
    return dict(getattr(loss, "__dict__", {}))


def of_settings(found: Mapping[str, Any]) -> Description:
    """Settings by name."""
    return _texts(found)


def listed(rows: list[str], most: int = 8) -> str:
    """The first of many differences."""
    return "; ".join(rows[:most]) + (f"; and {len(rows) - most} more" if len(rows) > most else "")


def _texts(found: Mapping[str, Any]) -> Description:
    return {str(k): text for k, v in found.items() if (text := _text(v)) is not None}


def _enclosed(function: Callable[..., Any]) -> dict[str, Any]:
    """The values that a function has of its surroundings and as its defaults."""
    code, cells = function.__code__, function.__closure__ or ()
    given = function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(given) :]
    found = {**dict(zip(names, given, strict=True)), **(function.__kwdefaults__ or {})}
    for name, cell in zip(code.co_freevars, cells, strict=True):
        try:
            found[name] = cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    return found


def _name(of: Any) -> str:
    return str(getattr(of, "__qualname__", type(of).__qualname__))


def _facts(t: Tensor) -> str:
    return f"{t.dtype}{list(t.shape)}"


def _text(value: Any) -> str | None:
    """A setting as text; None for what holds parts, which have entries of their own, and for devices."""
    if isinstance(value, (list, tuple, set, frozenset, Mapping)) and _holds_parts(value):
        return None
    text = _shown(value)
    if text is None or len(text) <= _LONG:
        return text
    return f"{text[:_LONG]}… (sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})"


def _holds_parts(value: Any) -> bool:
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple, set, frozenset)):
        return isinstance(value, _STATE)
    return any(_holds_parts(v) for v in value)


def _shown(value: Any) -> str | None:
    if isinstance(value, (*_STATE, Device)):
        return None
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # 0.0 and 0 are one setting
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if isinstance(value, DType):
        return value.name
    if isinstance(value, (list, tuple)):
        return f"({', '.join(str(_shown(v)) for v in value)})"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{k}: {_shown(v)}' for k, v in value.items())}}}"
    if isinstance(value, (set, frozenset)):
        return f"{{{', '.join(sorted(str(_shown(v)) for v in value))}}}"
    if isinstance(value, Tensor):
        return _shown(read([value.detach()])[0])
    if isinstance(value, np.ndarray):
        rounded = ",".join(f"{v:.4g}" if value.dtype.kind in "fc" else str(v) for v in value.ravel().tolist())
        shown = rounded if len(rounded) <= _LONG // 2 else f"sha256 {hashlib.sha256(rounded.encode()).hexdigest()[:12]}"
        return f"{value.dtype}{list(value.shape)} of {shown}"
    if is_dataclass(value) and not isinstance(value, type):
        return f"{_name(value)}({', '.join(f'{f.name}={_shown(getattr(value, f.name))}' for f in fields(value))})"
    return _name(value)
