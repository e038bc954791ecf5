"""Random programs whose axes have few sizes, {1, n}, on every engine, compiled and not, against NumPy and torch in float64.

The programs, their ground truth and the ways to run them are in ``tests/shared/differential``; ``python -m differential`` runs
any number of them. Faults planted in the graph show that the programs can fail.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from differential import __main__ as command
from differential import blocks as of_seeds
from differential.drawing import draw
from differential.program import Input, Program, Step
from differential.rules import RULES, reduction
from differential.running import Failure, Judge, Way
from differential.shrinking import report, smaller
from differential.truth import Unstable, expected, numpy_truth

import firebrick as fb
from firebrick.graph.passes.rewriter import Rewriter, rewrite
from firebrick.ir import Graph, Node
from firebrick.ops import OPS

ENGINES = ["numpy", "cpu", *(["torch:cpu"] if find_spec("torch") else [])]
torch_is_there = pytest.mark.skipif(
    not find_spec("torch"), reason="torch is the ground truth of gradients, and is not installed"
)
VALUES, GRADIENTS, CASES = 40, 32, 4


def found(seed: int, gradients: bool, ways: list[Way]) -> list[Failure]:
    """What is wrong with the program of a seed; nothing where it depends on rounding."""
    judge = Judge(draw(seed, gradients))
    try:
        return [f for w in ways if (f := judge.judge(w)) is not None]
    except Unstable:
        return []


def check(seeds: range, gradients: bool) -> None:
    wrong = []
    for seed in seeds:
        failures = found(seed, gradients, of_seeds.ways(seed, ENGINES, gradients))
        if failures:
            names = ", ".join(str(f.way) for f in failures)
            small = report(*smaller(draw(seed, gradients), failures[0])) if len(wrong) < 3 else ""
            wrong.append(f"seed {seed}, {names}: {failures[0].what}: {failures[0].text}\n{small}")
    assert not wrong, f"{len(wrong)} of {len(seeds)} programs are wrong\n\n" + "\n".join(wrong)


def parts(count: int) -> list[range]:
    size = count // CASES
    return [range(k * size, (k + 1) * size) for k in range(CASES)]


@pytest.mark.slow
@pytest.mark.parametrize("seeds", parts(VALUES), ids=str)
def test_programs_of_coinciding_sizes_have_numpys_values(seeds: range) -> None:
    check(seeds, gradients=False)


@pytest.mark.slow
@torch_is_there
@pytest.mark.parametrize("seeds", parts(GRADIENTS), ids=str)
def test_programs_of_coinciding_sizes_have_torchs_gradients(seeds: range) -> None:
    check(seeds, gradients=True)


# the programs


def test_a_seed_always_gives_the_same_program() -> None:
    assert [draw(s, s % 2 == 1) for s in range(40)] == [draw(s, s % 2 == 1) for s in range(40)]


def test_axes_meet_axes_of_their_size_and_ones_and_every_rule_is_drawn() -> None:
    programs = [draw(s, s % 3 == 0) for s in range(2000)]
    rules = Counter(step.rule for p in programs for step in p.steps)
    assert set(RULES) == set(rules)
    shapes = [i.truth.shape for p in programs for i in p.inputs]
    assert sum(len(set(s)) < len(s) for s in shapes) > len(shapes) / 3
    assert sum(1 in s for s in shapes) > len(shapes) / 8
    assert {n for s in shapes for n in s} >= {1, 2, 3, 5, 7, 16, 32, 33, 64}
    assert sum(all(n == 1 for i in p.inputs for n in i.truth.shape) for p in programs) > 40
    assert {i.dtype for p in programs for i in p.inputs} == {"float64", "float32", "float16", "bfloat16", "int64"}


# the judge


def _of(*steps: Step, inputs: tuple[Input, ...]) -> Program:
    last = len(inputs) + len(steps) - 1
    return Program(0, inputs, steps, (last,), None)


def _normal(*shape: int, values: str = "normal", dtype: str = "float32") -> Input:
    return Input(values, dtype, shape, "{x}", 1)


def test_tolerance_is_some_units_of_precision_and_grows_only_where_terms_cancel() -> None:
    x = _normal(5, 5, values="shifted")
    [sum_] = numpy_truth(_of(Step("sum", (0,), reduction(2, 1), "float32", (5,)), inputs=(x,)), 8)
    assert (sum_.tolerance < 160 * 2.0**-23 * np.abs(sum_.value)).all()
    centred = Step("subtract", (0, 1), {}, "float32", (5, 5)), Step("sum", (0,), reduction(2, None), "float32", ())
    mean = Step("mean", (0,), reduction(2, 1, True), "float32", (5, 1))
    [difference] = numpy_truth(_of(mean, centred[0], inputs=(x,)), 8)
    units = difference.tolerance / (2.0**-23 * 20)  # of the terms, which are near 20
    assert (units > 10).all()
    assert (units < 200).all()


def test_a_bool_that_rounding_can_turn_makes_a_program_unusable() -> None:
    total, sign = Step("sum", (0,), reduction(2, 1), "float32", (5,)), Step("greater_number", (2,), {"c": 0.0}, "bool", (5,))
    nothing = Step("subtract", (1, 1), {}, "float32", (5,))
    numpy_truth(_of(total, Step("greater_number", (1,), {"c": 0.0}, "bool", (5,)), inputs=(_normal(5, 5),)), 8)
    numpy_truth(_of(total, nothing, sign, inputs=(_normal(5, 5),)), 8)  # exactly 0, however it is rounded
    thirds = Step("times", (1,), {"c": 3.0}, "float32", (5,)), Step("over", (2,), {"c": 3.0}, "float32", (5,))
    again = Step("subtract", (3, 1), {}, "float32", (5,)), Step("greater_number", (4,), {"c": 0.0}, "bool", (5,))
    with pytest.raises(Unstable, match="depends on rounding"):
        numpy_truth(_of(total, *thirds, *again, inputs=(_normal(5, 5),)), 8)


def test_an_error_is_found_where_it_is_and_nan_is_one() -> None:
    want = expected([np.ones((2, 3)), np.full((2, 3), 1 + 1e-6)], "float32")
    got = np.ones((2, 3))
    assert want.worst(got) == (0.0, (0, 0))
    got[1, 2] = 1 + 2e-6
    assert want.worst(got)[0] < 1
    got[1, 2] = 1 + 9e-6
    assert want.worst(got)[0] > 1
    got[1, 0] = np.nan
    assert want.worst(got) == (np.inf, (1, 0))
    assert want.worst(np.ones((3, 2)))[0] == np.inf


# planted faults

BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "less", "greater")
Fault = Callable[[Rewriter, Node, tuple[int, ...]], Any]


def _rows_for_columns(r: Rewriter, node: Node, xs: tuple[int, ...]) -> Any:
    """A value that meets the last axis meets the one before it, where the two are equal."""
    a, b = (r.avals[v].shape for v in xs)
    for k, (small, large) in enumerate(((a, b), (b, a))):
        if 0 < len(small) == len(large) - 1 and small[-1] == large[-1] == large[-2] > 1:
            turned = r.emit(OPS["reshape"], (xs[k],), {"shape": (*small, 1)}, node)
            return r.emit(node.op, (turned, xs[1]) if k == 0 else (xs[0], turned), {}, node)
    return None


def _one_for_another(r: Rewriter, node: Node, xs: tuple[int, ...]) -> Any:
    """The first operand is taken for the second, where all sizes are 1."""
    return r.emit(node.op, (xs[0], xs[0]), {}, node) if xs[0] != xs[1] and all(r.avals[v].size == 1 for v in xs) else None


def _product_turned(r: Rewriter, node: Node, xs: tuple[int, ...]) -> Any:
    """A square factor is transposed."""
    shape = r.avals[xs[1]].shape
    if len(shape) != 2 or shape[0] != shape[1] or shape[0] == 1:
        return None
    return r.emit(node.op, (xs[0], r.emit(OPS["permute"], (xs[1],), {"axes": (1, 0)}, node)), node.params, node)


def _narrow(r: Rewriter, node: Node, xs: tuple[int, ...]) -> Any:
    """A float32 sum of terms rounded to half precision."""
    if r.avals[xs[0]].dtype is not fb.float32:
        return None
    half = r.emit(OPS["cast"], xs, {"dtype": fb.float16}, node)
    return r.emit(node.op, (r.emit(OPS["cast"], (half,), {"dtype": fb.float32}, node),), node.params, node)


def _ulps(r: Rewriter, node: Node, xs: tuple[int, ...]) -> Any:
    """A tanh that is off by 300 units of precision."""
    x = r.avals[xs[0]]
    if x.dtype is not fb.float32:
        return None
    off = r.constant(np.asarray(1 + 300 * 2.0**-23, np.float32), node)
    return r.emit(OPS["multiply"], (r.emit(node.op, xs, node.params, node), off), {}, node)


FAULTS: dict[str, dict[str, Fault]] = {
    "rows for columns": dict.fromkeys(BINARY, _rows_for_columns),
    "one of size 1 for another": dict.fromkeys(BINARY, _one_for_another),
    "a factor transposed": {"matmul": _product_turned},
    "a sum of rounded terms": {"sum": _narrow},
    "300 units of precision": {"tanh": _ulps},
}


@cache
def _wrong_without_a_fault(gradients: bool) -> list[int]:
    return [s for s in range(30) if found(s, gradients, [Way("numpy", "jit", gradients)])]


@pytest.mark.parametrize("gradients", [False, pytest.param(True, marks=torch_is_there)], ids=["values", "gradients"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_seen(monkeypatch: pytest.MonkeyPatch, fault: str, gradients: bool) -> None:
    way = Way("numpy", "jit", gradients)
    making = import_module("firebrick.graph.making")
    optimize = making.optimize
    assert not _wrong_without_a_fault(gradients)
    monkeypatch.setattr(making, "optimize", lambda graph: rewrite(optimize(graph), FAULTS[fault]))
    assert next((s for s in range(150) if found(s, gradients, [way])), None) is not None


def _first_wrong(gradients: bool) -> int | None:
    way = Way("cpu", "forced", gradients)
    return next((s for s in range(1000, 1400) if found(s, gradients, [way])), None)


@pytest.mark.slow
@pytest.mark.parametrize("gradients", [False, pytest.param(True, marks=torch_is_there)], ids=["values", "gradients"])
def test_a_fusion_that_joins_by_shape_alone_is_seen(monkeypatch: pytest.MonkeyPatch, gradients: bool) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("firebrick.compiler.fusion.groups._Groups._aligned", lambda *_: True)
        patch.setattr("firebrick.compiler.targets.llvm.lower.doubt", lambda *_: "")  # nor is what it makes of a group validated
        seed = _first_wrong(gradients)
        assert seed is not None
    way = Way("cpu", "forced", gradients)
    assert not found(seed, gradients, [way])
    monkeypatch.setattr("firebrick.compiler.fusion.groups._Groups._aligned", lambda *_: True)
    with fb.config.scope(verify_graphs=False):  # a group that is refused is no error
        assert not found(seed, gradients, [way])


def test_a_failure_is_made_small_and_printed_as_a_program_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    way = Way("numpy", "jit")
    making = import_module("firebrick.graph.making")
    optimize = making.optimize

    def planted(graph: Graph) -> Graph:
        return rewrite(optimize(graph), FAULTS["rows for columns"])

    monkeypatch.setattr(making, "optimize", planted)
    seed, failure = next((s, f[0]) for s in range(200) if (f := found(s, False, [way])))
    program, left = smaller(draw(seed), failure)
    assert len(program.steps) == 1
    assert left.what == failure.what == "value"
    text = report(program, left)
    assert f"seed {seed} of numpy jit: value: output 0 at" in text
    said = io.StringIO()
    with fb.use_device("numpy"), redirect_stdout(said):
        exec(text, {})
    assert said.getvalue().count("array(") + said.getvalue().count("tensor(") == 2


# the command


def test_a_run_goes_on_where_it_was_and_further_seeds_come_after_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (command, of_seeds):
        monkeypatch.setattr(module, "BLOCK", 4)
    common = ["--engine", "numpy", "--jobs", "1", "--state", str(tmp_path)]

    def run(*options: str) -> str:
        result = CliRunner().invoke(command.main, [*options, *common])
        assert result.exit_code == 0, result.output
        return result.output

    assert "2 blocks of 4 from seed 0, 0 done before, 2 to do" in run("--start", "0", "--count", "8")
    assert "3 blocks of 4 from seed 0, 2 done before, 1 to do" in run("--start", "0", "--count", "12")
    said = run("--count", "4")
    assert "1 blocks of 4 from seed 12, 0 done before" in said
    assert "16 in this folder" in said
    [damaged, *_] = sorted(tmp_path.glob("*/values.numpy.*.json"))
    damaged.write_text("{")
    assert "4 blocks of 4 from seed 0, 3 done before, 1 to do" in run("--start", "0", "--count", "16")
    assert "0 done before, 1 to do" in run("--start", "100", "--count", "4")
    assert "from seed 104" in run("--count", "4", "--seconds", "0")  # and none begins
    assert not list(tmp_path.glob("*/values.numpy.104.json"))
    run("--start", "0", "--count", "4", "--write", str(tmp_path / "figures.md"))
    assert "| outputs | `numpy` | 20 | 0 | " in (tmp_path / "figures.md").read_text()


def test_a_wrong_program_is_reported_and_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (command, of_seeds):
        monkeypatch.setattr(module, "BLOCK", 20)
    making = import_module("firebrick.graph.making")
    optimize = making.optimize
    monkeypatch.setattr(making, "optimize", lambda graph: rewrite(optimize(graph), FAULTS["one of size 1 for another"]))
    out = tmp_path / "wrong.txt"
    options = ["--start", "0", "--count", "40", "--engine", "numpy", "--jobs", "1", "--state", str(tmp_path), "--out", str(out)]
    result = CliRunner().invoke(command.main, options)
    assert result.exit_code == 1
    assert "## seed" in out.read_text()
    blocks = [json.loads(p.read_text()) for p in tmp_path.glob("*/*.json")]
    wrong = [s for b in blocks for s in b["failed"]]
    assert wrong
    assert f"{len(wrong)} wrong" in result.output
