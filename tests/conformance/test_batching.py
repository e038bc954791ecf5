"""``vmap`` of every op on every engine against the op itself, example by example."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
from combinations import turns_of

import firebrick as fb
from firebrick.core.errors import ConfigError
from firebrick.core.op import Batching
from firebrick.ops import OPS
from firebrick.testing import check_batching

FAMILIES = sorted({op.reference.__module__ for op in OPS.values()})
LOOPS = {"random_bits", "random_uniform"}  # of several keys


def of_family(module: str) -> list[str]:
    return [n for n, op in OPS.items() if op.reference.__module__ == module]


@contextmanager
def rule(name: str, batch: object) -> Iterator[None]:
    op = OPS[name]
    right = op.batch
    object.__setattr__(op, "batch", batch)
    try:
        yield
    finally:
        object.__setattr__(op, "batch", right)


@pytest.mark.parametrize(("family", "device"), turns_of(FAMILIES, ["numpy", "cpu", "torch:cpu"]))
def test_every_op_of_all_examples_agrees_with_its_reference(family: str, device: str, seed: int) -> None:
    """By rules that are written with ops, which engines compute as in other tests: so each family is on one engine, in turn."""
    if device.startswith("torch"):
        pytest.importorskip("torch", reason="torch, for the engine torch:cpu")
    report = check_batching(device, of_family(family), seed=seed)
    assert report.ok, report


@pytest.mark.soak
@pytest.mark.parametrize("family", FAMILIES, ids=lambda m: m.rsplit(".", 1)[-1])
def test_every_op_of_all_examples_agrees_in_every_dtype_also_compiled(device: str, family: str, seed: int) -> None:
    report = check_batching(device, of_family(family), "full", seed, ("eager", "jit"))
    assert report.ok, report


def test_ops_that_run_in_a_loop_are_those_that_are_known_to(seed: int) -> None:
    report = check_batching("numpy", seed=seed, loops=False)
    assert {v.op for v in report.failures} == LOOPS, report
    assert all("would run in a loop over the examples" in v.message for v in report.failures)
    assert {n for n, op in OPS.items() if op.batch is None} == LOOPS


def test_a_wrong_rule_is_seen() -> None:
    right = OPS["add"].batch
    assert right is not None
    with rule("add", lambda b: right(replace(b, op=OPS["subtract"]))):
        assert not check_batching("numpy", ["add"]).ok
    with rule("sum", lambda b: right(b)):
        assert not check_batching("numpy", ["sum"]).ok


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (lambda b: b.operands[0][0], r"must return float64\[3,2\]\nReceived: float64\[2\]"),
        (lambda b: fb.astype(b.operands[0], fb.float32), r"must return float64\[3,2\]\nReceived: float32\[3,2\]"),
        (lambda b: 1.0, "returns tensors\nReceived: float"),
    ],
)
def test_what_a_rule_returns_is_checked(batch: object, text: str) -> None:
    with rule("exp", batch), pytest.raises((fb.ShapeError, TypeError), match=text):
        fb.vmap(fb.exp)(fb.asarray(np.ones((3, 2)), device="numpy"))


def test_an_op_without_a_rule_runs_in_a_loop_and_warns_once_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firebrick.autodiff.batching._announced", set())
    x = fb.asarray(np.arange(6.0).reshape(3, 2), device="numpy")
    with rule("exp", None):
        with pytest.warns(fb.FallbackWarning, match="exp has no batch rule .* in a loop over the 3 examples") as caught:
            found = [fb.vmap(fb.exp)(x) for _ in range(2)]
        assert len(caught) == 1
        assert fb.vmap(fb.exp)(x[:0]).shape == (0, 2)
        with fb.config.scope(fallback="error"), pytest.raises(fb.UnsupportedError, match="exp has no batch rule"):
            fb.vmap(fb.exp)(x)
    assert [f.tolist() for f in found] == [fb.exp(x).tolist()] * 2


def test_a_rule_may_leave_some_operands_to_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("firebrick.autodiff.batching._announced", set())
    right = OPS["add"].batch
    assert right is not None

    def one_operand_only(b: Batching) -> object:
        return right(b) if sum(b.mapped) == 1 else None

    x = fb.asarray(np.arange(6.0).reshape(3, 2), device="numpy")
    with rule("add", one_operand_only):
        assert fb.vmap(lambda a: a + 1.0)(x).tolist() == (x + 1.0).tolist()
        with pytest.warns(fb.FallbackWarning, match="add has no batch rule for these operands"):
            assert fb.vmap(lambda a: a + a)(x).tolist() == (x + x).tolist()


def test_the_choice_of_cases_is_one_of_those_that_there_are() -> None:
    with pytest.raises(ConfigError, match="subset is one of thin, full"):
        check_batching("numpy", ["exp"], subset="some")
    with pytest.raises(ConfigError, match="modes are eager and jit"):
        check_batching("numpy", ["exp"], modes=["lazy"])
