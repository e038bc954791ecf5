"""Settings that engines read while they compile: compiled functions honour each at their next call."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.cpu import native
from firebrick.backends.cpu.runtime.pool import shared_pool
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.tune import choice
from firebrick.core.config import SETTINGS

SOURCES = Path(fb.__file__).parent
COMPILED = {name for name, setting in SETTINGS.items() if setting.compiled}
OTHERS: dict[str, Any] = {
    "cpu_compile": False, "cpu_vector_bits": 128, "fallback": "silent", "kernel_loop_limit": 1000, "torch_compile": True,
    "tune": "off", "deterministic": False, "verify_every": 3,
}  # fmt: skip
"""Another value of each of them."""
ELSEWHERE = {
    "cache_dir": "where objects are kept on disk", "cache_plans": "where plans are kept", "cache_size": "what stays on disk",
    "device": "part of a trace's key", "kept_results": "memory that is kept", "logical_devices": "read at each use",
    "num_threads": "read at each call", "verify_graphs": "whether what is compiled is checked",
}  # fmt: skip
"""Settings that engines and the compiler read and that change no code, and why."""


def test_each_setting_that_is_compiled_has_another_value_here() -> None:
    assert OTHERS.keys() == COMPILED
    assert not [name for name, value in OTHERS.items() if value == SETTINGS[name].default]


@pytest.mark.parametrize("folder", ["compiler", "backends", "ir", "graph/passes"])
def test_engines_and_the_compiler_read_no_other_setting(folder: str) -> None:
    read: dict[str, set[str]] = defaultdict(set)
    for path in (SOURCES / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "config":
                read[node.attr].add(path.name)
    names = read.keys() & SETTINGS.keys()
    assert names <= COMPILED | ELSEWHERE.keys(), {n: read[n] for n in names - COMPILED - ELSEWHERE.keys()}
    assert folder != "backends" or {"cpu_compile", "kernel_loop_limit", "torch_compile"} <= names, "none is found"


@pytest.mark.parametrize("name", sorted(COMPILED))
def test_a_program_is_compiled_once_for_each_value(name: str) -> None:
    f = fb.jit(lambda x: fb.exp(x) * 2.0)
    f(fb.ones(3))
    (entry,) = f._entries.graphs.values()
    first = entry.program.executable()
    with fb.config.scope(**{name: OTHERS[name]}):
        other = entry.program.executable()
        assert other is entry.program.executable()
    assert other is not first
    assert entry.program.executable() is first
    with fb.config.scope(**{name: OTHERS[name]}):
        assert entry.program.executable() is other


def test_settings_that_change_no_code_keep_programs() -> None:
    choice.forget()  # what was tuned depends on the number of threads
    f = fb.jit(lambda x: fb.exp(x) * 2.0)
    f(fb.ones(3))
    (entry,) = f._entries.graphs.values()
    first = entry.program.executable()
    with fb.config.scope(num_threads=1, verify_graphs=not fb.config.verify_graphs, cache_size=1 << 20):
        assert entry.program.executable() is first


@pytest.fixture
def widths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The widths of the vectors of the kernels that are generated from now on."""
    made: list[int] = []
    lower = native.lower

    def recorded(body: Any, target: Target) -> Any:
        made.append(target.width_bits)
        return lower(body, target)

    monkeypatch.setattr(native, "lower", recorded)
    return made


def test_the_second_call_has_the_vectors_of_the_setting(widths: list[int]) -> None:
    x = fb.ones((300, 300))
    f = fb.jit(lambda x: fb.exp(x) * 2.0 + x)
    f(x)
    assert set(widths) == {Target.host().width_bits}
    widths.clear()
    with fb.config.scope(cpu_vector_bits=128):
        f(x)
    assert set(widths) == {128}


def test_the_second_call_runs_on_numpys_kernels_if_the_setting_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    x = fb.ones((300, 300))
    f = fb.jit(lambda x: fb.exp(x) * 2.0 + x)
    with fb.config.scope(cpu_compile=True):
        assert "fused" in f.explain(x)
        f(x)
        with fb.config.scope(cpu_compile=False):
            f(x)
            assert "fused" not in f.explain(x)


def calls_of_a_convolution() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    rng = np.random.default_rng(0)
    x, w = (fb.asarray(rng.normal(size=s).astype(np.float32)) for s in ((8, 64, 28, 28), (64, 64, 3, 3)))
    return lambda x, w: fb.conv2d(x, w, padding=1), (x, w)


@pytest.mark.parametrize("transform", [lambda f: f, fb.jit], ids=["eager", "jit"])
def test_the_second_call_of_a_convolution_is_that_of_a_forced_variant(transform: Callable[..., Any]) -> None:
    plain, operands = calls_of_a_convolution()
    f = transform(plain)
    before = f(*operands).numpy().tobytes()
    with fb.force_variant("winograd"):
        found = f(*operands).numpy().tobytes()
        assert found == fb.jit(lambda x, w: plain(x, w))(*operands).numpy().tobytes()
    assert found != before
    assert f(*operands).numpy().tobytes() == before


def test_the_second_call_runs_on_as_many_threads_as_the_setting_says() -> None:
    x = fb.ones((300, 300))
    f = fb.jit(lambda x: fb.exp(x) * 2.0 + x)
    seen = Counter()
    for n in (2, 1, 3):
        with fb.config.scope(num_threads=n):
            f(x)
            seen[shared_pool().threads] += 1
    assert seen == {2: 1, 1: 1, 3: 1}
