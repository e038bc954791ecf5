"""The specification of a scatter: its sizes, the dtype that it is computed in, and operands that are constants."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from lowered_bodies import body_of

from firebrick.compiler.fusion.row_updates import PUT_ROWS
from firebrick.compiler.spec.faults import Site
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.spec.scatter import FEW, Scatter, summed_in
from firebrick.core.aval import Aval
from firebrick.core.dtypes import dtype
from firebrick.ir import Graph

SHAPE = (2, 5, 3)
NAMES = {"set": "scatter", "add": "scatter_add"}


def numpy_dtype(name: str) -> Any:
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def spec(fold: str, name: str, start: Any = None, update: Any = None, count: int = 4, axis: int = 1) -> Scatter:
    """That of a scatter along an axis; ``start`` and ``update`` are constants in place of arrays."""
    of, shape = numpy_dtype(name), tuple(count if a == axis else n for a, n in enumerate(SHAPE))
    arrays, nodes, operands = [np.zeros(shape, np.int64)], [], []
    for number, sizes in ((start, SHAPE), (update, shape)):
        if number is None:
            arrays.append(np.zeros(sizes, of))
    free = len(arrays)
    given = 1
    for number, sizes in ((start, SHAPE), (update, shape)):
        if number is None:
            operands.append(given)
            given += 1
        else:
            nodes += [("constant", (), {"value": np.array(number, of)}), ("broadcast_to", (free,), {"shape": sizes})]
            operands.append(free + 1)
            free += 2
    params = {"axis": axis} | ({} if fold in NAMES else {"mode": fold})
    nodes.append((NAMES.get(fold, "scatter_reduce"), (operands[0], 0, operands[1]), params))
    found = spec_of(body_of(arrays, *nodes))
    assert isinstance(found, Scatter)
    return found


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_an_array_is_viewed_around_its_axis(axis: int) -> None:
    s = spec("add", "float32", axis=axis)
    assert (s.outer, s.size, s.inner) == ([1, 2, 10][axis], SHAPE[axis], [15, 3, 1][axis])
    assert (s.count, s.slices, s.index, s.sources) == (4, False, "int64", (1, 0, 2))
    assert s.site == Site("scatter_add", SHAPE[axis], "")
    assert s.sites == (s.site,)


def test_slices_are_as_many_as_there_are_indices() -> None:
    arrays = [np.zeros(SHAPE, np.float32), np.zeros(2, np.int32), np.zeros((2, 2, 3), np.float32)]
    s = spec_of(body_of(arrays, ("index_add", (0, 1, 2), {"axis": 1})))
    assert isinstance(s, Scatter)
    assert (s.outer, s.size, s.inner, s.count, s.slices, s.index) == (2, 5, 3, 2, True, "int32")


@pytest.mark.parametrize(("fold", "name", "few", "many"), [
    *((fold, name, name, name) for fold in ("set", "min", "max") for name in ("float16", "float32", "float64", "int8")),
    *((fold, name, "float32", "float32") for fold in ("add", "mul") for name in ("float16", "bfloat16")),
    *((fold, "float32", "float32", "float64") for fold in ("add", "mul")),
    *((fold, name, name, name) for fold in ("add", "mul") for name in ("float64", "int8", "int64")),
])  # fmt: skip
def test_more_than_a_few_updates_are_combined_in_a_wider_dtype(fold: str, name: str, few: str, many: str) -> None:
    assert [summed_in(fold, name, count) for count in (1, FEW, FEW + 1)] == [few, few, many]
    assert spec(fold, name, start=0, update=0, count=FEW).total == few
    assert spec(fold, name, start=0, update=0, count=FEW + 1).total == many


def test_half_precision_is_assigned_as_bits_unless_an_operand_is_a_number() -> None:
    for name in ("float16", "bfloat16"):
        assert (spec("set", name).dtype, spec("set", name).total) == ("uint16", "uint16")
        assert spec("set", name, start=1).dtype == spec("set", name, update=1).dtype == spec("add", name).dtype == name
    assert spec("set", "float32").dtype == "float32"


@pytest.mark.parametrize(("name", "number"), [
    ("bool", True), ("int8", -128), ("int64", 2**53 + 1), ("int64", -(2**63)), ("uint64", 2**64 - 1), ("uint8", 255),
    ("float16", 0.1), ("bfloat16", 0.1), ("float32", 0.1), ("float64", 0.1), ("float64", 1e300),
])  # fmt: skip
def test_a_constant_operand_is_a_number_of_python_with_its_value(name: str, number: Any) -> None:
    kind = {"b": bool, "i": int, "u": int}.get(np.dtype(numpy_dtype(name)).kind, float)
    wanted = kind(np.array(number, numpy_dtype(name)).astype(np.float64).item() if kind is float else number)
    assert dtype(numpy_dtype(name)).name == name
    for s, found, sources in (
        (spec("set", name, start=number), "start", (0, 1)), (spec("set", name, update=number), "update", (1, 0)),
        (spec("set", name, start=number, update=number), "start", (0,)),
    ):  # fmt: skip
        value = getattr(s, found)
        assert type(value) is kind
        assert value == wanted
        assert s.sources == sources
    assert spec("set", name, start=number).update is spec("set", name, update=number).start is None


def test_rows_that_are_known_to_be_in_range_are_not_checked() -> None:
    g = Graph([Aval((7, 2, 3), dtype("float32")), Aval((4,), dtype("int64")), Aval((4, 2, 3), dtype("float32"))])
    g.outputs = g.add(PUT_ROWS, 0, 1, 2)
    s = spec_of(g)
    assert isinstance(s, Scatter)
    assert (s.outer, s.size, s.inner, s.count, s.slices, s.fold) == (1, 7, 6, 4, True, "set")
    assert s.site is None
    assert s.sites == ()
