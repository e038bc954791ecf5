"""Damage to JSON: values of other types, extreme numbers, deep nesting, keys that are missing, twice or others."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any

_MARK = "\x00raw:"  # of text that stands in the JSON as it is

DEEP = tuple(_MARK + "[" * n + "]" * n for n in (90, 900, 100_000))
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 2**31, 2**53 + 1, 2**63, 2**70, -(2**63) - 1, 0.5, 1e308, "", "a", "float32", "object", "O",
    "<U9", "float8_e4m3fn", "complex64", "\ud800", "x" * 5000, "../../etc/passwd", [], {}, [[]], [0], [-1], [2**62, 4], [0,
    2**63],
    [1] * 300, {"a": 1}, {"$tensor": "absent"}, {"$tensor": []}, {"$tuple": 5}, {"$array": 5}, {"float": "7ff0000000000000"},
    {"$array": {"dtype": "float32", "shape": [2**40], "values": [1]}}, {"$array": {"dtype": "uint32", "shape": [1],
    "values": [-1]}},
    {"$array": {"dtype": "object", "shape": [1], "values": [None]}}, {"tuple": 3}, {"array": {"dtype": "int8",
    "shape": [2**50], "data": ""}},
    {"array": {"dtype": "float32", "shape": [2], "data": "!"}}, {"dict": [[[], 1]]}, {"slice": [1]}, {"dtype": "nothing"},
    {"device": "nowhere:0"}, {"device": "numpy:999999999999"}, {"graph": {}}, {"aval": ["float32", ["x"]]}, {"float": "zz"},
    _MARK + "NaN", _MARK + "Infinity", _MARK + "-Infinity", _MARK + "1e999", _MARK + "9" * 5000, _MARK + '"\\ud800"', *DEEP,
    _MARK + '{"a":' * 900 + "1" + "}" * 900, _MARK + '{"$tuple":[' * 400 + "]}" * 400,
    _MARK + "[" + ",".join(["[]"] * 60_000) + "]",
    _MARK + '{"tuple":[' * 400 + "]}" * 400, _MARK + '{"a":1,"a":2}',
)  # fmt: skip


def paths(tree: Any, most: int = 4000) -> list[tuple[Any, ...]]:
    """The way to each value of a tree."""
    found: list[tuple[Any, ...]] = [()]
    for way in found:
        if len(found) > most:
            break
        node = at(tree, way)
        keys = node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        found += [(*way, k) for k in keys]
    return found


def at(tree: Any, way: tuple[Any, ...]) -> Any:
    """The value at the end of a way."""
    for k in way:
        tree = tree[k]
    return tree


def damaged(rng: Random, content: bytes) -> bytes:
    """JSON text with a few changes."""
    tree = json.loads(content)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        tree = _changed(rng, tree)
    return text_of(tree)


def _changed(rng: Random, tree: Any) -> Any:
    ways = paths(tree)
    way = rng.choice(ways)
    if not way:
        return deepcopy(rng.choice(_VALUES)) if rng.random() < 0.2 else _changed(rng, tree) if len(ways) > 1 else tree
    owner, k = at(tree, way[:-1]), way[-1]
    how = rng.randrange(10)
    if how < 6:
        owner[k] = deepcopy(rng.choice(_VALUES))
    elif how == 6:
        del owner[k]
    elif how == 7:
        owner[k] = json.loads(json.dumps(at(tree, rng.choice(ways))))
    elif how == 8 and isinstance(owner, dict):
        owner[rng.choice((str(k) + " ", "", "\ud800", str(k).upper(), "$tensor", "x" * 1000))] = deepcopy(owner[k])
    elif isinstance(owner, dict):
        owner[_MARK + str(k)] = deepcopy(rng.choice(_VALUES))  # the key twice
    else:
        owner.insert(k, deepcopy(owner[k]))
    return tree


def text_of(tree: Any) -> bytes:
    """The tree as JSON; marked text as it is, and a marked key once more."""
    raw: list[str] = []

    def prepared(v: Any) -> Any:
        if isinstance(v, str) and v.startswith(_MARK):
            raw.append(v[len(_MARK) :])
            return f"{_MARK}{len(raw) - 1}{_MARK}"
        if isinstance(v, dict):
            return {k: prepared(x) for k, x in v.items()}
        return [prepared(x) for x in v] if isinstance(v, list) else v

    text = json.dumps(prepared(tree))
    mark = json.dumps(_MARK)[1:-1]
    for i, r in enumerate(raw):
        text = text.replace(f'"{mark}{i}{mark}"', r)
    return text.replace(mark, "").encode()
