"""Specifications of kernels in the kernel language."""
# ruff: noqa: F821, UP037

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from custom_groups import kernel_group, picked, picked_group, program_group
from kernel_programs import PROGRAMS
from naive_forms import run_naive

import firebrick as fb
from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.kernel.ir import For, Function, Store
from firebrick.compiler.naive import naive
from firebrick.compiler.spec.base import key, problem, structure, with_binding
from firebrick.compiler.spec.custom import Custom
from firebrick.compiler.spec.evaluate import interpret, outcome
from firebrick.compiler.spec.text import from_json, printed, to_json
from firebrick.core.errors import OperandError
from firebrick.core.views import strided
from firebrick.scalar.expr import const, local

K = fb.kernel
KERNELS = [name for name in PROGRAMS if program_group(name, PROGRAMS[name].sizes[-1]) is not None]


@pytest.mark.parametrize("name", KERNELS)
def test_the_specification_of_a_program_is_proved_and_gives_its_results(name: str) -> None:
    p = PROGRAMS[name]
    for size in p.sizes[-2:]:
        g = program_group(name, size)
        assert g is not None
        assert doubt(g.body, g.spec) == ""
        assert from_json(to_json(g.spec)) == g.spec
        assert hash(from_json(to_json(g.spec))) == hash(g.spec)
        got = interpret(g.spec, g.arrays, [a.size for a in g.results], [a.dtype.name for a in g.results])
        p.agree(tuple(x.reshape(a.shape) for x, a in zip(got, g.results, strict=True)),
                p.inputs(np.random.default_rng(size), size))  # fmt: skip
        again, fault = run_naive(naive(g.spec), g.arrays, g.results, native=False)
        assert fault is None
        assert [x.tobytes() for x in again] == [x.tobytes() for x in got]


@pytest.mark.parametrize("name", KERNELS)
def test_launches_of_a_kernel_that_differ_in_sizes_only_have_one_structure(name: str) -> None:
    p = PROGRAMS[name]
    small, large = (program_group(name, n) for n in (p.sizes[-2], p.sizes[-1]))
    assert small is not None
    assert large is not None
    if small.spec.function == large.spec.function:  # else a compile-time constant is another one
        assert with_binding(large.spec, structure(large.spec)[1]) == large.spec
    assert problem(small.spec) != problem(large.spec)


def test_sizes_are_the_binding_of_a_kernel() -> None:
    small, large = picked_group(6, 4, 3).spec, picked_group(9, 5, 2).spec
    assert key(small) == key(large)
    assert with_binding(small, structure(large)[1]) == large
    assert large.cost.flops > small.cost.flops


def test_results_begin_with_the_values_that_they_are_given() -> None:
    g = picked_group()
    out, odd, count = interpret(g.spec, g.arrays, [6, 6, 3], ["float32", "float32", "int64"])
    assert out.tolist() == [2, 4, 6, 8, 2, 4]
    assert odd.tolist() == [0.5, 2, 0.5, 4, 0.5, 2]
    assert count.tolist() == [0 + 3, 1 + 2, 2 + 1]


def test_a_fault_of_a_specification_is_that_of_the_kernel_with_its_line() -> None:
    g = picked_group()
    wrong = (g.arrays[0], np.array([0, 1, 7, 2, -3, 1]), *g.arrays[2:])
    _, fault = outcome(g.spec, wrong, [6, 6, 3], ["float32", "float32", "int64"])
    assert fault is not None
    error = g.spec.sites[fault.site].error(fault.payload)
    with pytest.raises(fb.OutOfRangeError) as raised:
        picked(*map(fb.asarray, wrong[:2]), 2.0, fb.asarray(wrong[3]))
    assert str(error) == str(raised.value)
    assert "custom_groups.py:" in str(error)


def test_the_text_shows_arrays_first_values_sizes_checks_and_statements() -> None:
    text = printed(picked_group().spec)
    for line in (
        "Custom over [6]", "  operand 0 x: input 0, float32[4], strides [1]",
        "  result 1 odd: float32[6], strides [1], before 0.5", "  result 2 count: int64[3], strides [1], before operand 3",
        "  size m = 4", "  kernel picked(",
    ):  # fmt: skip
        assert line in text
    assert "  check 0: axis 0 of x has 4, " in text


def test_the_text_shows_an_assertion_by_its_message() -> None:
    @K(grid="n")
    def roots(x: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):
        i = K.index()
        assert x[i] >= 0.0, "numbers have roots"
        out[i] = fb.sqrt(x[i])

    g = kernel_group(roots, np.ones(3, np.float32))
    assert g is not None
    assert "  check 0: numbers have roots, " in printed(g.spec)


