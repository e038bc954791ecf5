"""The naive form of every specification: the results of the op table's references, by one kernel for all sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from assembling import NVIDIA, PROCESSORS, assemble, external, object_for, ptx
from lowered_bodies import body_of
from naive_forms import WITH_KERNELS, WITHOUT, Group, groups, kernels_of, run_naive, some_groups
from random_groups import drawn, groups_of

from firebrick.compiler.kernel import Fault
from firebrick.compiler.naive import NAIVE, Naive, naive
from firebrick.compiler.spec.base import key
from firebrick.compiler.spec.custom import Custom
from firebrick.compiler.spec.evaluate import interpret
from firebrick.compiler.spec.kinds import KINDS, spec_of
from firebrick.compiler.spec.text import printed
from firebrick.compiler.targets.llvm.gpu_kernel import gpu_module
from firebrick.compiler.targets.llvm.host import AS_WRITTEN
from firebrick.compiler.targets.llvm.native import module_text
from firebrick.compiler.targets.llvm.scalar_kernel import cpu_kernel
from firebrick.core.errors import ExecutionError, OutOfRangeError
from firebrick.ops import OPS
from firebrick.ops.accuracy import Deviation, check_results, run_reference
from firebrick.scalar.expr import FLOATS, INTEGERS

FAMILIES = sorted({OPS[name].reference.__module__ for name in WITH_KERNELS})
EACH_FAMILY = pytest.mark.parametrize("family", FAMILIES, ids=lambda m: m.rsplit(".", 1)[-1])


def deviation(g: Group, name: str, form: Naive, native: bool) -> Deviation:
    """How far the results are from those of the reference."""
    found, fault = run_naive(form, g.arrays, g.results, native)
    assert fault is None
    want = run_reference(OPS[name], g.arrays, g.sample.params)
    return check_results(OPS[name], g.arrays, g.sample.params, tuple(found), want)


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_some_samples_are_every_sample_at_some_dtype_and_every_dtype_at_some_sample(name: str) -> None:
    every, some = groups(name), some_groups(name)
    assert {g.sample.name for g in some} == {g.sample.name for g in every}
    assert {g.dtype for g in some} == {g.dtype for g in every}
    assert {g.title for g in some} >= {g.title for g in every if g.dtype == "float32"}
    assert len({id(g) for g in some}) == len(some) <= len(every)


def test_sums_are_taken_in_every_unsigned_dtype() -> None:
    """Users sum them, and the table's samples name uint8 alone."""
    assert {g.dtype for g in some_groups("sum")} >= {"uint8", "uint16", "uint32", "uint64"}


@pytest.mark.parametrize(
    "of", [some_groups, pytest.param(groups, marks=pytest.mark.soak)], ids=["some samples", "every sample"]
)
@pytest.mark.parametrize("name", WITH_KERNELS)
def test_naive_forms_have_the_results_of_the_reference(name: str, of: Callable[[str], Iterable[Group]]) -> None:
    for g in of(name):
        verdict = deviation(g, name, g.form, native=True)
        assert verdict.ok, f"{g.title}: {verdict}"


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_naive_forms_interpreted_have_the_results_of_the_reference(name: str) -> None:
    """Every access is checked. One sample of each dtype, and the others of one dtype; long ones are for compiled kernels."""
    seen = set()
    for g in groups(name):
        first = g.arrays[0].dtype
        if sum(x.size for x in g.arrays) > 400 or (first in seen and first != np.float32):
            continue
        seen.add(first)
        verdict = deviation(g, name, g.form, native=False)
        assert verdict.ok, f"{g.title}: {verdict}"
    assert seen


@pytest.mark.parametrize("name", WITH_KERNELS)
def test_specifications_of_one_structure_have_the_same_kernels(name: str) -> None:
    alike = defaultdict(list)
    for g in groups(name):
        alike[key(g.spec)].append(g)
    for of_one in alike.values():
        assert len(of_one) == 1 or len({tuple(s.function for s in g.form.steps) for g in of_one}) == 1


def test_every_kind_of_specification_has_a_naive_form() -> None:
    kinds = {type(g.spec) for name in WITH_KERNELS for g in groups(name)}
    assert kinds | {Custom} == set(NAIVE)  # kernels of the kernel language are no ops of the table
    assert {OPS[name].kind for name in WITH_KERNELS} | {"custom"} == set(KINDS)
    assert not any(groups(name) for name in WITHOUT)


