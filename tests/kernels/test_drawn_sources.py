"""Random kernels in Python's own text: the processor, the interpreter and Python itself agree in bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn_sources import arguments_of, drawn_source, kernel_of, same_numbers
from python_reference import run_in_python

import firebrick as fb


def _check(seed: int, folder: Path, groups: bool = False) -> None:
    kernel = kernel_of(drawn_source(seed, groups=groups), folder / f"drawn_{seed}.py")
    arguments = arguments_of(kernel, np.random.default_rng(seed))
    expected = run_in_python(kernel, arguments)
    for device in ("cpu", "numpy"):
        given = [fb.asarray(a, device=device) if isinstance(a, np.ndarray) else a for a in arguments]
        found = kernel(*given)
        for a, b in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            assert same_numbers(a.numpy(), b), f"seed {seed} on {device}"


@pytest.mark.parametrize("first", range(0, 30, 10))
def test_random_kernels_are_what_python_makes_of_their_text(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 10):
        _check(seed, tmp_path)


@pytest.mark.parametrize("first", range(0, 20, 10))
def test_random_kernels_of_groups_are_what_python_makes_of_their_text(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 10):
        _check(seed, tmp_path, groups=True)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(20, 2000, 50))
def test_many_random_kernels_of_groups_are_what_python_makes_of_their_text(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 50):
        _check(seed, tmp_path, groups=True)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(30, 5000, 50))
def test_many_random_kernels_are_what_python_makes_of_their_text(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 50):
        _check(seed, tmp_path)


def test_the_random_kernels_have_all_constructs() -> None:
    text = "".join(map(drawn_source, range(100)))
    constructs = ["while True:", "break", "continue", "return\n", "unrolled", "elif", "else:", " and ", " or ", "not "]
    constructs += ["helper1(", "range(", "-1, -1)", "in ((", "+= ", " if ", "WEIGHT", "float16", "bool"]
    assert [c for c in constructs if c not in text] == []
