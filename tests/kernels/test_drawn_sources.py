"""Random kernels in Python's own text: the processor, the interpreter and Python itself agree in bits."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_sources import drawn_source
from python_reference import run_in_python

import firebrick as fb
from firebrick.compiler.kernel.language.annotations import ArrayType

Array = np.ndarray[Any, Any]


def _kernel(seed: int, folder: Path) -> Any:
    path = folder / f"drawn_{seed}.py"
    path.write_text(drawn_source(seed))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def _arguments(kernel: Any, rng: np.random.Generator) -> list[Any]:
    """Arrays of a few elements, among them extreme integers, and a number."""
    shape = tuple(rng.integers(1, most) for most in (12, 4, 4))
    out: list[Any] = []
    for p in kernel.signature.given.values():
        if not isinstance(p, ArrayType):
            out.append(2)
            continue
        of, assigned = p.dtype, shape[: p.rank]
        assert isinstance(of, fb.DType)
        if of.kind == "bool":
            out.append(rng.random(assigned) < 0.5)
        elif of.kind == "float":
            out.append((rng.integers(-40, 40, assigned) / 8).astype(of.np))
        else:
            info = np.iinfo(of.np)
            extreme = rng.integers(info.min, info.max, assigned, dtype=of.np, endpoint=True)
            out.append(np.where(rng.random(assigned) < 0.3, extreme, rng.integers(0, 4, assigned).astype(of.np)))
    return out


def _equal(a: Array, b: Array) -> bool:
    """Whether arrays are equal in bits, but for NaN's."""
    nan = np.isnan(a) & np.isnan(b) if a.dtype.kind == "f" else np.zeros(a.shape, bool)
    return bool((nan | ((a == b) & (np.signbit(a) == np.signbit(b)) if a.dtype.kind == "f" else a == b)).all())


def _check(seed: int, folder: Path) -> None:
    kernel = _kernel(seed, folder)
    arguments = _arguments(kernel, np.random.default_rng(seed))
    expected = run_in_python(kernel, arguments)
    for device in ("cpu", "numpy"):
        given = [fb.asarray(a, device=device) if isinstance(a, np.ndarray) else a for a in arguments]
        found = kernel(*given)
        for a, b in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
            assert _equal(a.numpy(), b), f"seed {seed} on {device}"


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_random_kernels_are_what_python_makes_of_their_text(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 10):
        _check(seed, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(100, 5000, 50))
def test_many_random_kernels_are_what_python_makes_of_their_text(first: int, tmp_path: Path) -> None:
    for seed in range(first, first + 50):
        _check(seed, tmp_path)


def test_the_random_kernels_have_all_constructs() -> None:
    text = "".join(map(drawn_source, range(100)))
    constructs = ["while True:", "break", "continue", "return\n", "unrolled", "elif", "else:", " and ", " or ", "not "]
    constructs += ["helper1(", "range(", "-1, -1)", "in ((", "+= ", " if ", "WEIGHT", "float16", "bool"]
    assert [c for c in constructs if c not in text] == []
