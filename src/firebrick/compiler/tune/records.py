"""``Records``: what tuning found, in memory and on disk.

All records of a device are one entry of the cache of compiled objects (``compiler.cache``): written atomically, verified when
read, bounded and removed with it. An entry that is damaged, or of another device, version or source, is not used.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from firebrick.compiler import cache
from firebrick.core.lines import warn
from firebrick.core.locks import forkable
from firebrick.core.sources import fingerprint

MOST = 4096
"""Maximum number of records of a device; the oldest are dropped first."""
_FORMAT = 1


class TuningWarning(UserWarning):
    """A variant of a kernel was barred, or records of tuning could not be used."""


@dataclass(slots=True)
class Record:
    """What tuning found for one problem.

    Attributes:
        problem: The problem's ``id``.
        structure: Its specification without sizes.
        text: Its description.
        choice: Name of the fastest variant of the default's order.
        any_order: Name of the fastest variant of any order; None if only the default's order was tried.
        times: Median microseconds by names of variants.
        barred: Reasons by names of variants that are wrong. They are not to be used for any sizes of the structure.
        withdrawn: Why the default is chosen although another variant was faster alone; empty if it is not so.
    """

    problem: str
    structure: str
    text: str
    choice: str
    any_order: str | None = None
    times: dict[str, float] = field(default_factory=dict)
    barred: dict[str, str] = field(default_factory=dict)
    withdrawn: str = ""


class Records(Mapping[str, Record]):
    """The records of a device by the ``id`` of their problems. Thread-safe.

    Args:
        device: The device, as in ``KernelProblem.device``.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._key = hashlib.sha256(f"firebrick tuning {_FORMAT}\0{device}".encode()).digest()
        self._lock = forkable(threading.RLock())
        self._found, self.stamp = self._read()

    def __getitem__(self, problem: str) -> Record:
        return self._found[problem]

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._found))

    def __len__(self) -> int:
        return len(self._found)

    def barred(self, structure: str) -> dict[str, str]:
        """The variants that were wrong for some sizes of a specification, and the reasons."""
        with self._lock:
            return dict(pair for r in self._found.values() if r.structure == structure for pair in r.barred.items())

    def add(self, record: Record) -> None:
        """Keep a record, in place of an older one of the same problem. What is barred stays barred."""
        with self._lock:
            on_disk, _ = self._read()  # other processes may have added some
            self._found = {**on_disk, **self._found}
            known = self._found.pop(record.problem, None)
            if known is not None:
                record.barred = {**known.barred, **record.barred}
            self._found[record.problem] = record
            while len(self._found) > MOST:
                del self._found[next(iter(self._found))]
            self._write()

    def clear(self) -> int:
        """Remove all records; returns their number."""
        with self._lock:
            count, self._found = len(self._found), {}
            self._write()
        return count

    def _read(self) -> tuple[dict[str, Record], str]:
        image = cache.store.load(self._key)
        if image is None:
            return {}, ""
        try:
            content = json.loads(image)
            if content["device"] != self.device:
                raise ValueError("records of another device")
            if content["sources"] != _sources():  # kernels of the same names may be others
                return {}, ""
            found = {r["problem"]: _checked(Record(**r)) for r in content["records"]}
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as e:
            warn(f"the records of tuning are not used: {e}", TuningWarning)
            return {}, ""
        return found, hashlib.sha256(image).hexdigest()

    def _write(self) -> None:
        sources = _sources()
        if sources is None:  # no other process could tell whether its kernels are these
            self.stamp = str(id(self._found)) if self._found else ""
            return
        content = {"device": self.device, "sources": sources, "records": [asdict(r) for r in self._found.values()]}
        image = json.dumps(content, separators=(",", ":")).encode()
        llvm, llvmlite = cache.versions()[::-1]
        facts = {
            "functions": [f"(tuning of {len(self._found)} problems)"], "target": self.device.split("\n")[0],
            "llvm": f"{llvm} (llvmlite {llvmlite})",
        }  # fmt: skip
        cache.store.save(self._key, image, facts)
        self.stamp = hashlib.sha256(image).hexdigest() if self._found else ""


def _sources() -> str | None:
    """A hash of the sources that generate kernels; None if it is not known."""
    found = fingerprint()
    return None if found is None else found.hex()


def _checked(r: Record) -> Record:
    texts: list[Any] = [r.problem, r.structure, r.text, r.choice, r.withdrawn, *r.times, *r.barred, *r.barred.values()]
    if not all(isinstance(x, str) for x in texts) or not isinstance(r.any_order, str | None):
        raise ValueError("a record of another form")
    if not all(isinstance(x, float | int) for x in r.times.values()):
        raise ValueError("times that are no numbers")
    return r
