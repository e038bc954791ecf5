"""Every op on every engine against the reference; every gradient rule against central differences."""

from importlib import import_module

import numpy as np
import pytest
from forced import kernels_of_any_size

from firebrick.core.errors import ConfigError
from firebrick.core.op import Nondifferentiable
from firebrick.ops import OPS
from firebrick.ops.declare import COMPLEX, FLOATS
from firebrick.testing import DESTINATIONS, EXCLUDED, LAYOUTS, assert_max_traces, cases, check_gradients, conformance, run_case
from firebrick.testing.cases import samples_of
from firebrick.testing.gradients import GRADIENT_FACTOR, NO_DIFFERENCES, has_gradient, tolerance_of
from firebrick.testing.repeated import UNALIASED

FAMILIES = sorted({op.reference.__module__ for op in OPS.values()})


# dtypes that run the same code at other widths
CLASSES = {f"{kind}{n}": kind for kind in ("int", "uint") for n in (8, 16, 32, 64)} | {
    "bfloat16": "half", "float16": "half", "complex64": "complex", "complex128": "complex", "float8_e4m3fn": "storage",
    "float8_e5m2": "storage",
}  # fmt: skip


HOSTS = ("numpy", "cpu")
"""Engines that run the references, but for kernels."""


def of_family(module: str) -> list[str]:
    return [n for n, op in OPS.items() if op.reference.__module__ == module]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda m: m.rsplit(".", 1)[-1])
def test_every_op_agrees_with_its_reference(device: str, family: str, seed: int) -> None:
    # tests/backends has the values of torch and of kernels of cpu in every dtype. Engines that call the same references take
    # turns at the ops in each mode; kernels of cpu are those of the test below
    for turn, mode in enumerate(("eager", "jit")):
        names = of_family(family)
        if device in HOSTS:
            names = [n for n in names if (list(OPS).index(n) + turn) % len(HOSTS) == HOSTS.index(device)]
        if not names:
            continue
        report = conformance(device, names, subset="turns", seed=seed, modes=[mode])
        assert report.ok, report
        # tests/backends/webgpu has the ops that webgpu leaves to the host
        assert device == "webgpu" or report.fallbacks == set(), "no op may run on the host instead"


WITHOUT_PLANS = {"cast", "nextafter", "random_uniform"}
"""Ops with a parameter that is no plain value, or a reference of their own, whose kernels no engine keeps."""
EIGHTHS, PARTS = 8, 32
"""In each run, engines with plans repeat an eighth of the ops each, others a 32nd; another seed takes others."""


def test_every_op_that_is_repeated_agrees_with_its_reference_and_with_its_first_call(device: str, seed: int) -> None:
    names = [n for n in OPS if n not in EXCLUDED]
    some = names[seed % PARTS :: PARTS]
    if device not in HOSTS:
        report = conformance(device, some, subset="turns", seed=seed, modes=["repeated"])
        assert report.ok, report
        assert not device.startswith("torch") or report.ways["fast"]
        return
    own = names[(HOSTS.index(device) + seed) % EIGHTHS :: EIGHTHS]
    report = conformance(device, own, subset="turns", seed=seed, modes=["repeated"])
    assert report.ok, report
    assert report.ways["plan"] == set(own) - WITHOUT_PLANS
    rules = {n for n in own if OPS[n].differentiable}
    assert report.ways["replay"] | report.ways["whole pass"] == rules
    assert len(report.ways["fast"]) > 4
    report = conformance(device, some[HOSTS.index(device) :: 2], subset="turns", seed=seed, modes=["repeated jit"])
    assert report.ok, report


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES, ids=lambda m: m.rsplit(".", 1)[-1])
def test_every_op_agrees_with_its_reference_in_every_dtype(device: str, family: str, seed: int) -> None:
    report = conformance(device, of_family(family), seed=seed)
    assert report.ok, report


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES, ids=lambda m: m.rsplit(".", 1)[-1])
def test_every_op_agrees_with_its_reference_in_kernels_of_its_own_in_every_dtype(family: str, seed: int) -> None:
    with kernels_of_any_size():
        report = conformance("cpu", of_family(family), seed=seed, modes=["jit"])
    assert report.ok, report


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda m: m.rsplit(".", 1)[-1])
def test_every_op_agrees_with_its_reference_in_kernels_of_its_own(family: str, seed: int) -> None:
    # tests/backends/test_cpu_engine.py has the values in every dtype
    with kernels_of_any_size():
        report = conformance("cpu", of_family(family), subset="turns", seed=seed, modes=["jit"])
    assert report.ok, report


