"""Specifications as JSON and as text."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from lowered_bodies import body_of

from firebrick.compiler.fusion.facts import KINDS
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.copy import Copy
from firebrick.compiler.spec.kinds import KernelSpec, spec_of
from firebrick.compiler.spec.nest import Nest
from firebrick.compiler.spec.text import from_json, printed, to_json
from firebrick.compiler.targets.llvm import lower
from firebrick.core.errors import OperandError
from firebrick.ops import OPS
from firebrick.testing.cases import samples_of


def specs() -> list[KernelSpec]:
    """A specification of every op that has kernels."""
    found = []
    for op in OPS.values():
        for dtype in [d for d in op.dtypes if d in ("float32", "bool", "int64")]:
            for sample in samples_of(op, dtype, 0):
                arrays = [np.asarray(a) for a in sample.inputs]
                body = body_of(arrays, (op.name, tuple(range(len(arrays))), sample.params))
                if lower.kind_of(body.nodes[0], tuple(body.inputs)) in (*KINDS, lower.LAPACK):
                    found.append(spec_of(body))
    return found


def test_every_kind_is_the_same_after_json_and_has_a_text() -> None:
    kinds = set()
    for spec in specs():
        assert from_json(to_json(spec)) == spec
        assert printed(spec).startswith(type(spec).__name__)
        kinds.add(type(spec).__name__)
    assert kinds == {
        "Map", "Row", "Fold", "Contract", "Attention", "Window", "Scatter", "Copy", "Prefix", "Search", "Sort", "Cholesky",
        "TriangularSolve",
    }  # fmt: skip


def test_numbers_that_json_has_no_text_for_stay_what_they_are() -> None:
    body = body_of([np.zeros(3, np.float32)], ("constant", (), {"value": np.float32("-inf")}), ("maximum", (0, 1), {}))
    assert from_json(to_json(spec_of(body))) == spec_of(body)


@pytest.mark.parametrize("change", [
    lambda d: d.pop("nodes"), lambda d: d.pop("spec"), lambda d: d["spec"].pop("domain"), lambda d: d.update(spec=3),
    lambda d: d["spec"].update(type="Kernel"), lambda d: d["nodes"].clear(), lambda d: d["spec"].update(other=1),
])  # fmt: skip
def test_what_is_no_specification_is_refused(change: Any) -> None:
    found = json.loads(to_json(spec_of(body_of([np.zeros(3, np.float32)], ("exp", (0,), {})))))
    change(found)
    with pytest.raises(OperandError, match="a specification written by to_json"):
        from_json(json.dumps(found))
    with pytest.raises(OperandError, match="a specification written by to_json"):
        from_json("[" * 100_000)


def test_the_text_says_what_is_read_and_written() -> None:
    x, w = np.zeros((4, 4), np.float32), np.zeros((4,), np.float32)
    body = body_of([x, w], ("permute", (0,), {"axes": (1, 0)}), ("matmul", (0, 2), {}), ("add", (3, 1), {}))
    assert (
        printed(spec_of(body))
        == """\
Contract
  C[4, 4] over k = 4, strides [4, 1]
    A: input 0, float32, strides [4, 1]
    B: input 0, float32, strides [4, 1]
  operand 1: input 1, float32, strides [0, 1]
  result 0: float32, strides [4, 1] = v2
    v0 = load[0]: float32
    v1 = load[1]: float32
    v2 = add v0, v1: float32"""
    )


def test_the_text_of_a_kind_without_expressions_has_each_of_its_fields() -> None:
    kinds = {type(s): s for s in specs() if not isinstance(s, Nest | Contract | Copy)}
    assert len(kinds) == 8
    for spec in kinds.values():
        lines = printed(spec).split("\n")
        assert lines == [type(spec).__name__, *(f"  {f.name}: {getattr(spec, f.name)}" for f in fields(spec))]
