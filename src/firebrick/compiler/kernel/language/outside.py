"""``Outside``: the objects from outside of a kernel that its translation depends on, each with the place where it was found.

A call looks again at the places: if another object is there, the kernel is translated again. A gradient is that of the objects
of its call, whatever is at the places later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from firebrick.compiler.kernel.language.source import Source

_MISSING = object()
_LOOKS = 4
"""How often looks are made anew: a place may have another object of the same number each time, such as a property."""
_numbers = count()


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where an object is found.

    Attributes:
        owner: The function whose free name it is, or the object whose attribute it is.
        name: Of it there.
    """

    owner: Any
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Place) and self.owner is other.owner and self.name == other.name

    def __hash__(self) -> int:
        return hash((id(self.owner), self.name))

    def held(self) -> Any:
        """The object that is there now, as it is."""
        if isinstance(self.owner, Source):
            known, held = self.owner.free(self.name)
            return held if known else _MISSING
        return getattr(self.owner, self.name, _MISSING)

    def now(self) -> Any:
        """The object that is there now."""
        return plain(self.held())

    def looks(self, held: Any) -> list[tuple[Callable[[], Any], Any]]:
        """Functions, and what each returns as long as an object is at the place. They may raise where it is not."""
        if held is _MISSING:
            return [(self.held, held)]
        if isinstance(self.owner, Source):
            return self.owner.looks(self.name, held)
        return [(partial(getattr, self.owner, self.name), held)]


class Outside:
    """Objects by their places. Two are equal if their numbers have equal bits, and their other objects are the same ones.

    Args:
        items: (place, object), in the order of their use.

    Attributes:
        number: Of this one, which no other has: it stands for the objects in keys that must not keep them.
    """

    def __init__(self, items: Iterable[tuple[Place, Any]] = ()) -> None:
        self.number = next(_numbers)
        self._items = dict(items)
        self._exact = tuple((p, exact(v)) for p, v in self._items.items())
        self._hash = hash(self._exact)  # it is a part of the key of each call
        self._looks: list[tuple[Callable[[], Any], Any]] | None = None
        self._looked = 0

    def get(self, place: Place, default: Any) -> Any:
        """The object that was at a place; the default if it was not asked for."""
        return self._items.get(place, default)

    def holds(self) -> bool:
        """Whether the same objects are at the places now."""
        looks = self._looks
        if looks is not None:
            try:
                for look, held in looks:
                    if look() is not held:
                        break
                else:
                    return True
            except (KeyError, AttributeError, ValueError):  # a name that is gone
                pass
        return self._holds()

    def _holds(self) -> bool:
        """The same by what is at the places, which may be another object of the same number."""
        looks: list[tuple[Callable[[], Any], Any]] = []
        for place, then in self._exact:
            held = place.held()
            if exact(plain(held)) != then:
                return False
            looks += place.looks(held)
        if self._looked < _LOOKS:
            self._looked += 1
            self._looks = looks
        return True

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, Outside) and self._exact == other._exact)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        numbers = {p.name: v for p, v in self._items.items() if isinstance(v, bool | int | float | tuple)}
        return f"Outside({numbers})"


def plain(v: Any) -> Any:
    """An object; numbers of NumPy and of enumerations, also those in tuples, as Python's."""
    if isinstance(v, np.generic):
        v = v.item()
    for kind in (bool, int, float):
        if isinstance(v, kind):
            return kind(v)
    if isinstance(v, tuple):
        return tuple(map(plain, v))
    return v


def exact(v: Any) -> Any:
    """A key of an object of an ``Outside``, or of a compile-time constant: equal keys have equal code."""
    if isinstance(v, float):
        return float, v.hex()  # 0.0 and -0.0 are two, and one NaN is like another
    if isinstance(v, bool | int):
        return type(v), v
    if isinstance(v, tuple):
        return tuple, tuple(map(exact, v))
    return object, id(v)  # the ``Outside`` keeps it, so that no other object gets its address