@pytest.mark.soak
@pytest.mark.parametrize("number", range(1, 21))
def test_other_seeds_agree_as_well(device: str, number: int) -> None:
    report = conformance(device, seed=number)
    assert report.ok, report


@pytest.mark.parametrize("order", [1, 2])
def test_every_gradient_rule_is_the_derivative(order: int, seed: int) -> None:
    report = check_gradients(order=order, seed=seed)
    assert report.ok, report


def test_every_op_has_a_checked_gradient_or_a_reason_for_none(seed: int) -> None:
    for op in OPS.values():
        if isinstance(op.vjp, Nondifferentiable):
            assert len(op.vjp.reason) > 10, op
        elif op.name not in EXCLUDED:
            safe = [s for d in op.dtypes if d in FLOATS + COMPLEX for s in samples_of(op, d, seed) if has_gradient(op, s)]
            assert safe, f"{op.name} has a gradient and no sample to check it on"


@pytest.mark.parametrize("names", [["add", "matmul", "all"], pytest.param(["cast", "sort"], marks=pytest.mark.soak)], ids=str)
def test_the_pairwise_subset_covers_every_pair_that_the_whole_product_has(names: list[str], seed: int) -> None:
    def pairs(subset: str) -> set[object]:
        found: set[object] = set()
        for c in cases("numpy", names, subset=subset, seed=seed):
            factors = {"dtype": c.dtype, "sample": c.number, "layout": c.layout, "destination": c.destination}
            items = sorted(factors.items())
            found |= {(c.op.name, a, b) for i, a in enumerate(items) for b in items[i + 1 :]}
        return found

    assert pairs("pairwise") == pairs("full")


def test_the_thin_subset_has_every_dtype_and_in_each_class_of_dtypes_every_sample_layout_and_destination(seed: int) -> None:
    def found(name: str, subset: str) -> tuple[set[object], ...]:
        chosen = [(CLASSES.get(c.dtype, c.dtype), c) for c in cases("numpy", [name], subset=subset, seed=seed, modes=["jit"])]
        return (
            {c.dtype for _, c in chosen}, {(kind, c.sample.name) for kind, c in chosen},
            {(kind, c.layout) for kind, c in chosen}, {(kind, c.destination) for kind, c in chosen},
            {(c.layout, c.destination) for _, c in chosen},
        )  # fmt: skip

    for name in OPS.keys() - EXCLUDED.keys():
        assert found(name, "thin") == found(name, "pairwise")


def test_the_subset_by_turns_has_every_sample_dtype_layout_and_destination(seed: int) -> None:
    def found(name: str, subset: str) -> tuple[set[object], ...]:
        chosen = list(cases("numpy", [name], subset=subset, seed=seed, modes=["jit"]))
        return (
            {c.dtype for c in chosen}, {CLASSES.get(c.dtype, c.dtype) for c in chosen}, {c.sample.name for c in chosen},
            {(c.layout, c.destination) for c in chosen},
        )  # fmt: skip

    for name in OPS.keys() - EXCLUDED.keys():
        assert found(name, "turns") == found(name, "pairwise")


def test_the_same_seed_gives_the_same_cases_and_another_one_others() -> None:
    def names(seed: int) -> list[tuple[str, bytes]]:
        return [(c.name, c.sample.inputs[0].tobytes()) for c in cases("numpy", ["add", "take"], seed=seed)]

    assert names(3) == names(3)
    assert names(3) != names(4)


def test_cases_are_numbered_as_they_come_over_ops_and_modes() -> None:
    found = list(cases("numpy", ["add", "relu"]))
    assert [c.index for c in found] == list(range(len(found)))
    assert {c.number for c in found if c.op.name == "relu" and c.dtype == "float32"} == set(
        range(len(samples_of(OPS["relu"], "float32", 0)))
    )