def test_sizes_are_arguments() -> None:
    forms = []
    for shape in ((3, 4), (50, 7), (2, 900)):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        body = body_of((x,), ("softmax", (0,), {"axis": 1}))
        form = naive(spec_of(body))
        ((y,), _) = run_naive(form, (x,), [body.avals[1]], native=True)
        np.testing.assert_allclose(y.sum(1), 1, rtol=1e-6)
        forms.append(form)
    assert len({f.steps[0].function for f in forms}) == 1
    assert len({(f.steps[0].scalars, f.steps[0].grid) for f in forms}) == 3


def test_a_wrong_stride_is_noticed() -> None:
    """The checks above can fail: each argument of a launch decides the result."""
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    body = body_of((x,), ("permute", (0,), {"axes": (1, 0)}), ("softmax", (1,), {"axis": 1}))
    form = naive(spec_of(body))
    results = [body.avals[v] for v in body.outputs]
    right, _ = run_naive(form, (x,), results, native=False)
    (step,) = form.steps
    assert step.scalars == (5, 4, 5)
    for k in range(len(step.scalars)):
        wrong = tuple(v - (i == k) for i, v in enumerate(step.scalars))
        try:
            found, _ = run_naive(replace(form, steps=(replace(step, scalars=wrong),)), (x,), results, native=False)
        except (ExecutionError, OutOfRangeError):
            continue
        assert not np.array_equal(found[0], right[0]), step.function.scalars[k]


EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7} | dict.fromkeys(("float32", "float64", "complex64", "complex128"), 2.0**-17)
"""How far results may be apart, relative to the largest of them: one unit of a half precision, or 64 of float32."""


@pytest.mark.parametrize(
    "seeds",
    [
        *(range(i, i + 5) for i in range(0, 20, 5)),
        *(pytest.param(range(i, i + 10), marks=pytest.mark.soak) for i in range(20, 200, 10)),
    ],
    ids=str,
)
def test_naive_forms_of_groups_of_random_programs_compute_what_their_specifications_say(seeds: range) -> None:
    tried = 0
    for seed in seeds:
        for body in [b for gradients in (False, True) for b in groups_of(seed, gradients)]:
            arrays = [drawn(a, np.random.default_rng([seed, i])) for i, a in enumerate(body.inputs)]
            spec, avals = spec_of(body), [body.avals[v] for v in body.outputs]
            try:
                want = interpret(spec, arrays, [a.size for a in avals], [a.dtype.name for a in avals])
            except OutOfRangeError:
                continue
            small = sum(a.size for a in body.avals) < 500
            for native in (True, False) if small else (True,):
                got, fault = run_naive(naive(spec), arrays, avals, native)
                assert fault is None
                for x, y in zip(got, want, strict=True):
                    wider = np.complex128 if x.dtype.kind == "c" else np.float64
                    wide, truth = (np.asarray(v).reshape(-1).astype(wider) for v in (x, y))
                    close = np.abs(wide - truth) <= EPS.get(x.dtype.name, 0) * (1 + np.abs(truth).max(initial=0))
                    assert (close | (wide == truth) | (np.isnan(wide) & np.isnan(truth))).all(), f"seed {seed}: {printed(spec)}"
            tried += 1
    assert tried > len(seeds)


def group(arrays: tuple[Any, ...], *nodes: Any, outputs: tuple[int, ...] = (), native: bool = True) -> list[Any]:
    """The results of a group of nodes."""
    body = body_of(arrays, *nodes, outputs=outputs)
    found, fault = run_naive(naive(spec_of(body)), arrays, [body.avals[v] for v in body.outputs], native)
    assert fault is None
    return found


both_ways = pytest.mark.parametrize("native", [True, False], ids=["compiled", "interpreted"])


@both_ways
def test_what_follows_a_product_is_in_its_kernel(native: bool) -> None:
    rng = np.random.default_rng(1)
    x, w, bias, other = (rng.normal(size=s).astype(np.float32) for s in ((2, 5, 3), (3, 4), (4,), (2, 5, 4)))
    got = group(
        (x, w, bias, other), ("matmul", (0, 1), {}), ("add", (4, 2), {}), ("relu", (5,), {}), ("multiply", (6, 3), {}),
        outputs=(5, 7), native=native,
    )  # fmt: skip
    sums = x @ w + bias
    np.testing.assert_allclose(got[0], sums, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got[1], np.maximum(sums, 0) * other, rtol=1e-5, atol=1e-6)


