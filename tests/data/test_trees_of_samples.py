"""Trees of samples apart from loaders: their structure, leaves and paths, and copies that share no memory."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.data import LoaderError
from firebrick.data.owning import owned, owned_arrays, unshared
from firebrick.data.structure import LEAF, Structure, leaves_of, structure_of

Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Sample:
    x: Any
    label: Any


TREES: list[tuple[Any, str, list[str]]] = [
    (1, "array", [""]), ((1, 2), "(array, array)", ["[0]", "[1]"]), ((1,), "(array,)", ["[0]"]), ((), "()", []),
    ({"b": 1, "a": (2, 3)}, "{'b': array, 'a': (array, array)}", ["['b']", "['a'][0]", "['a'][1]"]),
    (Pair(1, {"k": 2}), "Pair(x=array, y={'k': array})", [".x", ".y['k']"]),
    (Sample((1, 2), 3), "Sample(x=(array, array), label=array)", [".x[0]", ".x[1]", ".label"]),
    ((1, None, {}), "(array, None, {})", ["[0]"]), ([1, 2], "array", [""]),
]  # fmt: skip


@pytest.mark.parametrize(("tree", "text", "paths"), TREES, ids=lambda v: str(v)[:30])
def test_a_tree_is_taken_apart_and_built_again(tree: Any, text: str, paths: list[str]) -> None:
    structure = structure_of(tree)
    leaves = structure.leaves(tree)
    assert (str(structure), structure.paths(), len(leaves)) == (text, paths, len(paths))
    assert leaves_of(tree) == (leaves if type(tree) is not list else tree)  # of batches, lists are parts
    built = structure.build(iter(leaves))
    assert (built, type(built)) == (tree, type(tree))
    assert structure.like(structure_of(tree))


def test_structures_are_alike_whatever_the_order_of_keys() -> None:
    structures = [structure_of(t) for t, _, _ in TREES[:-1]]
    for k, one in enumerate(structures):
        for n, other in enumerate(structures):
            assert one.like(other) == (k == n)
    one, other = {"a": 1, "b": (2, 3)}, {"b": (2, 3), "a": 1}
    assert structure_of(one).like(structure_of(other))
    assert structure_of(one).leaves(other) == [1, 2, 3]
    for different in ({"a": 1, "c": (2, 3)}, {"a": 1, "b": 2}, {"a": 1}, {"a": 1, "b": (2, 3), "c": 4}, Pair(1, (2, 3))):
        assert not structure_of(one).like(structure_of(different))
        with pytest.raises(LoaderError) as caught:
            structure_of(one).leaves(different)
        assert caught.value.received == f"{structure_of(one)} and {structure_of(different)}"


def test_lists_are_parts_of_a_tree_where_that_is_asked() -> None:
    structure = structure_of([1, (2, 3)], lists=True)
    assert (str(structure), structure.paths()) == ("[array, (array, array)]", ["[0]", "[1][0]", "[1][1]"])
    assert structure.build(iter(structure.leaves([1, (2, 3)]))) == [1, (2, 3)]
    assert (structure.flat, structure_of([1, 2], lists=True).flat, structure_of((1, 2)).flat) == (False, True, True)
    assert (structure_of({"a": 1}).flat, structure_of({"a": 1}).shallow, structure.shallow) == (False, True, False)
    assert structure_of(5) == LEAF == Structure(None)


def arrays_in(value: Any) -> list[np.ndarray[Any, Any]]:
    return [v for v in leaves_of(value) if isinstance(v, np.ndarray)]


class Own(np.ndarray):  # type: ignore[type-arg]
    """A class of arrays of someone's own."""


@pytest.mark.parametrize("copied", [owned, unshared], ids=["owned", "unshared"])
def test_a_copy_is_the_same_and_shares_no_memory(copied: Any) -> None:
    a, b = np.arange(3), np.arange(4.0).view(Own)
    for sample in ((a, b), {"a": a, "n": 3, "t": "text"}, Pair(a, (b, None)), Sample(a, {"k": b}), [a, [b]], a, b):
        found = copied(sample)
        assert type(found) is type(sample)
        for one, other in zip(arrays_in(sample), arrays_in(found), strict=True):
            assert type(one) is type(other)
            assert one.tobytes() == other.tobytes()
            assert not np.shares_memory(one, other)
        assert str(structure_of(found)) == str(structure_of(sample))
    assert copied({"n": 3, "t": "text", "none": None}) == {"n": 3, "t": "text", "none": None}
    assert copied(np.float32(2.0)) == np.float32(2.0)
    x = fb.ones(2)
    kept = copied((x,))[0]
    x += 1.0
    assert (kept.tolist(), x.tolist()) == ([1.0, 1.0], [2.0, 2.0])


def test_mappings_and_lists_are_copied_by_their_kinds() -> None:
    a = np.arange(3)
    found = owned(OrderedDict(x=a))
    assert (type(found), found["x"].tolist()) == (dict, [0, 1, 2])
    assert not np.shares_memory(found["x"], a)
    nested = unshared([a, {"y": [a]}])
    assert not np.shares_memory(nested[0], a)
    assert not np.shares_memory(nested[1]["y"][0], a)


def test_only_arrays_that_somebody_else_holds_are_copied() -> None:
    held, whole = np.arange(3), np.arange(6)
    given = [np.arange(4), held, whole[:3]]
    alone = given[0].ctypes.data
    found = owned_arrays(given)
    assert found is given
    assert found[0].ctypes.data == alone
    assert found[1].ctypes.data != held.ctypes.data
    assert found[2].base is None
    assert [v.tolist() for v in found] == [[0, 1, 2, 3], [0, 1, 2], [0, 1, 2]]
