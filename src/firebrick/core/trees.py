"""Nested containers of tensors (dicts, lists, tuples, dataclasses), through optree: flatten, map, rebuild.

``None`` is a leaf-less node. Leaves keep their order: dict keys sorted, the rest as written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree


def flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], Any]:
    """The leaves of ``tree`` in order, and its structure."""
    leaves, spec = optree.tree_flatten(tree, is_leaf=is_leaf)
    return list(leaves), spec


def unflatten(spec: Any, leaves: list[Any]) -> Any:
    """The tree of structure ``spec`` over ``leaves``."""
    return optree.tree_unflatten(spec, leaves)


def tree_map(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """``fn`` over every leaf (and the matching leaves of ``rest``).

    Args:
        fn: Function of one leaf of each tree.
        tree: Nested lists, tuples and dicts.
        *rest: Trees of the same structure.

    Example:
        >>> import firebrick as fb
        >>> fb.tree_map(lambda n: n + 1, {"a": 1, "b": [2, 3]})
        {'a': 2, 'b': [3, 4]}
    """
    return optree.tree_map(fn, tree, *rest)


def children(tree: Any) -> list[tuple[Any, Any]] | None:
    """The entries of a container and what they hold; None for a leaf."""
    if tree is None or optree.tree_is_leaf(tree):
        return None
    held, _, entries, _ = optree.tree_flatten_one_level(tree)
    return list(zip(entries, held, strict=True))


def shown(tree: Any) -> str:
    """The containers of a tree, with * for each leaf."""
    return str(optree.tree_structure(tree)).removeprefix("PyTreeSpec(").removesuffix(")")


def leaves_with_paths(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[tuple[str, Any]]:
    """Each leaf with a readable path such as ``['w'][0]``."""
    paths, leaves, _ = optree.tree_flatten_with_path(tree, is_leaf=is_leaf)
    return [("".join(f"[{p!r}]" for p in path), leaf) for path, leaf in zip(paths, leaves, strict=True)]