@both_ways
def test_sums_of_columns_beside_rows_are_a_kernel_of_their_own(native: bool) -> None:
    rng = np.random.default_rng(2)
    x, g = rng.normal(size=(2, 6, 5, 7)).astype(np.float32)[:, 0]
    got = group(
        (x, g), ("softmax", (0,), {"axis": 1}), ("multiply", (2, 1), {}), ("sum", (3,), {"axes": (0,), "keepdims": False}),
        outputs=(2, 4), native=native,
    )  # fmt: skip
    weights = np.exp(x - x.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    np.testing.assert_allclose(got[0], weights, rtol=1e-5)
    np.testing.assert_allclose(got[1], (weights * g).sum(0), rtol=1e-4, atol=1e-6)


@both_ways
def test_the_naive_form_reports_an_index_out_of_range_and_goes_on(native: bool) -> None:
    x, at = np.arange(12.0).reshape(4, 3), np.array([1, -4, 4, 0])
    body = body_of((x, at), ("take", (0, 1), {"axis": 0}))
    (found,), fault = run_naive(naive(spec_of(body)), (x, at), [body.avals[2]], native)
    assert fault == Fault(0, 4)
    assert np.array_equal(found, x[[1, 0, 3, 0]])


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_the_largest_of_smallest_numbers_is_the_smallest_number(dtype: str) -> None:
    low, high = (-np.inf, np.inf) if dtype in FLOATS else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for name, value in (("max", low), ("min", high)):
        x = np.full((2, 3), value, dtype)
        assert (group((x,), (name, (0,), {"axes": (1,), "keepdims": False}))[0] == value).all()


def test_a_long_sum_of_float32_is_as_precise_as_one_in_float64() -> None:
    x = np.full((1, 100_000), 0.1, np.float32)
    (total,) = group((x,), ("sum", (0,), {"axes": (1,), "keepdims": False}))
    assert total[0] == np.float32(x.astype(np.float64).sum())
    x[0, 7] = np.inf
    assert group((x,), ("sum", (0,), {"axes": (1,), "keepdims": False}))[0][0] == np.inf
    x[0, 9] = -np.inf
    assert np.isnan(group((x,), ("sum", (0,), {"axes": (1,), "keepdims": False}))[0][0])


def ops_for(family: str, targets: Iterable[str], name: str, every: bool) -> list[str]:
    """The ops of a family that a target compiles, in a module for each: what is kept of the others outlasts a change of one.

    Args:
        family: The module of the ops.
        targets: The targets that share the ops.
        name: One of them.
        every: Whether it compiles all ops; otherwise the targets take turns, and each op is compiled for one of them.
    """
    share = WITH_KERNELS if every else WITH_KERNELS[list(targets).index(name) :: len(list(targets))]
    return [op for op in share if OPS[op].reference.__module__ == family]


IN_TURN = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.soak)], ids=["in turn", "every op"])


@pytest.mark.parametrize("targets", [[*NVIDIA], [*PROCESSORS]], ids=["nvidia", "processors"])
def test_each_op_is_compiled_for_one_target_in_turn_and_in_soak_for_each(targets: list[str]) -> None:
    def compiled_for(every: bool) -> list[str]:
        return sorted(op for family in FAMILIES for name in targets for op in ops_for(family, targets, name, every))

    assert compiled_for(every=False) == WITH_KERNELS
    assert compiled_for(every=True) == sorted(WITH_KERNELS * len(targets))


@pytest.mark.slow
@IN_TURN
@EACH_FAMILY
@pytest.mark.parametrize("name", NVIDIA)
def test_every_naive_kernel_assembles_for_nvidia(name: str, family: str, every: bool, tmp_path: Path) -> None:
    target = NVIDIA[name]
    for op in ops_for(family, NVIDIA, name, every):
        text = ptx(gpu_module(kernels_of((op,), every), target), target)
        assert not external(text)
        assemble(text, target, tmp_path, level=0)


@pytest.mark.slow
@IN_TURN
@EACH_FAMILY
@pytest.mark.parametrize("name", PROCESSORS)
def test_every_naive_kernel_becomes_an_object_for_other_processors(name: str, family: str, every: bool) -> None:
    for op in ops_for(family, PROCESSORS, name, every):
        text = module_text([cpu_kernel(f, PROCESSORS[name]) for f in kernels_of((op,), every)])
        assert object_for(name, AS_WRITTEN + text)
