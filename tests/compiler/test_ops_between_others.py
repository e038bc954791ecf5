"""Every op of the table inside a program: its operands are made by an op before it and needed by nothing after it, its result
goes into an op after it, and several of its operands may be one value. A result may then be written over an operand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations, islice
from typing import Any

import numpy as np
import pytest
from forced import kernels_of_any_size

import firebrick as fb
from firebrick.compiler.targets.llvm.lowered import Lowered
from firebrick.core.bind import bind
from firebrick.core.op import Op
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.testing import EXCLUDED
from firebrick.testing.cases import samples_of

Array = np.ndarray[Any, Any]
MOST = 1
"""Cases of an op and a dtype that `make test` takes."""


def shared(op: Op, dtype: str) -> Iterator[tuple[tuple[Array, ...], list[int], dict[str, Any]]]:
    """Operands of which two are one value, which of the values each is, and parameters."""
    for sample in samples_of(op, dtype, 0):
        arrays = sample.inputs
        for i, j in combinations(range(len(arrays)), 2):
            a, b = arrays[i], arrays[j]
            if a.dtype != b.dtype or a.shape != b.shape or not a.size:
                continue
            same = tuple(a if k == j else x for k, x in enumerate(arrays))
            try:
                run_reference(op, same, sample.params)
            except (ValueError, IndexError, np.linalg.LinAlgError):  # no operand for this place
                continue
            yield same, [i if k == j else k for k in range(len(arrays))], sample.params


def wrong(op: Op, same: tuple[Array, ...], which: list[int], params: dict[str, Any], device: str) -> str:
    """What differs from the reference; empty if nothing does."""
    yes = fb.asarray(True, device=device)

    def program(*given: Any) -> tuple[Any, ...]:
        made = [passed(x) for x in given]
        results = bind(op, tuple(made[k] for k in which), params)
        return tuple(passed(r) for r in (results if type(results) is tuple else (results,)))

    def passed(x: Any) -> Any:
        return bind(OPS["where"], (yes, x, ~x if x.dtype.kind == "bool" else x * 0), {})

    given = [fb.asarray(a, device=device) for a in same]
    want = run_reference(op, same, params)
    for name, run in (("eager", program), ("jit", fb.jit(program))):
        found = check_results(op, same, params, tuple(t.numpy() for t in run(*given)), want)
        if not found.ok:
            return f"{op.name} {name} on {device}, operands {which} of {[a.shape for a in same]}, {params}: {found}"
    return ""


def check(device: str, dtype: str, ops: list[Op], most: int | None) -> set[str]:
    """The names of the ops that had a case."""
    tried = set()
    with kernels_of_any_size():
        for op in ops:
            for same, which, params in islice(shared(op, dtype), most):
                assert wrong(op, same, which, params, device) == ""
                tried.add(op.name)
    return tried


def several(dtype: str) -> list[Op]:
    return [op for n, op in OPS.items() if n not in EXCLUDED and dtype in op.dtypes and len(op.operands) > 1]


def test_operands_that_are_one_value_are_all_read_before_it_is_written_over(device: str) -> None:
    alone = [op for op in several("float32") if op.fusion != "map"]  # of others, see test_results_over_operands.py
    assert {"index_add", "scatter_add", "scatter", "matmul", "attention"} <= check(device, "float32", alone, MOST)


@pytest.mark.soak
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "complex64", "int64", "int8", "bool"])
def test_operands_of_every_op_that_are_one_value_are_all_read_before_it_is_written_over(device: str, dtype: str) -> None:
    assert check(device, dtype, several(dtype), None)


def test_a_result_over_an_operand_that_is_read_in_another_place_too_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Lowered.of

    def of(self: Lowered, inputs: Any, count: int) -> Lowered:  # as it once was
        return replace(right(self, inputs, count), over=tuple(frozenset(inputs[i] for i in o) for o in self.over))

    monkeypatch.setattr(Lowered, "of", of)
    op = OPS["index_add"]
    with kernels_of_any_size():
        assert any(wrong(op, *case, "cpu:0") for case in shared(op, "float32"))
