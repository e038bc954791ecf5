"""Which samples a loader gives, and in which order, as plain values: what a cursor says of both, and how two cursors differ.

The order of an epoch is known by a digest of its sample numbers, so it does not matter how it came about. Of an order of
more than 65,536 numbers that are computed by position, some are digested, and ``settings`` holds what else tells its sampler
from others. A data set is known by its length and by a few raw samples: their dtypes, shapes and a digest. Nothing is drawn
from any random generator by that, and a data set whose samples cannot be compared says why not.
"""

from __future__ import annotations

import hashlib
import pickle
import random as python_random
import sys
from collections.abc import Callable, Iterator, Mapping
from copy import copy, deepcopy
from dataclasses import fields, is_dataclass
from itertools import islice
from numbers import Integral
from pathlib import PurePath
from typing import Any

import numpy as np

from firebrick import random
from firebrick.core.lines import warn
from firebrick.core.tensor import Tensor
from firebrick.core.untrusted import shown
from firebrick.data.assembly import Job, reading
from firebrick.data.buffered import BufferShuffle
from firebrick.data.errors import LoaderError, UncheckedCursorWarning
from firebrick.data.order import BLOCK
from firebrick.data.stream import IterableDataset

Array = np.ndarray[Any, Any]
Facts = dict[str, Any]
ROWS = 8  # samples of a data set that are compared


# a data set


def fingerprint(dataset: Any) -> Facts:
    """What is known of a data set: its type, length, and one sample's dtypes and shapes with the digest of a few.

    A data set with a method ``fingerprint()`` is asked instead for a text that is the same wherever its samples are. Where
    samples differ from one reading to the next, hold values without a content, or cannot be read here, ``unread`` says so.
    """
    facts: Facts = {"type": type(dataset).__name__, "length": len(dataset) if hasattr(type(dataset), "__len__") else None}
    own = getattr(dataset, "fingerprint", None)
    apart, before = _apart(dataset), _generators()
    try:
        if callable(own):
            return {**facts, "digest": _short(hashlib.sha256(str(own()).encode()))}
        sample, found = _read(apart)
        again = _read(apart)
    except Exception as e:  # noqa: BLE001 - whatever a data set of the user's raises, it is said when cursors are compared
        return {**facts, "unread": f"reading its samples raised {type(e).__name__}: {e}"[:200]}
    finally:
        drawn = _put_back(before)
    if drawn:
        return {**facts, "unread": f"its samples draw random numbers from {' and '.join(drawn)}"}
    if again != (sample, found):
        return {**facts, "unread": "its samples differ from one reading to the next"}
    return {**facts, "sample": sample, "digest": found}


