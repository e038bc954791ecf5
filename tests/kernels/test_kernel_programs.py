"""Programs in the kernel language agree with plain NumPy, on the processor and by the interpreter, eager and traced."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_programs import PROGRAMS
from python_reference import run_in_python


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("device", ["cpu", "numpy"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_agrees_with_plain_numpy(name: str, device: str, jit: bool) -> None:
    p = PROGRAMS[name]
    for size in p.sizes if not jit else p.sizes[-2:]:
        arguments = p.inputs(np.random.default_rng(size), size)
        p.agree(p.run(arguments, device, jit), arguments)


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_engines_agree_in_bits(name: str) -> None:
    p = PROGRAMS[name]
    arguments = p.inputs(np.random.default_rng(5), p.sizes[-1])
    for a, b in zip(p.run(arguments, "cpu", False), p.run(arguments, "numpy", False), strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_what_python_makes_of_its_text(name: str) -> None:
    p = PROGRAMS[name]
    arguments = p.inputs(np.random.default_rng(3), min(p.sizes[-1], 9))
    p.agree(run_in_python(p.kernel, arguments), arguments)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_comparison_with_plain_numpy_finds_one_wrong_element(name: str) -> None:
    p = PROGRAMS[name]
    arguments = p.inputs(np.random.default_rng(0), p.sizes[-1])
    results = [np.array(x) for x in p.run(arguments, "cpu", False)]
    x = results[-1].reshape(-1)
    x[len(x) // 2] = ~x[len(x) // 2] if x.dtype.kind != "f" else x[len(x) // 2] + np.abs(x).max() * 1e-3
    with pytest.raises(AssertionError):
        p.agree(tuple(results), arguments)


def test_there_are_25_programs_of_different_kernels() -> None:
    assert len({id(p.kernel) for p in PROGRAMS.values()}) == len(PROGRAMS) >= 25
