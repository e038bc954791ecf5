"""Restoring everything that a walk has seen: after a trace that failed, containers, objects, classes and generators have their
values of before."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.graph.record import Record
from firebrick.graph.spaces import ABSENT
from firebrick.graph.streams import rewound, torch_numbers, ways


def copies(walk: Record) -> Callable[[], None]:
    """Copy the values of containers and objects; the function returned restores them."""
    lists = [(v, list(v)) for v, _ in walk.lists if isinstance(v, (list, deque))]
    sets = [(v, set(v)) for v, _ in walk.lists if isinstance(v, set)]
    dicts = [(v, dict(v)) for v, _ in walk.lists if isinstance(v, dict)]
    objects = [(v.__dict__, dict(v.__dict__)) for v in walk.objects]
    classes = [(v, dict(vars(v))) for v in walk.classes]
    names = [slot for slot in walk.slots if isinstance(slot[0], dict)]
    cells = list(walk.cells)
    fields = list(walk.fields)
    arrays = [(v, v.copy()) for v, _ in walk.arrays if v.flags.writeable]
    changed: list[tuple[Any, Any]] = [(v, v[:]) for v in walk.bytes]
    draws = [rewound(random.getstate, random.setstate), rewound(np.random.get_state, np.random.set_state)]
    draws += [rewound(*ways(v)) for v in walk.draws]
    torch = torch_numbers()
    draws += [rewound(*torch)] if torch is not None else []
    frozen: list[tuple[Any, bool]] = [(t, t.frozen) for _, t in walk.leaves if type(t) is not Tensor and hasattr(t, "frozen")]

    def back() -> None:
        for held, was in lists:
            if len(held) != len(was) or any(a is not b for a, b in zip(held, was, strict=True)):
                held.clear()
                held.extend(was)
        for group, members in sets:
            if group != members:
                group.clear()
                group.update(members)
        for space, content in [*dicts, *objects]:
            if space.keys() != content.keys() or any(space[k] is not v for k, v in content.items()):
                space.clear()
                space.update(content)
        for kind, content in classes:
            now = vars(kind)
            for name in [n for n in now if n not in content]:
                delattr(kind, name)
            for name, value in content.items():
                if now.get(name, ABSENT) is not value:
                    setattr(kind, name, value)
        for space, name, value in names:
            if value is ABSENT:
                space.pop(name, None)
            elif space.get(name, ABSENT) is not value:
                space[name] = value
        for cell, value in cells:
            if value is not ABSENT:
                cell.cell_contents = value
        for owner, name, value in fields:
            if value is not ABSENT and getattr(owner, name, ABSENT) is not value:
                setattr(owner, name, value)
        for host, then in arrays:
            if host.tobytes() != then.tobytes():
                host[...] = then
        for some, content in changed:
            if some != content:
                some[:] = content
        for again in draws:
            again()
        for t, was_frozen in frozen:
            t.frozen = was_frozen
        hooks.version += 1

    return back
