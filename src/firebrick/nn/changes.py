"""What a module's call has changed besides its result, so that a call that fails can say that it is incomplete.

A model's layers keep state in caches that are objects of their own. If a later layer fails, those of earlier layers are ahead
of the others, and going on with them would give wrong results. Each change is therefore counted, and ``Module.__call__``
reports the failure to what was changed since the call began. Each thread counts for itself.
"""

from __future__ import annotations

from threading import local
from typing import Protocol
from weakref import WeakKeyDictionary


class _Changed(Protocol):
    def call_failed(self) -> None: ...


class _Changes(local):
    """The changes of this thread.

    Attributes:
        count: Number of changes so far.
    """

    count = 0

    def __init__(self) -> None:
        self._last: WeakKeyDictionary[_Changed, int] = WeakKeyDictionary()

    def note(self, changed: _Changed) -> None:
        """Count a change of an object."""
        self.count += 1
        self._last[changed] = self.count

    def failed(self, before: int) -> None:
        """Report to everything changed since ``count`` was ``before`` that the call which changed it failed."""
        if self.count != before:
            for changed, when in list(self._last.items()):
                if when > before:
                    changed.call_failed()


changes = _Changes()
