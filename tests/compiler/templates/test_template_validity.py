"""``Template.valid_for``: what it accepts, the interpreter computes as NumPy and torch do; what contradicts itself is refused.

Each test is for all templates of the table ``template_problems.CASES``.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from template_problems import CASES, Posed, basic, drawn

from firebrick.compiler import templates
from firebrick.compiler.kernel.ir import expressions, statements
from firebrick.compiler.templates import TemplateProblem
from firebrick.core.dtypes import dtype, int32
from firebrick.core.errors import KernelCompileError, OperandError
from firebrick.scalar.expr import walk

EVERY = pytest.mark.parametrize("name", CASES)
DTYPES = ("float16", "float32", "float64", "int32", "uint8", "bool")
MAY_BE_0 = ("shift", "padding_h", "padding_w")


def accepts(posed: Posed) -> bool:
    """Whether there is a problem of these sizes, and the template says that it computes it."""
    try:
        return posed.valid()
    except ValueError:  # a size below 0
        return False


def test_every_template_has_a_problem() -> None:
    made = {n for n in templates.__all__ if hasattr(getattr(templates, n), "cache_info")}
    assert made == {c.template.name for c in CASES.values()}


@pytest.mark.parametrize("draws", [1, pytest.param(10, marks=pytest.mark.soak)])
@EVERY
def test_a_template_computes_the_drawn_problems_that_it_is_valid_for(name: str, draws: int) -> None:
    rng = np.random.default_rng(len(name))
    for _ in range(draws):
        accepted: list[Posed] = []
        while len(accepted) < 5:
            posed = drawn(CASES[name], rng, accepted[0].constants if accepted else None)
            if accepts(posed):
                posed.agree(rng)
                accepted.append(posed)


def changes_of(name: str) -> list[dict[str, Any]]:
    """Constants other than those of the basic problem: each value alone, and some together."""
    return [*({n: v} for n, values in CASES[name].constants.items() for v in values[1:]), *CASES[name].more]


def computed_with(name: str, changes: list[dict[str, Any]]) -> None:
    posed, rng = basic(CASES[name]), np.random.default_rng(0)
    assert posed.valid()
    for changed in [{}, *changes]:
        other = replace(posed, constants=posed.constants | changed)
        if accepts(other):
            other.agree(rng)


ALIKE = [
    ["convolution", "convolution with operands"],
    ["gradient of a convolution by its input", "gradient of a convolution by its input, with operands"],
    ["attention", "gradient of attention by the query", "gradients of attention by key and value"],
]
"""Templates with the same constants, which take turns at the values of these; others take every other value."""


@pytest.mark.slow
@EVERY
def test_a_template_computes_with_each_constant_that_it_is_valid_for(name: str) -> None:
    changes = changes_of(name)
    alike = next((names for names in ALIKE if name in names), [name, ""])
    turn = alike.index(name)
    computed_with(name, [c for k, c in enumerate(changes) if k % len(alike) == turn or "causal" in c])


@pytest.mark.soak
@EVERY
def test_a_template_that_takes_turns_computes_with_each_constant(name: str) -> None:
    computed_with(name, changes_of(name))


def test_templates_that_take_turns_have_the_same_constants() -> None:
    for first, *others in ALIKE:
        assert all(changes_of(n) == changes_of(first) for n in others)


@EVERY
def test_constants_below_their_least_value_are_refused(name: str) -> None:
    posed = basic(CASES[name])
    shapes = posed.shaped()
    for constant, value in posed.constants.items():
        if type(value) is int:
            for wrong in (-1,) if constant in MAY_BE_0 else (-1, 0):
                assert not replace(posed, constants=posed.constants | {constant: wrong}, shapes=shapes).valid(), constant


@EVERY
def test_a_group_has_at_most_1024_items(name: str) -> None:
    posed = basic(CASES[name])
    assert not replace(posed, constants=posed.constants | {posed.case.template.group: 2048}).valid()


@pytest.mark.parametrize("name", ["counts of digits", "scatter by digits"])
def test_keys_are_not_shifted_by_their_width(name: str) -> None:
    posed = basic(CASES[name])
    assert replace(posed, constants=posed.constants | {"shift": 28}).valid()
    assert not replace(posed, constants=posed.constants | {"shift": 32}).valid()


@EVERY
def test_each_size_of_each_array_is_compared_with_the_others(name: str) -> None:
    posed, rng = basic(CASES[name]), np.random.default_rng(0)
    for array, shape in posed.shaped().items():
        for axis, n in enumerate(shape):
            for wrong in (n - 1, n + 1):
                other = replace(posed, shapes={array: (*shape[:axis], wrong, *shape[axis + 1 :])})
                assert other.valid() == other.consistent(rng), other.shapes
        assert not replace(posed, shapes={array: (*shape, 1)}).valid()
    for number, value in posed.integers.items():
        for wrong in (value - 1, value + 1, -value):
            other = replace(posed, names=posed.names | {number: wrong}, shapes=posed.shaped())
            assert other.valid() == other.consistent(rng), (number, wrong)


@EVERY
def test_addresses_are_aligned_to_elements_and_vectors(name: str) -> None:
    posed = basic(CASES[name])
    needed = max(a.dtype.itemsize for a in posed.avals().values()) * posed.constants.get("vector", 1)
    for alignment in (0, 1, 2, 4, 8, 16, 32):
        assert replace(posed, alignment=alignment).valid() == (alignment >= needed), alignment


@EVERY
def test_large_arrays_are_refused_by_templates_that_compute_positions_in_int32(name: str) -> None:
    posed = basic(CASES[name])
    dtypes = {n: a.dtype.name for n, a in posed.avals().items()}
    function = posed.case.template.function(dtypes, **posed.constants)
    narrow = any(p.dtype is int32 for p in posed.case.template.signature.arrays.values()) or any(
        e.op == "cast" and e.dtype == "int32" and e.args[0].dtype == "int64"
        for s in statements(function.body)
        for e in walk(expressions(s))
    )
    assert narrow == ("convolution" in name or "digits" in name)
    refused = 0
    for size in posed.names:
        large = replace(posed, names=posed.names | {size: 1 << 31})
        valid = large.valid()
        assert not (valid and narrow), size
        refused += not valid
    assert refused == len(posed.names) or not narrow


@EVERY
def test_a_launch_has_as_many_groups_and_items_as_can_be_numbered(name: str) -> None:
    posed = basic(CASES[name])
    program = posed.case.template.program({n: a.dtype.name for n, a in posed.avals().items()}, **posed.constants)
    refused = 0
    for size in posed.names:
        for bits in (30, 31, 36, 62):
            grown = replace(posed, names=posed.names | {size: 1 << bits})
            shapes = [a.shape for n, a in grown.avals().items() if n in program.operands]
            *groups, items = program.sizes(shapes, grown.integers).grid
            if prod(groups) >= 1 << 31 or prod(groups) * items >= 1 << 32:
                refused += 1
                assert not grown.valid(), (size, bits)
    assert refused


@EVERY
@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["in turn", "every dtype"])
def test_dtypes_are_those_of_the_signature_and_held_by_the_one_that_is_computed_in(name: str, every: bool) -> None:
    posed, rng = basic(CASES[name]), np.random.default_rng(1)
    t, avals = posed.case.template, posed.avals()
    for k, (array, p) in enumerate(t.signature.parameters.items()):
        for turn, other in enumerate(DTYPES if array in avals else (), k):
            if p.dtype is not None:  # type: ignore[union-attr]
                changed = avals[array]._replace(dtype=dtype(other))
                problem = TemplateProblem(avals | {array: changed}, posed.integers, posed.alignment, posed.shared_bytes)
                assert t.valid_for(problem, **posed.constants) == (changed == avals[array]), (array, other)
                continue
            mixed = replace(posed, dtypes={array: other})
            try:
                valid = mixed.valid()
            except KernelCompileError:  # a function does not take an integer
                assert array in sum(t.signature.tuples.values(), ())
                continue
            assert valid or other not in ("float16", "float32")
            assert not valid or other != "float64"
            if valid and other != "float32" and (every or turn % 2):  # arrays take turns at the dtypes
                mixed.agree(rng)


@EVERY
def test_a_template_computes_in_each_dtype_that_it_is_valid_for(name: str) -> None:
    posed, rng = basic(CASES[name]), np.random.default_rng(2)
    t = posed.case.template
    free = [n for n, p in t.signature.parameters.items() if getattr(p, "dtype", 0) is None]
    for of in DTYPES if free else ():
        constants, dtypes = posed.constants | {"of": dtype(of)}, dict.fromkeys(free, of)
        other = replace(posed, constants=constants, dtypes=dtypes, alignment=32)
        valid = other.valid()
        first_is_0 = not t.floating and name != "window"
        assert valid == (of in ("float32", "float64") or (of == "int32" and not t.floating) or (of == "uint8" and first_is_0))
        if valid:
            other.agree(rng)


@EVERY
def test_shared_arrays_fit_the_memory_of_a_group(name: str) -> None:
    posed = basic(CASES[name])
    function = posed.case.template.function({n: a.dtype.name for n, a in posed.avals().items()}, **posed.constants)
    needed = sum(-(-a.extent * dtype(a.dtype).itemsize // 16) * 16 for a in function.shared)
    assert replace(posed, shared_bytes=needed).valid()
    assert not replace(posed, shared_bytes=needed - 1).valid()


@EVERY
def test_a_missing_or_unknown_operand_or_constant_is_an_error(name: str) -> None:
    posed = basic(CASES[name])
    arrays, t = posed.avals(), posed.case.template

    def ask(arrays: dict[str, Any], integers: dict[str, int], constants: dict[str, Any]) -> None:
        with pytest.raises(OperandError, match=f"{t.name} has the "):
            t.valid_for(TemplateProblem(arrays, integers, 16, posed.shared_bytes), **constants)

    def without(values: dict[str, Any], name: str) -> dict[str, Any]:
        return {n: v for n, v in values.items() if n != name}

    for n in arrays:
        ask(without(arrays, n), posed.integers, posed.constants)
    for n in posed.integers:
        ask(arrays, without(posed.integers, n), posed.constants)
    for n in posed.constants:
        ask(arrays, posed.integers, without(posed.constants, n))
    ask(arrays | {"more": next(iter(arrays.values()))}, posed.integers, posed.constants)
    ask(arrays, posed.integers | {"more": 1}, posed.constants)
    ask(arrays, posed.integers, posed.constants | {"more": 1})


def test_a_constant_of_another_type_is_an_error() -> None:
    posed = basic(CASES["scan"])
    for wrong in ({"vector": True}, {"vector": 4.0}, {"exclusive": 1}, {"of": "float32"}):
        with pytest.raises(OperandError, match=f"scan: the constant {next(iter(wrong))} is of type "):
            replace(posed, constants=posed.constants | wrong, shapes=posed.shaped()).valid()
