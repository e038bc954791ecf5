"""Parameter groups: parts of a model that are updated with settings of their own.

A group is written as a dict: ``params`` says which parameters it takes, the other keys what is different for them. Every
parameter belongs to the first group that takes it, and to the optimizer's own settings if none does. A tied parameter is
taken by any of its names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from firebrick.core.errors import ConfigError
from firebrick.ir.keys import key_of
from firebrick.nn import Module, Parameter
from firebrick.optim.restoring import check_scale
from firebrick.optim.schedule import Schedule, check_fields, from_state, schedule, to_state

Rows = Sequence[Mapping[str, Any]]


@dataclass(slots=True)
class Group:
    """Parameters that are updated with the same settings.

    Attributes:
        names: Names of the parameters.
        settings: The optimizer's settings for them.
        schedule: Their learning rate; None follows the optimizer's.
        lr_scale: Factor on the optimizer's learning rate.
    """

    names: tuple[str, ...]
    settings: Any
    schedule: Schedule | None = None
    lr_scale: float = 1.0


def make_groups(
    kind: str, parameters: Sequence[tuple[str, Parameter]], aliases: Mapping[str, str], settings: Any, rows: Any,
    check: Callable[[Any], None],
) -> list[Group]:  # fmt: skip
    """The groups of an optimizer; the first holds the parameters that no row takes.

    Args:
        kind: The optimizer's name, for errors.
        parameters: All of its parameters, by name.
        aliases: Further names of tied parameters, each with the name among ``parameters``.
        settings: Its own settings, a dataclass.
        rows: Dicts with ``params`` and any of ``lr``, ``lr_scale`` and the settings' names.
        check: Raises for settings without meaning.

    Raises:
        ConfigError: A row is no such dict, takes no parameter, or names one that is not there; or two rows take a tied
            parameter, each by another of its names.
    """
    if isinstance(rows, Mapping) or not isinstance(rows, Sequence):
        raise ConfigError(
            f"{kind}: groups is a list of dicts", type(rows).__name__, 'pass e.g. [{"params": "*.bias", "lr": 0.1}]'
        )
    check_flags(kind, settings)
    check(settings)
    left = list(parameters)
    names = {n: [n, *(other for other, first in aliases.items() if first == n)] for n, _ in parameters}
    taken_by: dict[str, tuple[int, set[str]]] = {}
    made: list[Group] = []
    known = [f.name for f in fields(settings)]
    for i, row in enumerate(rows):
        where = f"{kind}: groups[{i}]"
        if not isinstance(row, Mapping) or "params" not in row:
            received = f"no params among {', '.join(row)}" if isinstance(row, Mapping) else type(row).__name__
            raise ConfigError(
                f"{where} is a dict with params", received, 'add e.g. "params": "*.bias", a module, or a list of parameters'
            )
        own = {k: v for k, v in row.items() if k not in ("params", "lr", "lr_scale")}
        if unknown := [k for k in own if k not in known]:
            raise ConfigError(
                f"{where} holds params, lr, lr_scale, {', '.join(known)}", f"unknown: {', '.join(unknown)}", "correct the name"
            )
        scale = row.get("lr_scale", 1.0)
        if isinstance(scale, bool) or not isinstance(scale, (int, float)) or not 0.0 <= scale < float("inf"):
            raise ConfigError(f"{where}: lr_scale is a finite number ≥ 0", repr(scale), "pass e.g. 0.1")
        if "lr" in row and "lr_scale" in row:
            raise ConfigError(f"{where} has a rate of its own or scales the optimizer's", "lr and lr_scale", "give one of them")
        takes = _selection(where, row["params"], parameters, [n for known in names.values() for n in known])
        fitting = {n: {name for name in names[n] if takes(name, p)} for n, p in parameters}
        taken = [(n, p) for n, p in left if fitting[n]]
        for n, found in fitting.items():
            first, theirs = taken_by.setdefault(n, (i, found)) if found else (i, found)
            if not theirs & found and found:
                raise ConfigError(
                    f"{kind}: a tied parameter is in one group, whichever of its names is used",
                    f"groups[{first}] takes {', '.join(sorted(theirs))}, and groups[{i}] {', '.join(sorted(found))}, "
                    "which is the same parameter",
                    "leave it out of one of them, or pass the group that it is to be in as parameters: "
                    '{"params": [model.part.weight]}',
                )
        if not taken:
            raise ConfigError(
                f"{where} takes at least one parameter that no group before it took",
                f"params={row['params']!r:.80}; left are {', '.join(n for n, _ in left[:8]) or 'none'}",
                "correct params, or leave the group out",
            )
        left = [(n, p) for n, p in left if not fitting[n]]
        changed = replace(settings, **own)
        check_flags(kind, changed)
        check(changed)
        rate = schedule(row["lr"]) if "lr" in row else None
        made.append(Group(tuple(n for n, _ in taken), changed, rate, float(scale)))
    return [Group(tuple(n for n, _ in left), settings), *made]


def check_flags(kind: str, settings: Any) -> None:
    """Raise ConfigError unless the settings that are flags are bools: any text, and NaN, would be true."""
    for f in fields(settings):
        value = getattr(settings, f.name)
        if f.type in (bool, "bool") and not isinstance(value, (bool, np.bool_)):
            raise ConfigError(f"{kind}: {f.name} is True or False", f"{f.name}={value!r:.80}", "pass a bool")


def plain_settings(settings: Any) -> tuple[Any, ...] | None:
    """Settings by value, for a key; None if one of them is no number, flag, text or tuple of these: a schedule, which is a
    function."""
    values = [getattr(settings, f.name) for f in fields(settings)]
    return key_of(values) if all(map(_is_plain, values)) else None


def _is_plain(value: Any) -> bool:
    if type(value) in (tuple, list):
        return all(map(_is_plain, value))
    return value is None or type(value) in (bool, int, float, str)


def _selection(
    where: str, given: Any, parameters: Sequence[tuple[str, Parameter]], names: Sequence[str]
) -> Callable[[str, Parameter], bool]:  # fmt: skip
    """What ``params`` of a group takes, as a function of name and parameter; each part of it fits some of ``parameters``, or
    of their ``names``."""
    if isinstance(given, str):
        given = [given]
    if isinstance(given, Module):
        given = given.parameters()
    if isinstance(given, Parameter):
        given = [given]
    if isinstance(given, (list, tuple)) and given:
        if all(isinstance(g, str) for g in given):
            patterns = list(given)
            if idle := [p for p in patterns if not any(fnmatchcase(name, p) for name in names)]:
                raise ConfigError(
                    f"{where}: each name pattern fits a parameter",
                    f"{', '.join(map(repr, idle))}; the parameters are {', '.join(n for n, _ in parameters[:8])}",
                    "correct the pattern, or leave it out",
                )
            return lambda name, p: any(fnmatchcase(name, pattern) for pattern in patterns)
        if all(isinstance(g, Parameter) for g in given):
            ids = {id(g) for g in given}
            if foreign := ids - {id(p) for _, p in parameters}:
                raise ConfigError(
                    f"{where}: each parameter is one of the optimizer's",
                    f"{len(foreign)} of {len(ids)} are not",
                    "make the optimizer for the model that they are in",
                )
            return lambda name, p: id(p) in ids
    elif callable(given):
        return lambda name, p: bool(given(name, p))
    raise ConfigError(
        f"{where}: params is a name pattern or several, a module, a list of parameters, or a function of name and parameter",
        f"{given!r:.80}",
        'pass e.g. ["*.bias", "norm*"] or lambda name, p: p.ndim < 2',
    )


# state


def group_state(group: Group) -> dict[str, Any]:
    """A group as plain values."""
    assert is_dataclass(group.settings)
    return {
        "names": list(group.names),
        "settings": {f.name: _plain(getattr(group.settings, f.name)) for f in fields(group.settings)},
        "schedule": None if group.schedule is None else to_state(group.schedule),
        "lr_scale": group.lr_scale,
    }


def group_from_state(state: Mapping[str, Any], current: Group) -> Group:
    """The group of ``group_state``; ``current`` gives schedules that cannot be rebuilt."""
    check_fields(type(current.settings), state["settings"])
    settings = {k: _rebuilt(v, getattr(current.settings, k, None)) for k, v in state["settings"].items()}
    rate = state["schedule"]
    return Group(
        tuple(state["names"]),
        replace(current.settings, **settings),
        None if rate is None else from_state(rate, current.schedule),
        check_scale(state["lr_scale"]),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(_plain(v) for v in value)
    return to_state(value) if callable(value) else value


def _rebuilt(value: Any, current: Any) -> Any:
    if isinstance(value, (tuple, list)):
        beside = current if isinstance(current, (tuple, list)) and len(current) == len(value) else [None] * len(value)
        return tuple(_rebuilt(v, c) for v, c in zip(value, beside, strict=True))
    return from_state(value, current if callable(current) else None) if isinstance(value, Mapping) else value