def chosen_rows(length: int) -> list[int]:
    """The numbers of the samples that are compared: the first, the last and some between them."""
    return sorted({i * (length - 1) // (ROWS - 1) for i in range(ROWS)})


def _read(dataset: Any) -> tuple[str, str]:
    """Description of the first sample, and digest of all that are compared."""
    stream = isinstance(dataset, IterableDataset)
    numbers = np.arange(ROWS) if stream else np.array(chosen_rows(len(dataset)))
    rows: Iterator[Any] = iter(dataset.stream(0, 0)) if stream else map(dataset.__getitem__, numbers.tolist())
    digest, first = hashlib.sha256(), ""
    with reading(Job(0, numbers, numbers, np.empty((len(numbers), 0), np.uint32), 0, 0, 0)) as info:
        for i, row in enumerate(islice(rows, len(numbers))):
            info.at(min(i + 1, len(numbers) - 1))
            shown = _fold(row, digest)
            first = first or shown
    return first, _short(digest)


def _fold(value: Any, digest: Any) -> str:
    """Feed a part of a sample to a digest; returns its dtype and shape.

    Raises:
        TypeError: It is an object without a content that could be compared.
    """
    if isinstance(value, (tuple, list)):
        text = f"({', '.join(_fold(v, digest) for v in value)})"
    elif isinstance(value, Mapping):
        text = f"{{{', '.join(f'{k}: {_fold(v, digest)}' for k, v in value.items())}}}"
    elif is_dataclass(value) and not isinstance(value, type):
        inner = ", ".join(f"{f.name}={_fold(getattr(value, f.name), digest)}" for f in fields(value))
        text = f"{type(value).__name__}({inner})"
    elif value is None or isinstance(value, (str, bytes)):
        text = type(value).__name__
        digest.update(repr(value).encode())
    elif isinstance(value, PurePath):
        text = "path"
        digest.update(value.name.encode())  # the same file in a folder that was moved
    else:
        a: Array = value.numpy() if isinstance(value, Tensor) else np.asarray(value)
        if a.dtype.hasobject:
            if a.ndim == 0 and not isinstance(value, int):
                raise TypeError(f"a sample holds a {type(value).__name__}, which is no array, number or text")
            text = f"object{_fold(a.tolist(), digest)}" if a.ndim else "int"
            digest.update(repr(value).encode() if not a.ndim else b"")
        else:
            text = f"{a.dtype.name}{list(a.shape)}"
            digest.update((a.astype(a.dtype.newbyteorder("<")) if a.dtype.byteorder == ">" else a).tobytes())
    digest.update(text.encode())
    return text


def _apart(dataset: Any) -> Any:
    """A copy to read from: what a data set keeps of a reading, such as an open file or a generator's place, stays there."""
    try:
        made = copy(dataset)
        for name, value in list(getattr(made, "__dict__", {}).items()):
            if isinstance(value, (np.random.Generator, np.random.RandomState, python_random.Random, random.Generator)):
                setattr(made, name, deepcopy(value))
            elif (
                hasattr(type(value), "__getitem__")
                and hasattr(value, "__dict__")
                and not isinstance(value, (np.ndarray, Tensor))
            ):
                setattr(made, name, _apart(value))  # the data set within a subset
    except Exception:  # noqa: BLE001 - what cannot be copied is read itself
        return dataset
    return made


Kept = list[tuple[str, Callable[[], Any], Callable[[Any], Any], Any]]


def _generators() -> Kept:
    """The generators of this process that samples may be drawn from: name, how to read and set them, where they stand."""
    known: list[tuple[str, Callable[[], Any], Callable[[Any], Any]]] = [
        ("random", python_random.getstate, python_random.setstate),
        ("numpy.random", np.random.get_state, np.random.set_state),
        ("firebrick.random", random.state, random.set_state),
    ]
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "get_rng_state"):
        known.append(
            ("torch", lambda: torch.get_rng_state().numpy().tobytes(), lambda s: torch.set_rng_state(_bytes(torch, s)))
        )
    return [(name, read, put, read()) for name, read, put in known]


def _put_back(before: Kept) -> list[str]:
    """Put generators back to where they stood; returns the names of those that were drawn from."""
    drawn = [(name, put, state) for name, read, put, state in before if pickle.dumps(read()) != pickle.dumps(state)]
    for _, put, state in drawn:
        put(state)
    return [name for name, _, _ in drawn]


def _bytes(torch: Any, state: bytes) -> Any:
    return torch.frombuffer(bytearray(state), dtype=torch.uint8)


def _short(digest: Any) -> str:
    text: str = digest.hexdigest()
    return text[:32]


class Fingerprint:
    """The fingerprint of a data set, taken when it is first asked for."""

    def __init__(self) -> None:
        self._known: tuple[Any, Facts] = None, {}

    def of(self, dataset: Any) -> Facts:
        """``fingerprint(dataset)``."""
        if self._known[0] is not dataset:
            self._known = dataset, fingerprint(dataset)
        return self._known[1]


# an order

STREAM = "a stream"
COMPARED = 4096  # numbers of a long order that are compared


def order_of_stream(dataset: IterableDataset) -> str:
    """The kind of a stream's order."""
    return STREAM + (dataset.order if isinstance(dataset, BufferShuffle) else "")


def digest_of(count: int, order: Callable[[Array], Array], *, whole: bool) -> Facts:
    """A digest of the sample numbers of an epoch.

    Args:
        count: How many there are.
        order: Gives them at any positions.
        whole: Whether all are digested, else ``COMPARED`` of them, from the first to the last at like distances.
    """
    if not whole:
        at = np.unique(np.array([i * (count - 1) // (COMPARED - 1) for i in range(COMPARED)], np.int64))
        return {"digest": _short(hashlib.sha256(np.ascontiguousarray(order(at), "<i8").tobytes())), "compared": len(at)}
    digest = hashlib.sha256()
    for begin in range(0, count, BLOCK):
        numbers = order(np.arange(begin, min(begin + BLOCK, count)))
        digest.update(np.ascontiguousarray(numbers, "<i8").tobytes())
    return {"digest": _short(digest)}


# two cursors


def differences(a: Mapping[str, Any], b: Mapping[str, Any], one: str = "saved", other: str = "found") -> list[str]:
    """How the samples and the order of two cursors differ: a text for each difference, that says what the one and the other
    have. What only one of them says is no difference."""
    wrong = [f"{k} {shown(a.get(k))} {one}, {shown(b.get(k))} {other}" for k in ("samples", "seed") if a.get(k) != b.get(k)]
    ours, theirs = a.get("order"), b.get("order")
    if ours and theirs and not wrong and _unlike(ours, theirs):
        if ours["kind"] != theirs["kind"]:
            wrong.append(f"order: {shown(ours['kind'])} {one}, {shown(theirs['kind'])} {other}")
        else:
            wrong.append(f"order: {shown(ours['kind'])}, with one order of epoch {a['epoch']} {one}, another {other}")
    data, others = a.get("data") or {}, b.get("data") or {}
    for key, what in (("length", "samples of the data set"), ("sample", "a sample")):
        if key in data and key in others and data[key] != others[key]:
            wrong.append(f"{what}: {shown(data[key])} {one}, {shown(others[key])} {other}")
    if not wrong and "digest" in data and "digest" in others and data["digest"] != others["digest"]:
        kinds = f"those of the {shown(data['type'])} {one} and of the {shown(others['type'])} {other}"
        wrong.append(f"values of the samples: {kinds} are unlike")
    return wrong


def _unlike(a: Facts, b: Facts) -> bool:
    """Whether two orders differ."""
    if any(facts["kind"].startswith(STREAM) for facts in (a, b)):
        return bool(a["kind"] != b["kind"])
    if "settings" in a and "settings" in b and a["settings"] != b["settings"]:
        return True
    return bool(a["digest"] != b["digest"])


def unchecked(saved: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """What of the order and the data of two cursors could not be compared, and why; nothing if all was."""
    if not saved.get("order") or not saved.get("data"):
        return "it was saved without the order and the data, as by earlier versions"
    for which, data in (("saved", saved["data"]), ("found", found["data"])):
        if "digest" not in data:
            return f"of the data set {which}, {shown(data['type'])}, {shown(data.get('unread', 'nothing is known'), 300)}"
    return ""


_FACTS = {"order": {"kind": str, "digest": str}, "data": {"type": str}}  # what these parts of a cursor have at least


def _counts(number: Any) -> bool:
    """Whether it is a whole number of a size that places have."""
    return not isinstance(number, bool) and isinstance(number, Integral) and int(number) < 2**63


def check_form(cursor: Any) -> None:
    """Refuse what has not the form of a cursor. An earlier version's has neither order nor data.

    Raises:
        LoaderError: It has none.
    """
    wrong: list[str] = []
    given = cursor if isinstance(cursor, Mapping) else {}
    for key in ("epoch", "position"):
        number = given.get(key)
        if not _counts(number):
            wrong.append(f"{key} {number!r:.80}" if key in given else f"no {key}")
    wrong += [f"{key} {given[key]!r:.80}" for key in ("samples", "batch_size") if key in given and not _counts(given[key])]
    for part, kinds in _FACTS.items():
        facts = given.get(part) or {}
        if facts and not (isinstance(facts, Mapping) and all(isinstance(facts.get(k), kind) for k, kind in kinds.items())):
            wrong.append(f"{part} {facts!r:.80}")
    if wrong:
        raise LoaderError(
            "a cursor is a dict with the whole numbers epoch and position, and facts of order and data",
            ", ".join(wrong) if given else f"{type(cursor).__name__} {cursor!r:.80}",
            "pass what cursor() of a loader gave",
        )


def check_cursor(name: str, saved: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    """Warn where a loader's own cursor, at the beginning of the saved one's epoch, leaves anything unknown.

    Raises:
        LoaderError: The saved cursor has no place in an epoch, or other samples or another order.
    """
    epoch, position, end = saved.get("epoch", -1), saved.get("position", -1), saved.get("samples", -1)
    if epoch < 0 or position < 0 or 0 <= end < position:
        raise LoaderError(
            "a cursor has an epoch from 0 and a position from 0" + (f" to {end}" if end >= 0 else ""),
            f"epoch {epoch}, position {position}",
            "pass what cursor() gave",
        )
    if wrong := differences(saved, found):
        raise LoaderError(
            f'loader "{name}" goes on from a cursor of the same samples in the same order',
            "; ".join(wrong),
            "resume with the data, order and seed that the run began with; or repeat the epoch from its beginning, "
            f"loader.set_epoch({epoch}), or start a new run",
        )
    if why := unchecked(saved, found):
        warn(
            f'the cursor that loader "{name}" goes on from cannot be compared with its data: {why}. If the data or their '
            "order are others, samples are repeated and left out: see that they are the same",
            UncheckedCursorWarning,
        )
