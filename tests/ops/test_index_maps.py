"""Index maps of the op table, held against the entries' NumPy references on the samples of the conformance tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from firebrick.core.op import Element, Op, Sample
from firebrick.ops import OPS

Array = np.ndarray[Any, Any]

MAPPED = [name for name, op in OPS.items() if op.index_map is not None]
SUMMED = {"sum": np.sum, "mean": np.mean, "prod": np.prod, "max": np.max, "min": np.min, "all": np.all, "any": np.any}


def grid(shape: tuple[int, ...], more: int = 0) -> tuple[Array | int, ...]:
    """The indices of all elements, with ``more`` axes of size 1 behind; 0 for an axis of size 1, as in the contract."""
    return tuple(
        0 if d == 1 else np.arange(d).reshape([-1 if b == a else 1 for b in range(len(shape))] + [1] * more)
        for a, d in enumerate(shape)
    )


def read(op: Op, sample: Sample, shape: tuple[int, ...], slot: int = 0, along: Any = None, more: int = 0) -> list[Array]:
    """The elements of each operand that the map names, for all elements of a result, broadcast together."""
    arrays = [np.asarray(a) for a in sample.inputs]

    def value(operand: int, index: Any, size: int) -> Any:
        found = arrays[operand][index].astype(np.int64)
        return np.where(found < 0, found + size, found)

    assert op.index_map is not None
    own = grid(shape, more)
    element = Element(own, along or own.__getitem__, slot, value)
    where = op.index_map(element, [a.shape for a in arrays], **sample.params)
    return [np.broadcast_arrays(a[index], *[np.zeros(shape + (1,) * more)])[0] for a, index in zip(arrays, where, strict=False)]


def samples(op: Op) -> list[Sample]:
    found = [s for d in op.dtypes[:1] for s in op.samples(np.random.default_rng(0), d)]
    return [s for s in found if all(np.asarray(a).size for a in s.inputs)]


def reference(op: Op, *arrays: Array, **params: Any) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        found = op.reference(*arrays, **params)
    return tuple(found) if isinstance(found, (tuple, list)) else (np.asarray(found),)


ELEMENTWISE = [n for n in MAPPED if OPS[n].fusion == "map" and n not in ("take", "gather", "ravel_index")]
MOVING = [n for n in MAPPED if OPS[n].fusion == "move" or n in ("take", "gather")]


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_elementwise_result_is_that_of_the_elements_that_the_map_names(name: str) -> None:
    op = OPS[name]
    for s in samples(op):
        (want,) = reference(op, *s.inputs, **s.params)
        (got,) = reference(op, *(x.astype(np.asarray(a).dtype) for x, a in zip(read(op, s, want.shape), s.inputs, strict=True)),
                           **s.params)  # fmt: skip
        np.testing.assert_array_equal(got, want, err_msg=s.name)


@pytest.mark.parametrize("name", MOVING)
def test_what_is_moved_is_the_element_that_the_map_names(name: str) -> None:
    op = OPS[name]
    for s in samples(op):
        numbered = Sample((np.arange(np.asarray(s.inputs[0]).size).reshape(np.shape(s.inputs[0])), *s.inputs[1:]), s.params)
        for slot, want in enumerate(reference(op, *numbered.inputs, **s.params)):
            np.testing.assert_array_equal(read(op, numbered, want.shape, slot)[0].reshape(want.shape), want, err_msg=s.name)


@pytest.mark.parametrize("name", [n for n in MAPPED if n in SUMMED or n in ("argmax", "argmin")])
def test_a_reduction_is_over_the_elements_that_the_map_names(name: str) -> None:
    op = OPS[name]
    for s in samples(op):
        x = np.asarray(s.inputs[0])
        axes = s.params["axes"] if "axes" in s.params else (s.params["axis"],)
        (want,) = reference(op, x, **s.params)

        def along(axis: int, x: Array = x, axes: tuple[int, ...] = axes) -> Array:
            return np.arange(x.shape[axis]).reshape([-1 if a == axis else 1 for a in axes])

        (rows,) = read(op, s, want.shape, along=along, more=len(axes))
        last = tuple(range(rows.ndim - len(axes), rows.ndim))
        fold = SUMMED.get(name) or (lambda v, axis, name=name: getattr(np, name)(v, axis=axis[0]))
        with np.errstate(all="ignore"):
            got = fold(rows, axis=last)
        np.testing.assert_allclose(got, want, rtol=1e-12, err_msg=s.name)


def test_a_product_sums_over_the_elements_that_the_map_names() -> None:
    op = OPS["matmul"]
    for s in samples(op):
        (want,) = reference(op, *s.inputs)
        k = np.shape(s.inputs[0])[-1]
        x, y = read(op, s, want.shape, along=lambda axis, k=k: np.arange(k), more=1)
        np.testing.assert_allclose((x * y).sum(axis=-1), want, rtol=1e-12, atol=1e-12, err_msg=s.name)


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
def test_a_row_depends_on_the_elements_that_the_map_names_and_on_no_others(name: str) -> None:
    op, rng = OPS[name], np.random.default_rng(1)
    for s in samples(op):
        arrays = [rng.uniform(0.5, 1.5, np.shape(a)) for a in s.inputs]  # where every element matters
        (before,) = reference(op, *arrays, **s.params)
        if before.size > 64:
            continue
        axis = s.params.get("axis", before.ndim - 1) % before.ndim
        for _ in range(3):
            place = tuple(int(rng.integers(d)) for d in before.shape)
            assert op.index_map is not None
            element = Element(place, lambda a, n=before.shape[axis]: np.arange(n))
            where = op.index_map(element, [a.shape for a in arrays], **s.params)
            for number, a in enumerate(arrays):
                named = np.zeros(a.shape, bool)
                named[where[number]] = True
                if number:  # weights: the element at the result's own position
                    own = op.index_map(Element(place, place.__getitem__), [b.shape for b in arrays], **s.params)[number]
                    named = np.zeros(a.shape, bool)
                    named[own] = True
                for at in np.ndindex(a.shape):
                    changed = [b.copy() for b in arrays]
                    changed[number][at] += 0.25
                    (after,) = reference(op, *changed, **s.params)
                    assert (after[place] != before[place]) == named[at] or before.shape[axis] == 1, (s.name, number, at)


def test_every_entry_whose_elements_can_be_told_has_a_map() -> None:
    without = {n for n, op in OPS.items() if op.index_map is None and op.fusion in ("map", "row", "move")}
    assert without == {
        "random_bits", "random_uniform",  # a key, and the element's position
        "pad", "concat", "slice_update",  # one operand here, another there
        "standardize", "standardize_gradient",  # written out before anything is fused
        "to_device",
    }  # fmt: skip
