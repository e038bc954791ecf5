"""``RepeatedUpdate``: an update of an optimizer by what the last one was made of, with other gradients.

Most updates differ from the one before in nothing but values. Then the operands and the key of their program are known, and
neither moments nor groups are looked up for each parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from firebrick.core.commit import Commit
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.graph.replays import UPDATES, Replay, key_for
from firebrick.nn import Parameter

TOGETHER = 512
"""Maximum number of parameters whose update in eager code may be one program: tracing and compiling take 0.75 ms for each."""


class Row(NamedTuple):
    """A parameter that an update changes: its group, the dtype that it is updated in, gradient, moments and scalars."""

    group: int
    dtype: DType
    p: Parameter
    g: Tensor
    handles: list[Tensor]
    scalars: tuple[Tensor, ...]


def operands_of(rows: Sequence[Row]) -> tuple[list[Tensor], tuple[Any, ...], int, int]:
    """The operands of an update: of each parameter value, gradient and moments, then scalars. The kinds of the parameters, and
    where scalars begin and end."""
    scalars = {id(r.scalars): r.scalars for r in rows}
    at, total = dict[int, int](), 0
    for number, each in scalars.items():
        at[number], total = total, total + len(each)
    kinds = tuple([(r.group, r.dtype, len(r.handles), at[id(r.scalars)], len(r.scalars)) for r in rows])
    operands = [t for r in rows for t in (r.p.detach(), r.g, *r.handles)]
    own = len(operands)
    operands += [t for each in scalars.values() for t in each]
    return operands, kinds, own, own + total


class RepeatedUpdate:
    """An update that repeats the one before: of the same parameters, moments and settings, with other gradients.

    Whatever these are made of raises ``hooks.version`` or ``hooks.settings`` when it changes, but for the groups, which are
    compared. Where parameters have missed updates, their scalars differ, and no update repeats another.

    Args:
        optimizer: The ``Optimizer``, after an update in which all parameters had gradients, and no state began.
        rows: Its parameters.
        shared: Group, device and dtype of each tuple of scalars, in order.
    """

    __slots__ = ("_dtypes", "_groups", "_handles", "_key", "_rows", "_settings", "_shared", "_version")

    def __init__(self, optimizer: Any, rows: Sequence[Row], shared: Sequence[tuple[int, Device, DType, Any]]) -> None:
        self._version, self._settings, self._shared = hooks.version, hooks.settings, tuple(shared)
        self._groups = [(g, g.names, g.settings) for g in optimizer.groups]
        self._rows = [(r.p, tuple(r.handles)) for r in rows]
        self._handles = [h for r in rows for h in (r.p, *r.handles)]
        self._dtypes = [r.g.dtype for r in rows]
        operands, kinds, _, _ = operands_of(rows)
        key = optimizer._key(kinds, True) if len(rows) <= TOGETHER else None
        same = all(t.device is operands[0].device for t in operands)
        self._key = key_for(key, operands) if key is not None and same else None

    def run(self, optimizer: Any, commit: Commit, found: Sequence[Tensor | None], counters: tuple[Tensor, Tensor]) -> bool:
        """Compute the update by its program and put it into the commit.

        Returns:
            Whether that was done; if not, the update must run as any.
        """
        groups = optimizer.groups
        if self._key is None or self._version != hooks.version or self._settings != hooks.settings:
            return False
        if optimizer._missed or hooks.tracing or len(groups) != len(self._groups):
            return False
        program = UPDATES.find(self._key, self._key[1])
        if type(program) is not Replay or not program.fresh:
            return False
        for group, (before, names, settings) in zip(groups, self._groups, strict=True):
            if group is not before or group.names is not names or group.settings is not settings:
                return False
        natives = list[Any]()
        for (p, handles), g, dtype in zip(self._rows, found, self._dtypes, strict=True):
            if g is None or g.dtype is not dtype or g.node is not None:
                return False
            natives += (p.storage.data, g.storage.data)
            natives += [h.storage.data for h in handles]
        for number, device, dtype, _ in self._shared:
            natives += [t.storage.data for t in optimizer._scalars(groups[number], dtype, device, counters)]
        try:
            made = program.storages(natives)
        except Exception:  # noqa: BLE001 - parameter by parameter, the update reports the cause
            return False
        commit.show(self._handles, made, [h.aval for h in self._handles])
        return True
