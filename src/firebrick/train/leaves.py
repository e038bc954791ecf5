"""A step as graphs whose batches may hold dataclasses.

A graph takes the tensors of tuples, lists and dicts as inputs. An object among its arguments is looked through instead, with
the labels of its tensors where code reads an attribute of that name, such as a field; those differ from batch to batch. So a
batch with a dataclass in it goes into a graph as a dict of its leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firebrick.data.structure import Structure, structure_of
from firebrick.graph import Recompile, jit

_STRUCTURE = "structure of a batch"  # the key that tells such a dict


class LeafGraphs:
    """A function under ``jit`` that is given the leaves of its arguments, and takes them by ``as_given``.

    Args:
        fn: The function.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._jit = jit(fn)

    def __call__(self, *args: Any) -> Any:
        return self._jit(*map(_leaves, args))

    @property
    def traces(self) -> int:
        """How often it has been traced."""
        return int(self._jit.traces)

    def reasons(self) -> list[Recompile]:
        """Why each graph was made."""
        found: list[Recompile] = self._jit.reasons()
        return found


def _leaves(tree: Any) -> Any:
    """A tree with a dataclass in it as a dict of its leaves and its structure; any other value as it is."""
    if type(tree) not in (tuple, list, dict) and not hasattr(type(tree), "__dataclass_fields__"):
        return tree
    structure = structure_of(tree, lists=True)
    if not _has_dataclass(structure):
        return tree
    return {_STRUCTURE: _Held(structure), **{str(i): v for i, v in enumerate(structure.leaves(tree))}}


def as_given(tree: Any) -> Any:
    """What ``LeafGraphs`` was given; any other value as it is."""
    if type(tree) is not dict or _STRUCTURE not in tree:
        return tree
    leaves = iter(tree.values())
    held = next(leaves)
    return held.structure.build(leaves)


def _has_dataclass(structure: Structure) -> bool:
    kind = structure.kind
    return hasattr(kind, "__dataclass_fields__") or any(map(_has_dataclass, structure.parts))


class _Held:
    """A structure, which no leaf is looked for in."""

    def __init__(self, structure: Structure) -> None:
        self.structure = structure
