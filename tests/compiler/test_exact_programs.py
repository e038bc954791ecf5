"""Random programs of whole numbers have NumPy's bits in compiled kernels, and each of their groups is proved."""

from __future__ import annotations

import numpy as np
import pytest
from exact_programs import Program, draw

import firebrick as fb
from firebrick.compiler.fusion.policy import thresholds
from firebrick.graph.passes import movement

CASES, EACH, MANY = 4, 40, 1000


def bits(x: fb.Tensor) -> tuple[str, tuple[int, ...], bytes]:
    """Dtype, shape and elements of a tensor; all NaNs are one, and both zeros, of which a maximum may give either."""
    found = np.array(x.numpy())
    if x.dtype.is_floating:
        found = np.where(found != found, np.nan, found.astype(np.float64) + 0.0)
    return x.dtype.name, x.shape, found.tobytes()


def fault(program: Program) -> str:
    """What is wrong with a program; empty if nothing is."""
    function, given = program.defined(), program.arguments("cpu")
    wanted = [bits(x) for x in function(*program.arguments("numpy"))]
    before = [x.numpy().tobytes() for x in given]
    with thresholds(**program.thresholds):
        compiled = fb.jit(function)
        first = compiled(*given)
        kept = [bits(x) for x in first]
        again = [bits(x) for x in compiled(*given)]
        text = compiled.explain(*given)
    wrong = [f"v{k}" for k, a, b in zip(program.outputs, kept, wanted, strict=True) if a != b]
    if wrong:
        return f"{', '.join(wrong)} differ"
    if again != wanted or [bits(x) for x in first] != kept:
        return "a second call differs, or writes over the results of the first"
    if [x.numpy().tobytes() for x in given] != before:
        return "an input was written"
    return text[text.index("groups not fused for want") :][:300] if "groups not fused for want" in text else ""


def check(seeds: range) -> None:
    wrong = [f"seed {s}: {text}\n{program}" for s in seeds if (text := fault(program := draw(s)))]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(seeds)} programs are wrong", *wrong[:3]])


@pytest.mark.parametrize("part", range(CASES))
def test_programs_of_whole_numbers_have_numpys_bits(part: int) -> None:
    check(range(part * EACH, (part + 1) * EACH))


@pytest.mark.soak
@pytest.mark.parametrize("part", range(10))
def test_many_programs_of_whole_numbers_have_numpys_bits(part: int) -> None:
    check(range(1000 + part * MANY, 1000 + (part + 1) * MANY))


@pytest.mark.parametrize("op", ["flip", "slice", "permute"])
def test_a_movement_that_is_dropped_is_found(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        movement.RULES, op, lambda r, n, inputs: inputs[0] if r.avals[inputs[0]] == n.avals[0] else None
    )  # fmt: skip
    assert any(fault(draw(s)) for s in range(CASES * EACH))
