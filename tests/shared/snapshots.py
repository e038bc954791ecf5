"""Snapshots of calls: the result, or the error, of a call with another value for one of its arguments, in a text file.

A file has a part for each argument: values with the same outcome share a line, and the heading has a digest of all texts of
errors in full. A result is its dtype, shape and the sum of its finite elements times cos(k).
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import firebrick as fb

NAN, INF = math.nan, math.inf
_NUMBER = re.compile(r"(?<=[ \[(])-?(?:\d+\.?\d*(?:e[-+]\d+)?|nan|inf)(?=[ \]);,]|$)")
_LEFT_OUT = {"out", "device", "generator", "like", "fill_value", "self", "model", "layer"}
SETTINGS: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 7, 0.25, -0.5, NAN, "text", "sum", "none", (), (1,), (1, 0), (1, 1, 1), fb.float64,
    fb.int32,
)  # fmt: skip


FEW = (None, True, -1, 0, 1, 3, 0.25, NAN, "text", "none", (1, 0), fb.float64)


class Call(NamedTuple):
    """A call: its name, what is called with arguments by name, these, and the function or class that has the parameters.

    ``filled`` says whether tensors that are all NaN, infinite or one number are among the other arguments; ``settings`` are the
    other values of what is no tensor, or those of each argument by name.
    """

    name: str
    run: Callable[[dict[str, Any]], Any]
    given: dict[str, Any]
    signed: Callable[..., Any]
    filled: bool = True
    settings: tuple[Any, ...] | dict[str, tuple[Any, ...]] = SETTINGS


class Snapshot(NamedTuple):
    """Of one argument: a line for each outcome with its values, and all texts of errors."""

    name: str
    lines: list[str]
    texts: str


def others(call: Call) -> Iterator[tuple[str, str, Any]]:
    """Arguments, with other values for each and how these are written."""
    for key, x in call.given.items():
        if isinstance(x, fb.Tensor):
            made = {"dtype": x.dtype, "device": x.device}
            yield from ((key, repr(v), v) for v in ("text", None, 2, 0.5))
            yield key, "array", np.ones((2, 3), np.float32)
            yield from ((key, f"zeros{s}", fb.zeros(s, **made)) for s in ((), (0,), (2, 3, 2), (0, 2, 2, 2)))
            yield from ((key, d.name, fb.astype(x, d)) for d in (fb.bool, fb.int32, fb.float64, fb.complex64))
            filled = {"float": (NAN, -INF, -2.0), "int": (99, -1)}.get(x.dtype.kind, ()) if call.filled else ()
            yield from ((key, f"filled with {v}", fb.full(x.shape, v, **made)) for v in filled)
    for p in inspect.signature(call.signed).parameters.values():
        named = p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD) and not p.name.startswith("_")
        if named and p.name not in _LEFT_OUT and not isinstance(call.given.get(p.name), fb.Tensor):
            if isinstance(call.settings, dict):
                values = call.settings.get(p.name, ())
            else:
                values = (True, False) if p.annotation == "bool" else call.settings
            yield from ((p.name, str(v), v) for v in values)


def shown(result: Any) -> str:
    """A result as text."""
    if isinstance(result, fb.Tensor):
        plain = result.detach()
        values = np.asarray(fb.astype(plain, fb.float32) if plain.dtype.kind == "storage" else plain).reshape(-1)
        parts = result.dtype.kind == "complex"
        values = values.astype(np.complex128 if parts else np.float64)
        finite = np.where(np.isfinite(values), values, 0.0)
        total = complex((finite * np.cos(np.arange(values.size))).sum())
        numbers = f"{total.real:.6g}" + (f" {total.imag:.6g}" if parts else "")
        infinite = int(values.size - np.isfinite(values).sum())
        return f"{result.dtype.name}{list(result.shape)} {numbers}" + (f" and {infinite} not finite" if infinite else "")
    if isinstance(result, (tuple, list)):
        return f"({'; '.join(map(shown, result))})"
    return f"{result:.6g}" if isinstance(result, float) else repr(result)[:60]


def _outcome(call: Call, key: str, value: Any) -> tuple[str, str]:
    """The outcome of a call, and the whole text of an error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return shown(call.run(call.given | ({key: value} if key else {}))), ""
    except fb.FirebrickError as e:
        return f"{type(e).__name__} {e.expected}", str(e)
    except TypeError as e:
        return f"TypeError {e}"[:100], str(e)


def snapshots(calls: Iterable[Call]) -> Iterator[Snapshot]:
    """A snapshot of each argument of each call.

    Raises:
        ValueError: A call is an error already before an argument is changed, so its snapshots would show nothing.
    """
    for call in calls:
        if text := _outcome(call, "", None)[1]:
            raise ValueError(f"{call.name} is no call that works: {text}")
        found: dict[str, tuple[dict[str, list[str]], list[str]]] = {}
        for key, name, value in others(call):
            lines, texts = found.setdefault(key, ({}, []))
            what, text = _outcome(call, key, value)
            lines.setdefault(what, []).append(name)
            texts.append(text)
        for key, (lines, texts) in found.items():
            alike = [f"{', '.join(names)}: {what}" for what, names in lines.items()]
            yield Snapshot(f"{call.name} {key}", alike, "\n".join(texts))


def alike(a: str, b: str) -> bool:
    """Whether two lines are the same but for rounding."""
    if a == b:
        return True
    one, other = _NUMBER.findall(a), _NUMBER.findall(b)
    return _NUMBER.sub("#", a) == _NUMBER.sub("#", b) and all(
        math.isclose(float(x), float(y), rel_tol=1e-4, abs_tol=1e-4) or x == y for x, y in zip(one, other, strict=True)
    )


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def differences(file: Path, calls: Iterable[Call]) -> list[str]:
    """How snapshots differ from those in a file."""
    known = {}
    for part in ("\n" + file.read_text(encoding="utf-8")).split("\n## ")[1:]:
        head, *lines = part.splitlines()
        name, _, digits = head.rpartition(" ")
        known[name] = digits, lines
    changed = []
    for name, lines, texts in snapshots(calls):
        digits, expected = known.pop(name, ("", []))
        if digits != _digest(texts):
            changed.append(f"{name}: another text of an error")
        if len(lines) != len(expected) or not all(map(alike, lines, expected)):
            changed += [name, *(f"- {x}" for x in expected if x not in lines), *(f"+ {x}" for x in lines if x not in expected)]
    return [*changed, *(f"{name} is no argument any more" for name in known)]


def write(file: Path, calls: Iterable[Call], witnesses: Iterable[Call]) -> None:
    """Write the file of snapshots, if those of another engine are the same."""
    found, elsewhere = list(snapshots(calls)), {a.name: a.lines for a in snapshots(witnesses)}
    for name, lines, _ in found:
        if len(lines) != len(elsewhere[name]) or not all(map(alike, lines, elsewhere[name])):
            sys.exit(f"{name} differs:\n{lines}\n{elsewhere[name]}")
    parts = (f"## {n} {_digest(t)}\n" + "".join(f"{x}\n" for x in xs) for n, xs, t in found)
    file.write_text("".join(parts), encoding="utf-8")
