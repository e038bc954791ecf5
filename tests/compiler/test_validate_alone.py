"""Whether specifications of nodes with kernels of their own are proved, and planted wrong ones are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lowered_bodies import body_of
from naive_forms import WITH_KERNELS, groups

from firebrick.compiler.fusion.facts import KINDS
from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.spec.copy import Copy, Piece
from firebrick.compiler.spec.kinds import KINDS as KINDS_OF_SPECS
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.targets.llvm import lower
from firebrick.core.views import View, row_major, strided
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.testing.cases import samples_of

N = 4
X = np.zeros((N, N), np.float32)
FAMILIES = sorted({op.reference.__module__ for op in OPS.values()})


@pytest.mark.parametrize("family", FAMILIES, ids=lambda m: m.rsplit(".", 1)[-1])
def test_every_sample_of_every_op_that_has_kernels_is_proved(family: str) -> None:
    for op in [op for op in OPS.values() if op.reference.__module__ == family]:
        for dtype in op.dtypes:
            for sample in samples_of(op, dtype, 0):
                arrays = [np.asarray(a) for a in sample.inputs]
                body = body_of(arrays, (op.name, tuple(range(len(arrays))), sample.params))
                if lower.kind_of(body.nodes[0], tuple(body.inputs)) in KINDS:
                    assert doubt(body, spec_of(body)) == "", f"{op.name} {dtype} {sample.name}"


@pytest.mark.parametrize("name", [n for n in WITH_KERNELS if not KINDS_OF_SPECS[OPS[n].kind].grouped])
def test_what_the_processor_leaves_to_the_host_is_proved_too(name: str) -> None:
    for g in groups(name):
        assert doubt(g.body, g.spec) == "", f"{name} {g.title}"


BODIES: dict[str, Graph] = {
    "concat": body_of([X, X], ("concat", (0, 1), {"axis": 1})),
    "pad": body_of([X], ("pad", (0,), {"widths": ((1, 1), (0, 2)), "value": 3})),
    "slice_update": body_of([X, X[:2]], ("slice_update", (0, 1), {"starts": (0, 0), "stops": (N, N), "steps": (2, 1)})),
    "max_pool": body_of(
        [np.zeros((N, N, N, N), np.float32)],
        ("max_pool", (0,), {"kernel": (2, 2), "stride": (1, 1), "padding": ((0, 0), (0, 0)), "dilation": (1, 1)}),
    ),
    "attention": body_of(
        [np.zeros((N, N, N), np.float32)] * 3 + [np.ones((), bool)],
        ("attention", (0, 1, 2, 3), {"scale": 0.5, "causal": False}),
    ),
    "one into zeros": body_of(
        [np.zeros((N, 1), np.int64).repeat(N, 1)],
        ("constant", (), {"value": np.float32(0)}),
        ("broadcast_to", (1,), {"shape": (N, N)}),
        ("constant", (), {"value": np.float32(1)}),
        ("broadcast_to", (3,), {"shape": (N, N)}),
        ("scatter_add", (2, 0, 4), {"axis": 1}),
    ),
    "index_add": body_of([X, np.zeros(N, np.int64), X], ("index_add", (0, 1, 2), {"axis": 0})),
    "cumulative_sum": body_of([X], ("cumulative_sum", (0,), {"axis": 1, "reverse": False})),
    "linear_recurrence": body_of([X, X], ("linear_recurrence", (0, 1), {"axis": 1, "reverse": False, "shifted": False})),
    "cumulative_max": body_of([X], ("cumulative_max", (0,), {"axis": 1, "reverse": False})),
    "sort": body_of([X], ("sort", (0,), {"axis": 1, "descending": False})),
    "top_k": body_of([X], ("top_k", (0,), {"axis": 1, "k": 2, "largest": True})),
    "searchsorted": body_of([X[0], X], ("searchsorted", (0, 1), {"right": False})),
}


WHOLE = row_major((6, 6))


def _further(view: View) -> View:
    return replace(view, offset=view.offset + 1)


def _piece(number: int, **fields: Any) -> Callable[[Copy], Copy]:
    def change(spec: Copy) -> Copy:
        pieces = list(spec.pieces)
        pieces[number] = replace(pieces[number], **fields)
        return replace(spec, pieces=tuple(pieces))

    return change


WRONG: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "operands of concat exchanged": ("concat", lambda s: _piece(0, source=1)(_piece(1, source=0)(s))),
    "both operands of concat in one place": ("concat", lambda s: _piece(1, write=s.pieces[0].write)(s)),
    "concat along the other axis": ("concat", lambda s: spec_of(body_of([X, X], ("concat", (0, 1), {"axis": 0})))),
    "an operand of concat missing": ("concat", lambda s: replace(s, pieces=s.pieces[:1])),
    "an operand of concat twice": ("concat", lambda s: replace(s, pieces=(*s.pieces, s.pieces[0]))),
    "a transposed operand of concat": ("concat", _piece(0, read=strided((N, N), (1, N)))),
    "an operand of concat from its second element on": ("concat", _piece(0, read=strided((N, N), (N, 1), 1))),
    "elements of another size": ("concat", lambda s: replace(s, itemsize=2)),
    "a piece outside of the result": ("concat", lambda s: _piece(1, write=strided((N, N), (2 * N, 1), N + 1))(s)),
    "another number around": ("pad", _piece(0, bits=0)),
    "a number over the elements": ("pad", lambda s: replace(s, pieces=(Piece(None, s.pieces[0].bits, WHOLE, WHOLE),))),
    "no number behind": ("pad", lambda s: replace(s, pieces=s.pieces[1:])),
    "a number behind twice": ("pad", lambda s: replace(s, pieces=(s.pieces[0], *s.pieces))),
    "no number behind, and one in front twice": ("pad", lambda s: replace(s, pieces=(s.pieces[1], *s.pieces[1:]))),
    "operands in another order": ("linear_recurrence", lambda s: replace(s, sources=(0, 0))),
    "elements one further": ("pad", lambda s: _piece(-1, write=_further(s.pieces[-1].write))(s)),
    "the update before the array": ("slice_update", lambda s: replace(s, pieces=s.pieces[::-1])),
    "no update": ("slice_update", lambda s: replace(s, pieces=s.pieces[:1])),
    "an update with another step": ("slice_update", _piece(1, write=strided((2, N), (N, 1)))),
    "windows of another stride": ("max_pool", lambda s: replace(s, windows=replace(s.windows, stride=(1, 2, 1)))),
    "windows one further": ("max_pool", lambda s: replace(s, windows=replace(s.windows, before=(0, 1, 0)))),
    "means of windows": ("max_pool", lambda s: replace(s, fold="mean")),
    "windows of the gradient": ("max_pool", lambda s: replace(s, gradient=True)),
    "keys for values": ("attention", lambda s: replace(s, sources=(0, 2, 1, 3))),
    "another scale": ("attention", lambda s: replace(s, scale=0.25)),
    "an order of keys": ("attention", lambda s: replace(s, causal=True)),
    "a mask of rows": ("attention", lambda s: replace(s, mask=(N, 1))),
    "another axis": ("index_add", lambda s: replace(s, outer=N, size=1, inner=N)),
    "another way to fold": ("index_add", lambda s: replace(s, fold="set")),
    "an index for each element": ("index_add", lambda s: replace(s, slices=False)),
    "updates that are a number": ("index_add", lambda s: replace(s, update=1.0)),
    "sums in another dtype": ("index_add", lambda s: replace(s, total="float64")),
    "a check of another axis": ("index_add", lambda s: replace(s, site=replace(s.site, size=N + 1))),
    "another start": ("one into zeros", lambda s: replace(s, start=-0.0)),
    "another number for every update": ("one into zeros", lambda s: replace(s, update=2.0)),
    "a running sum along the other axis": ("cumulative_sum", lambda s: replace(s, outer=1, inner=N)),
    "a running sum from the end": ("cumulative_sum", lambda s: replace(s, reverse=True)),
    "a running product": ("cumulative_sum", lambda s: replace(s, fold="prod")),
    "a running sum over two rows": ("cumulative_sum", lambda s: replace(s, outer=N // 2, size=2 * N)),
    "a running sum in float32": ("cumulative_sum", lambda s: replace(s, total="float32")),
    "a running sum of another dtype": ("cumulative_sum", lambda s: replace(s, dtype="float64")),
    "a running minimum": ("cumulative_max", lambda s: replace(s, fold="min")),
    "a recurrence by the factor before": ("linear_recurrence", lambda s: replace(s, fold="shifted_recurrence")),
    "a recurrence of terms and factors": ("linear_recurrence", lambda s: replace(s, sources=s.sources[::-1])),
    "a sort along the other axis": ("sort", lambda s: replace(s, outer=1, inner=N)),
    "a sort over two rows": ("sort", lambda s: replace(s, outer=N // 2, size=2 * N, kept=2 * N)),
    "a sort of the first half": ("sort", lambda s: replace(s, kept=N // 2)),
    "a descending sort": ("sort", lambda s: replace(s, descending=True)),
    "a sort of another dtype": ("sort", lambda s: replace(s, dtype="int32")),
    "indices of another dtype": ("sort", lambda s: replace(s, index="int32")),
    "the k smallest": ("top_k", lambda s: replace(s, descending=False)),
    "one element more": ("top_k", lambda s: replace(s, kept=3)),
    "all elements": ("top_k", lambda s: replace(s, kept=N)),
    "the k largest along the other axis": ("top_k", lambda s: replace(s, outer=1, inner=N)),
    "a search for the array in the elements": ("searchsorted", lambda s: replace(s, sources=(1, 0))),
    "a search behind equals": ("searchsorted", lambda s: replace(s, right=True)),
    "a search in more": ("searchsorted", lambda s: replace(s, size=N + 1)),
    "a search for fewer": ("searchsorted", lambda s: replace(s, count=N)),
    "a search of another dtype": ("searchsorted", lambda s: replace(s, dtype="int32")),
    "found indices of another dtype": ("searchsorted", lambda s: replace(s, index="int32")),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_specification_is_refused(name: str) -> None:
    op, change = WRONG[name]
    body = BODIES[op]
    assert doubt(body, spec_of(body)) == ""
    assert doubt(body, change(spec_of(body)))


def test_the_reason_is_what_is_wrong() -> None:
    found = [f"{name}: {doubt(BODIES[op], change(spec_of(BODIES[op])))}\n" for name, (op, change) in WRONG.items()]
    assert "".join(found) == Path(__file__).with_name("reasons_alone.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("step", [-1, 2, -3])
def test_one_row_is_written_with_any_step(step: int) -> None:
    params = {"starts": (2, 3), "stops": (2 + step, -1), "steps": (step, -1)}
    body = body_of([X, X[:1]], ("slice_update", (0, 1), params))
    assert doubt(body, spec_of(body)) == ""
    spec = spec_of(body)
    assert isinstance(spec, Copy)
    assert doubt(body, _piece(1, write=_further(spec.pieces[1].write))(spec))


def test_numbers_of_the_program_are_compared() -> None:
    body = body_of([X], ("constant", (), {"value": np.float32(2)}), ("concat", (0, 0), {"axis": 0}))
    number = body_of([X[0]], ("constant", (), {"value": np.zeros((1,), np.float32) + 2}), ("concat", (1, 0), {"axis": 0}))
    assert doubt(body, spec_of(body)) == ""
    assert doubt(number, spec_of(number)) == ""
    spec = spec_of(number)
    assert isinstance(spec, Copy)
    assert doubt(number, _piece(0, bits=1)(spec))