def test_a_kernel_without_arguments_has_a_specification() -> None:
    @K(grid="3")
    def counted(out: K.Out[fb.int64, "3"]):
        out[K.index()] = K.index() * 2

    g = kernel_group(counted)
    assert g is not None
    assert doubt(g.body, g.spec) == ""
    assert interpret(g.spec, g.arrays, [3], ["int64"])[0].tolist() == [0, 2, 4]
    assert fb.jit(lambda: counted())().tolist() == [0, 2, 4]


def _stores_twice(f: Function) -> Function:
    return replace(f, body=(*f.body, Store("out", const(0, "int64"), const(0.0, "float32"))))


WRONG: dict[str, Callable[[Custom], Custom]] = {
    "operands exchanged": lambda s: replace(s, operands=(s.operands[1], s.operands[0], *s.operands[2:])),
    "an operand of another dtype": lambda s: replace(s, operands=(replace(s.operands[0], dtype="int32"), *s.operands[1:])),
    "an operand of another size": lambda s: replace(
        s, operands=(replace(s.operands[0], view=strided((3,), (1,))), *s.operands[1:])
    ),
    "an operand seen with steps": lambda s: replace(
        s, operands=(replace(s.operands[0], view=strided((4,), (2,))), *s.operands[1:])
    ),
    "results exchanged": lambda s: replace(s, results=(s.results[1], s.results[0], s.results[2])),
    "arrays of the other result": lambda s: replace(s, buffers=(*s.buffers[:3], s.buffers[4], s.buffers[3], s.buffers[5])),
    "no values before": lambda s: replace(s, results=(*s.results[:2], replace(s.results[2], copied=None))),
    "other values before": lambda s: replace(s, results=(*s.results[:2], replace(s.results[2], copied=1))),
    "another number before": lambda s: replace(
        s, results=(s.results[0], replace(s.results[1], filled=const(0.25, "float32")), s.results[2])
    ),
    "another size": lambda s: replace(s, scalars=(s.scalars[0] + 1, *s.scalars[1:])),
    "fewer items": lambda s: replace(s, grid=(5,)),
    "another kernel": lambda s: replace(s, function=_stores_twice(s.function)),
    "no check": lambda s: replace(s, checks=()),
    "a check of another axis": lambda s: replace(s, checks=(replace(s.checks[0], size=5), *s.checks[1:])),
    "a check of another line": lambda s: replace(s, checks=(replace(s.checks[0], line="elsewhere"), *s.checks[1:])),
    "another name": lambda s: replace(s, name="other"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_specification_of_a_kernel_is_refused(name: str) -> None:
    g = picked_group()
    assert doubt(g.body, g.spec) == ""
    assert doubt(g.body, WRONG[name](g.spec)) != ""


@pytest.mark.parametrize("change", [
    lambda d: d["spec"]["function"]["kernel"].pop("body"),
    lambda d: d["spec"]["function"]["kernel"]["body"].append({"kind": "Store"}),
    lambda d: d["spec"]["function"]["kernel"]["nodes"].pop(),
    lambda d: d["spec"].pop("grid"),
])  # fmt: skip
def test_a_damaged_kernel_is_no_specification(change: Any) -> None:
    found = json.loads(to_json(picked_group().spec))
    change(found)
    with pytest.raises(OperandError, match="a specification written by to_json"):
        from_json(json.dumps(found))


def test_work_is_counted_from_the_statements() -> None:
    @K(grid="n")
    def sums(x: K.In[fb.float32, "n, m"], out: K.Out[fb.float32, "n"]):
        i = K.index()
        total = fb.float32(0)
        for k in range(x.shape[1]):
            total += x[i, k] * 2.0
        out[i] = total

    @K(grid="n")
    def lower(x: K.In[fb.float32, "n, n"], out: K.Out[fb.float32, "n"]):
        i = K.index()
        total = fb.float32(0)
        for k in range(i + 1):
            total += x[i, k]
        out[i] = total

    made = kernel_group(sums, np.zeros((8, 16), np.float32))
    assert made is not None
    assert made.spec.cost.flops == 8 * 16 * 2
    assert made.spec.cost.nbytes == 4 * (8 * 16 + 8)
    triangle = kernel_group(lower, np.zeros((9, 9), np.float32))
    assert triangle is not None
    assert triangle.spec.cost.flops == 9 * (1 + 5)  # the bound of the loop, and the rounds of the item in the middle
    assert triangle.spec.cost.nbytes == 4 * (9 * 10 / 2 + 9)


def test_equal_loops_at_other_lines_are_one_kernel() -> None:
    g = picked_group()
    loop = For("k", const(0, "int64"), const(2, "int64"), 1, (Store("out", local("k", "int64"), const(0.0, "float32")),))
    a, b = (replace(g.spec, function=replace(g.spec.function, body=(replace(loop, line=text),))) for text in ("a", "b"))
    assert a == b
    assert key(a) == key(b)
