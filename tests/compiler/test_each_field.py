"""Each field of each kind of specification, changed alone: it is not proved, has another key, and survives JSON."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from changed_specs import changes
from lowered_bodies import body_of

from firebrick.compiler.fusion.addressing import address_of
from firebrick.compiler.fusion.convolved import doubt_convolution
from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.spec.base import key, problem, structure, with_binding
from firebrick.compiler.spec.evaluate import outcome
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.spec.text import from_json, to_json
from firebrick.core.views import Digit, View
from firebrick.ir import CONSTANT, Graph, interpret

N = 3
RNG = np.random.default_rng(5)
X, Y, Z, W = (RNG.permutation(N * N).reshape(N, N).astype(np.float32) + k / 4 for k in range(4))
AT = np.array([2, 0, 2])
IMAGE, KERNEL = RNG.normal(size=(2, 4, 4, 4)).astype(np.float32), RNG.normal(size=(4, 2, 2, 3)).astype(np.float32)
CONV = {"stride": (1, 2), "padding": ((1, 1), (0, 2)), "dilation": (2, 1), "groups": 2}
RESULT = RNG.normal(size=(2, 4, 4, 2)).astype(np.float32)
POOL = {"kernel": (2, 2), "stride": (1, 2), "padding": ((0, 1), (1, 0)), "dilation": (1, 1)}
COMPLEX = (X + 1j * Y).astype(np.complex64)
NUMBER = ("constant", (), {"value": np.float32(3)})

GROUPS: dict[str, tuple[list[Any], tuple[Any, ...]]] = {
    "Map, a vector of rows and one of columns": ([X, Y[0], Z], (
        ("permute", (0,), {"axes": (1, 0)}), ("subtract", (3, 1), {}), ("reshape", (1,), {"shape": (N, 1)}),
        ("multiply", (4, 5), {}), ("subtract", (6, 2), {}),
    )),
    "Map, elements by index": ([X, AT, Y], (("take", (0, 1), {"axis": 0}), ("subtract", (3, 2), {}))),
    "Map, complex": ([COMPLEX, COMPLEX.T.copy()], (("multiply", (0, 1), {}),)),
    "Row": ([X, Y[0]], (("softmax", (0,), {"axis": 1}), ("multiply", (2, 1), {}))),
    "Row, less its largest": ([X], (("max", (0,), {"axes": (1,), "keepdims": True}), ("subtract", (0, 1), {}))),
    "Row, and sums of rows": ([X, Y], (
        ("sum", (0,), {"axes": (1,), "keepdims": True}), ("subtract", (1, 2), {}),
        ("sum", (3,), {"axes": (0,), "keepdims": False}),
    )),
    "Fold": ([np.stack([X, Y, Z])], (("mean", (0,), {"axes": (0, 2), "keepdims": False}),)),
    "Contract": ([X, Y, Z[0]], (("permute", (1,), {"axes": (1, 0)}), ("matmul", (0, 3), {}), ("subtract", (4, 2), {}))),
    "Contract, a batch": ([np.stack([X, Y, Z]), W], (("matmul", (0, 1), {}),)),
    "convolution": ([IMAGE, KERNEL], (("conv", (0, 1), CONV),)),
    "gradient of an image": ([RESULT, KERNEL], (("conv_input", (0, 1), {**CONV, "size": (4, 4)}),)),
    "gradient of a weight": ([IMAGE, RESULT], (("conv_weight", (0, 1), {**CONV, "kernel": (2, 3)}),)),
    "Window": ([IMAGE], (("max_pool", (0,), POOL),)),
    "Attention": ([np.stack([X, Y, Z]), np.stack([Y, Z, X]), np.stack([Z, X, Y]), X > 4], (
        ("attention", (0, 1, 2, 3), {"scale": 0.5, "causal": False}),
    )),
    "Scatter": ([X, AT, Y], (("index_add", (0, 1, 2), {"axis": 0}),)),
    "Scatter, into a number": ([AT[None].repeat(N, 0), Y], (
        NUMBER, ("broadcast_to", (2,), {"shape": (N, N)}), ("scatter_add", (3, 0, 1), {"axis": 1}),
    )),
    "Copy": ([X, Y], (("concat", (0, 1), {"axis": 1}),)),
    "Copy, a number around": ([X], (("pad", (0,), {"widths": ((1, 1), (0, 2)), "value": 3}),)),
    "Copy, over a part": ([X, Y[:2]], (("slice_update", (0, 1), {"starts": (0, 0), "stops": (N, N), "steps": (2, 1)}),)),
    "Prefix": ([X], (("cumulative_sum", (0,), {"axis": 0, "reverse": True}),)),
    "Prefix, of maxima": ([X], (("cumulative_max", (0,), {"axis": 1, "reverse": False}),)),
    "Prefix, of exponentials": ([X], (("cumulative_logsumexp", (0,), {"axis": 1, "reverse": False}),)),
    "Prefix, a recurrence": ([X, Y], (("linear_recurrence", (0, 1), {"axis": 0, "reverse": False, "shifted": False}),)),
    "Sort": ([X], (("sort", (0,), {"axis": 0, "descending": False}),)),
    "Sort, the largest": ([X], (("top_k", (0,), {"axis": 1, "k": 2, "largest": True}),)),
    "Cholesky": ([np.stack([X @ X.T, Y @ Y.T])[None] + np.eye(N, dtype=np.float32)], (("cholesky", (0,), {}),)),
    "TriangularSolve": ([np.stack([Z, Y])[:, None], np.stack([X, W])], (("solve_triangular", (0, 1), {"upper": True}),)),
    "Search": ([np.sort(X[0]), X], (("searchsorted", (0, 1), {"right": False}),)),
}  # fmt: skip

UNSEEN = re.compile(r"convolution|whole|total|sites?\.(\d\.)?(op|line)|^as |\d\.(dtype|index)$")
"""Fields that the interpreter of specifications does not read, and generators do."""


def group(name: str) -> tuple[list[Any], Graph]:
    """Arrays, and a group of nodes of them whose axes have equal sizes."""
    arrays, nodes = GROUPS[name]
    body = body_of(arrays, *nodes)
    made = [n for n in body.nodes if n.op.view is None and n.op is not CONSTANT]
    if len(made) > 1:  # the one before it too, whose expression is a part of the last one's
        body.outputs = (*made[-2].results, *made[-1].results)
    return arrays, body


def computed(arrays: list[Any], body: Graph, spec: Any) -> Any:
    """The bits of the results and the fault; the error of a specification that cannot be interpreted."""
    avals = [body.avals[v] for v in body.outputs]
    try:
        with np.errstate(all="ignore"):
            results, fault = outcome(spec, arrays, [a.size for a in avals], [a.dtype.name for a in avals])
    except (IndexError, ValueError, TypeError, AttributeError, KeyError, AssertionError) as e:
        return repr(e)
    return [x.tobytes() for x in results], fault


@pytest.mark.parametrize("name", GROUPS)
def test_a_group_is_interpreted_as_its_nodes_are(name: str) -> None:
    arrays, body = group(name)
    avals = [body.avals[v] for v in body.outputs]
    got, fault = outcome(spec_of(body), arrays, [a.size for a in avals], [a.dtype.name for a in avals])
    assert fault is None
    for x, y in zip(got, interpret(body, arrays, lambda op, xs, params: op.reference(*xs, **params)), strict=True):
        np.testing.assert_allclose(x, np.asarray(y).reshape(-1), rtol=2e-6, atol=2e-5)


@pytest.mark.parametrize("name", GROUPS)
def test_a_change_of_one_field_is_refused_or_computes_the_same(name: str) -> None:
    arrays, body = group(name)
    spec = spec_of(body)
    assert doubt(body, spec) == ""
    want, refused = computed(arrays, body, spec), 0
    assert not isinstance(want, str), want
    for path, changed in changes(spec):
        if doubt(body, changed):
            refused += 1
        elif changed != spec:
            assert not UNSEEN.search(path), path
            assert computed(arrays, body, changed) == want, path
    assert refused > 10


@pytest.mark.parametrize("name", GROUPS)
def test_a_change_of_one_field_is_another_problem_and_of_the_same_key_only_if_it_is_a_size(name: str) -> None:
    spec = spec_of(group(name)[1])
    for path, changed in changes(spec):
        if changed == spec or path.endswith(".line"):  # errors have the line; no code depends on it
            continue
        assert problem(changed) != problem(spec), path
        if key(changed) == key(spec):
            assert with_binding(spec, structure(changed)[1]) == changed, path


@pytest.mark.parametrize("name", GROUPS)
def test_a_change_of_one_field_is_in_the_json_form(name: str) -> None:
    for path, changed in changes(spec_of(group(name)[1])):
        assert from_json(to_json(changed)) == changed, path


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", ["convolution", "gradient of an image", "gradient of a weight"])
def test_a_change_of_a_part_of_a_convolution_is_no_proof_by_itself(name: str, groups: int) -> None:
    """The geometry, which determines the parts, is not asked: what is proved is what the parts compute."""
    arrays, ((op, inputs, params),) = GROUPS[name]
    if groups == 1:  # as many channels as a group has
        arrays = [arrays[0], np.concatenate([arrays[1]] * 2, 1)] if name != "gradient of a weight" else arrays
    body = body_of(arrays, (op, inputs, {**params, "groups": groups}))
    spec, (n,), shapes = spec_of(body), body.nodes, [a.shape for a in body.inputs]
    assert doubt_convolution(n, shapes, spec, address_of) == ""
    want, refused = computed(arrays, body, replace(spec, convolution=None)), 0
    for path, changed in changes(spec):
        if not path.startswith("parts") or "source" in path or "dtype" in path or path == "parts.exchanged":
            continue
        try:
            refused += bool(reason := doubt_convolution(n, shapes, changed, address_of))
        except (ValueError, IndexError, ZeroDivisionError):
            continue
        if not reason and changed != spec:
            assert computed(arrays, body, replace(changed, convolution=None)) == want, path
    assert refused > 100


def _exchanged(view: View, axis: int) -> View:
    """The first two elements of the same axis in the other order: what a wrong part of several digits may be."""
    first, *rest = view.axes[axis]
    turned = (Digit(first.size, -first.stride), *rest)
    offset = view.offset + first.stride * (first.size - 1)
    return View((*view.axes[:axis], turned, *view.axes[axis + 1 :]), offset)


@pytest.mark.parametrize("name", ["convolution", "gradient of an image", "gradient of a weight"])
def test_an_axis_that_is_reversed_in_one_array_alone_is_no_convolution(name: str) -> None:
    arrays, body = group(name)
    spec, (n,), shapes = spec_of(body), body.nodes, [a.shape for a in body.inputs]
    want, tried = computed(arrays, body, replace(spec, convolution=None)), 0
    for side in ("left", "right", "result"):
        for axis in range(3):
            part = spec.parts[0]
            if side == "result":
                changed = replace(part, result=_exchanged(part.result, axis))
            else:
                factor = getattr(part, side)
                changed = replace(part, **{side: replace(factor, view=_exchanged(factor.view, axis))})
            other = replace(spec, parts=(changed, *spec.parts[1:]))
            if other != spec and not doubt_convolution(n, shapes, other, address_of):
                assert computed(arrays, body, replace(other, convolution=None)) == want, (side, axis)
            tried += other != spec
    assert tried > 5