def test_cases_of_a_sample_are_runs_of_the_same_programs() -> None:
    found = list(cases("numpy", ["relu"], ["float32"], subset="full", modes=["jit"]))
    first = [c for c in found if c.number == 0]
    assert len(first) > 20
    assert all(c.programs is first[0].programs for c in first)
    assert not any(c.programs is first[0].programs for c in found if c.number)
    plain = [c for c in first if c.layout in ("contiguous", "strided") and c.destination == "none"]
    assert len(plain) == 2
    assert all(run_case(c).ok for c in plain)
    assert set(first[0].programs) == {"op", "pull"}
    with assert_max_traces(0, first[0].programs["op"]):
        assert run_case(plain[0]).ok


def test_the_choice_of_cases_is_one_of_those_that_there_are() -> None:
    for settings, text in (
        ({"subset": "some"}, "subset is one of pairwise, full, thin, turns"),
        ({"modes": ["eager", "lazy"]}, "modes are eager, jit, repeated, repeated jit\nReceived: lazy"),
        ({"ops": ["add", "subtrac"]}, "ops are names of the op table\nReceived: subtrac"),
    ):
        with pytest.raises(ConfigError, match=text):
            next(cases("numpy", **settings))  # type: ignore[arg-type]
    assert {c.mode for c in cases("numpy", ["relu"], ["float32"], modes=["jit"])} == {"jit"}
    assert {(c.op.name, c.dtype) for c in cases("numpy", ["relu"], ["float32"])} == {("relu", "float32")}


def test_ops_that_ran_on_the_host_in_this_run_and_on_this_device_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = iter(
        [
            [("add", "numpy:0", 2), ("exp", "numpy:0", 1)],
            [("add", "numpy:0", 2), ("exp", "numpy:0", 3), ("sin", "numpy:0", 1), ("cos", "cpu:0", 1)],
        ]
    )
    monkeypatch.setattr(import_module("firebrick.testing.conformance"), "explain_fallbacks", lambda: next(counts))
    report = conformance("numpy", ["relu"], ["float32"], modes=["eager"])
    assert report.fallbacks == {"exp", "sin"}
    assert str(report).endswith("ran on the host: exp, sin")


def test_the_subset_uses_every_layout_and_destination_of_every_op(seed: int) -> None:
    for name in ("add", "relu", "conv", "where"):
        found = list(cases("numpy", [name], seed=seed))
        assert {c.layout for c in found} == set(LAYOUTS)
        assert {c.destination for c in found} == set(DESTINATIONS) or name == "conv"


def test_operations_that_are_repeated_have_no_destination_and_other_samples_in_between() -> None:
    found = list(cases("numpy", ["sum"], ["float32", "int32"], subset="full", modes=["repeated"]))
    assert {c.destination for c in found} == {"none"}
    assert {c.layout for c in found} == set(LAYOUTS)
    for c in found:
        same, form = [], [(x.shape, x.dtype) for x in c.sample.inputs]
        for other in c.others:
            differs = [(x.shape, x.dtype) for x in other.inputs] != form
            same.append((differs, other.params != c.sample.params))
            assert (
                differs or same[-1][1] or c.sample.inputs[0].size < 2 or other.inputs[0].tolist() != c.sample.inputs[0].tolist()
            )
        assert (True, False) in same
        assert any(differs for differs, _ in same)
    assert any(
        (False, True) in [(x.inputs[0].shape != c.sample.inputs[0].shape, x.params != c.sample.params) for x in c.others]
        for c in found
    )
    assert all(c.others == () for c in cases("numpy", ["sum"], ["float32"], modes=["eager", "jit"]))


def test_what_has_no_cases_says_why() -> None:
    assert all(name in OPS and len(reason) > 10 for name, reason in (EXCLUDED | NO_DIFFERENCES | UNALIASED).items())


def test_gradients_have_a_multiple_of_the_tolerance_of_their_op() -> None:
    ones = (np.ones(3, np.float32),)
    assert tolerance_of(OPS["negative"], ones) == GRADIENT_FACTOR  # of an op without an error
    assert tolerance_of(OPS["tan"], ones) == GRADIENT_FACTOR * OPS["tan"].tolerance > GRADIENT_FACTOR
