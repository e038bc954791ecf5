"""What differs between two keys of walks, in words: why a compiled function was traced again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def differences(
    before: tuple[Any, ...], now: tuple[Any, ...], without: Callable[[str], bool] = lambda path: False
) -> list[str]:  # fmt: skip
    """What differs between two keys of walks, in words, but for the paths that are to be left out."""
    if before == now:
        return []
    old, new = ({e[0]: e for e in key} for key in (before, now))
    changed = [p for p, e in new.items() if p in old and old[p] != e and not without(p)]
    begun = [p for p in new if p not in old and not without(p)]
    gone = [p for p in old if p not in new and not without(p)]
    out = [f"{p}: {_words(old[p][1:])} → {_words(new[p][1:])}" for p in changed]
    out += [f"{p}: new, {_words(new[p][1:])}" for p in begun]
    out += [f"{p}: gone" for p in gone]
    return out


def _words(what: tuple[Any, ...]) -> str:
    if what[0] == "tensor":
        _, kind, dtype, shape, device, frozen = what
        more = ", frozen" if frozen else ""
        return f"{dtype.name}[{','.join(map(str, shape))}] on {device}{more}"
    if what[0] == "array":
        return "a NumPy array" + (f" {what[1]}{list(what[2])}" if len(what) > 2 else "") + " with other values"
    if what[0] == "stream":
        return f"random numbers of {what[1].__module__}.{what[1].__qualname__}, further on"
    if what[0] == "same":
        return f"the same object as {what[1]}"
    if len(what) == 1 and isinstance(what[0], tuple) and isinstance(what[0][0], type):
        kind, *value = what[0]
        shown = float.fromhex(value[0]) if kind is float else value[0] if len(value) == 1 else tuple(value)
        return f"{kind.__name__} {shown!r}"
    if what[0] == "function":
        return f"function {what[1].co_name} at line {what[1].co_firstlineno}"
    if isinstance(what[0], type):
        return f"{what[0].__name__} of {what[1]}" if len(what) > 1 else what[0].__name__
    return " ".join(getattr(w, "__name__", str(w)) for w in what)
