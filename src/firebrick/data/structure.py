"""Samples and batches that are trees: dicts, tuples and dataclasses, nested in any way, over arrays or tensors.

A loader takes the tree of a sample apart into its leaves and a ``Structure``, works with the list of leaves, and builds a batch
of the same structure. So everything between the two, workers, devices and divisions of rows, knows lists of arrays alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from firebrick.data.errors import LoaderError

_NONE = type(None)


@dataclass(frozen=True, slots=True)
class Structure:
    """A tree without its leaves.

    Attributes:
        kind: dict, tuple, list, or the class of a named tuple or dataclass; the type of None, which is kept as it is; None for
            a leaf.
        keys: Keys of a dict in its order, names of fields; empty for others.
        parts: The subtrees.
    """

    kind: type | None
    keys: tuple[Any, ...] = ()
    parts: tuple[Structure, ...] = ()

    @property
    def flat(self) -> bool:
        """Whether it is a tuple or list of leaves."""
        return self.kind in (tuple, list) and self.shallow

    @property
    def shallow(self) -> bool:
        """Whether all of its parts are leaves."""
        return all(p.kind is None for p in self.parts)

    def like(self, other: Structure) -> bool:
        """Whether both are one structure, whatever the order of keys."""
        if self.kind is not other.kind or len(self.parts) != len(other.parts):
            return False
        if self.kind is not dict:
            return all(a.like(b) for a, b in zip(self.parts, other.parts, strict=True))
        theirs = dict(zip(other.keys, other.parts, strict=True))
        return all(k in theirs and p.like(theirs[k]) for k, p in zip(self.keys, self.parts, strict=True))

    def build(self, leaves: Iterator[Any]) -> Any:
        """The tree over its leaves; a dataclass is made without its constructor, which may expect other values."""
        if self.kind is None:
            return next(leaves)
        if self.kind is _NONE:
            return None
        parts = [p.build(leaves) for p in self.parts]
        if self.kind is dict:
            return dict(zip(self.keys, parts, strict=True))
        if issubclass(self.kind, tuple):
            return tuple.__new__(self.kind, parts)
        if self.kind is list:
            return parts
        made = object.__new__(self.kind)
        for name, part in zip(self.keys, parts, strict=True):
            object.__setattr__(made, name, part)  # frozen ones too
        return made

    def leaves(self, tree: Any) -> list[Any]:
        """The leaves of a tree of this structure, in its order; the keys of a dict may come in another one.

        Raises:
            LoaderError: The tree has another structure.
        """
        out: list[Any] = []
        if not self._collect(tree, out):
            other = structure_of(tree)
            raise LoaderError(
                "samples have one structure", f"{self} and {other}", "let the data set give samples of one structure"
            )
        return out

    def _collect(self, tree: Any, out: list[Any]) -> bool:
        kind = _kind(tree, lists=self.kind is list)
        if kind is not self.kind:
            return False
        if kind is None:
            out.append(tree)
            return True
        if kind is dict and (len(tree) != len(self.keys) or any(k not in tree for k in self.keys)):
            return False
        parts = _parts(kind, self.keys, tree)
        return len(parts) == len(self.parts) and all(p._collect(v, out) for p, v in zip(self.parts, parts, strict=True))

    def paths(self, path: str = "") -> list[str]:
        """Where each leaf is, as it is written in Python behind the name of the tree."""
        if self.kind is None:
            return [path]
        if self.kind is dict:
            steps = [f"[{k!r}]" for k in self.keys]
        else:
            steps = [f".{k}" for k in self.keys] if self.keys else [f"[{i}]" for i in range(len(self.parts))]
        return [found for step, p in zip(steps, self.parts, strict=True) for found in p.paths(path + step)]

    def __str__(self) -> str:
        if self.kind in (None, _NONE):
            return "array" if self.kind is None else "None"
        if self.kind is dict:
            return "{" + ", ".join(f"{k!r}: {p}" for k, p in zip(self.keys, self.parts, strict=True)) + "}"
        if self.keys:
            assert self.kind is not None
            named = ", ".join(f"{k}={p}" for k, p in zip(self.keys, self.parts, strict=True))
            return f"{self.kind.__name__}({named})"
        inner = ", ".join(map(str, self.parts))
        if self.kind is list:
            return f"[{inner}]"
        return f"({inner},)" if len(self.parts) == 1 else f"({inner})"


LEAF = Structure(None)
_NOTHING = Structure(_NONE)


def structure_of(tree: Any, *, lists: bool = False) -> Structure:
    """The structure of a tree.

    Args:
        tree: Dicts (other mappings are taken as such), tuples and dataclasses, nested; anything else is a leaf.
        lists: Whether a list is part of the tree; of samples, it is an array that is written as a list.
    """
    kind = _kind(tree, lists=lists)
    if kind is None:
        return LEAF
    if kind is _NONE:
        return _NOTHING
    keys: tuple[Any, ...] = ()
    if kind is dict:
        keys = tuple(tree)
    elif hasattr(kind, "_fields"):
        keys = tuple(kind._fields)
    elif kind not in (tuple, list):
        keys = tuple(f.name for f in fields(kind))
    return Structure(kind, keys, tuple(structure_of(v, lists=lists) for v in _parts(kind, keys, tree)))


def leaves_of(tree: Any) -> list[Any]:
    """The leaves of a batch, lists among its nodes."""
    return structure_of(tree, lists=True).leaves(tree)


def tree_of(fn: Callable[[Any], Any], tree: Any) -> Any:
    """The batch of ``fn`` over the leaves of a batch, lists among its nodes."""
    structure = structure_of(tree, lists=True)
    return structure.build(iter([fn(leaf) for leaf in structure.leaves(tree)]))


def _kind(tree: Any, *, lists: bool) -> type | None:
    """The kind of a node; None of a leaf."""
    kind = type(tree)
    if kind is tuple or kind is dict or kind is _NONE:
        return kind
    if kind is list:
        return kind if lists else None
    if isinstance(tree, tuple):
        return kind if hasattr(kind, "_fields") else tuple
    if hasattr(kind, "__dataclass_fields__"):
        return kind
    return dict if isinstance(tree, Mapping) else None


def _parts(kind: type, keys: tuple[Any, ...], tree: Any) -> list[Any]:
    """What is directly below a node, in the order of its keys."""
    if kind is dict:
        return [tree[k] for k in keys]
    if kind is _NONE:
        return []
    return [getattr(tree, k) for k in keys] if keys and not isinstance(tree, tuple) else list(tree)
