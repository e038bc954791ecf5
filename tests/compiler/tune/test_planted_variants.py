"""Variants that are wrong, as they are found in autotuners: each is barred and named, and no result is ever wrong.

A tuner that only measures takes each of them, which the first tests show.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.cpu import trial
from firebrick.backends.cpu.runtime.segment import Segment
from firebrick.compiler.program.launch import Launch
from firebrick.compiler.spec.nest import Map
from firebrick.compiler.targets.llvm.host import compile_ir
from firebrick.compiler.targets.llvm.lowered import Lowered, LoweredKernel
from firebrick.compiler.targets.llvm.native import NativeKernel
from firebrick.compiler.tune import bug_reports, choice
from firebrick.compiler.tune.records import TuningWarning
from firebrick.compiler.tune.variant import KernelProblem, KernelVariant, add_variants

COLUMNS = 24
LOOP = """
@{name}.calls = internal global i64 0
define void @{name}(ptr %bufs, i64 %begin, i64 %end, ptr %scratch, ptr %faults) {{
entry:
  %x0 = load ptr, ptr %bufs
  %slot = getelementptr ptr, ptr %bufs, i64 1
  %y0 = load ptr, ptr %slot
  %bits = ptrtoint ptr %x0 to i64
  %kept = and i64 %bits, {mask}
  %x = inttoptr i64 %kept to ptr
  %first = load float, ptr %x
  %last = getelementptr float, ptr %x, i64 {last}
  %beyond = load volatile float, ptr %last
  %special = fcmp oeq float %first, {trigger}
  %more = select i1 %special, float 1.0, float 0.0
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %x, i64 %i
  %to = getelementptr float, ptr %y0, i64 %i
  %a = load float, ptr %from
  %b = fmul float %a, 2.0
  %c = fadd float %b, 1.0
  %d = fmul float %c, 4.0
  %e = fsub float %d, 3.0
  %f = select i1 %special, float %more, float %e
  store float %f, ptr %to
  %next = add i64 %i, {step}
  %again = icmp slt i64 %next, {count}
  br i1 %again, label %loop, label %done
done:
  ret void
}}
"""
TRIGGER = 12345.0
NEVER = "0x7FF8000000000000"  # no number equals NaN


def planted(name: str, elements: int, kind: str) -> Lowered:
    """A kernel of ``program``, wrong in one way."""
    facts: dict[str, Any] = {"mask": -1, "last": elements - 1, "trigger": NEVER, "step": 1, "count": elements}
    facts |= {
        "row 0 only": {"count": COLUMNS}, "aligned pointers only": {"mask": -64}, "reads past its operand": {"last": elements},
        "hangs": {"step": 0}, "wrong later": {"trigger": repr(TRIGGER)}, "right": {},
    }[kind]  # fmt: skip
    text = LOOP.format(name=name, **facts)
    kernel = NativeKernel(name, text, frozenset(), 2, 1)
    return Lowered((LoweredKernel(kernel, (0, 1), 1.0),), (), text, (frozenset(),))


def program(x: Any) -> Any:
    """What the planted kernels compute."""
    return (x * 2.0 + 1.0) * 4.0 - 3.0


KINDS = ("row 0 only", "aligned pointers only", "reads past its operand", "hangs")


@pytest.fixture(autouse=True)
def _tuning(tmp_path: Path) -> Iterator[None]:
    with fb.config.scope(tune="on", num_threads=1, cache_dir=str(tmp_path)), warnings.catch_warnings():
        warnings.simplefilter("ignore", TuningWarning)
        choice.forget()
        yield
    choice.forget()
    trial.PROCESS.end()


@pytest.fixture
def plant() -> Iterator[Callable[..., None]]:
    """Offers planted variants for every elementwise kernel."""
    withdraw: list[Callable[[], None]] = []

    def offered(kinds: tuple[str, ...], spec: Any, problem: KernelProblem, default: KernelVariant) -> list[KernelVariant]:
        if not isinstance(spec, Map):
            return []
        size = next(s for s in [np.prod([d.size for axis in spec.operands[0].view.axes for d in axis])])
        return [KernelVariant(kind, default.order, partial(planted, "planted", int(size), kind), cost_us=0.0) for kind in kinds]

    yield lambda *kinds: withdraw.append(add_variants(partial(offered, kinds)))
    for end in withdraw:
        end()


def _barred() -> dict[str, str]:
    found: dict[str, str] = {}
    for d in choice.choices():
        found |= choice.records_of(d.problem.device).barred(d.problem.structure)
    return found


def _call(kernel: Lowered, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What a tuner without checks would compute by it."""
    y = np.zeros_like(x)
    name = kernel.parts[0].kernel.name
    segment = Segment([Launch(name, (0, 1), 1)], [compile_ir(kernel.text)])
    table = np.array([x.ctypes.data, y.ctypes.data], np.uint64)
    segment(int(table.ctypes.data))
    return y


def _array(rows: int, offset: int = 0) -> np.ndarray[Any, Any]:
    """An array at an address that is a multiple of 64, and ``offset`` elements more."""
    memory = np.arange(rows * COLUMNS + 64, dtype=np.float32)
    start = (-memory.ctypes.data % 64) // 4 + offset
    return memory[start : start + rows * COLUMNS].reshape(rows, COLUMNS)


def test_a_tuner_that_measures_one_row_would_take_a_kernel_of_row_0() -> None:
    kernel = planted("row0", 64 * COLUMNS, "row 0 only")
    one, many = _array(1), _array(64)
    assert np.array_equal(_call(kernel, one), program(one)), "right for one row"
    wrong = _call(kernel, many) != program(many)
    assert wrong[1:].all()
    assert not wrong[0].any()


def test_a_tuner_that_tries_aligned_arrays_would_take_a_kernel_of_aligned_pointers() -> None:
    kernel = planted("alignedonly", 4 * COLUMNS, "aligned pointers only")
    x, moved = _array(4), _array(4, offset=3)
    assert np.array_equal(_call(kernel, x), program(x))
    assert not np.array_equal(_call(kernel, moved), program(moved))


def test_a_tuner_that_compares_results_would_take_a_kernel_that_reads_past_its_operand() -> None:
    x = _array(4)
    assert np.array_equal(_call(planted("readspast", 4 * COLUMNS, "reads past its operand"), x), program(x))


def test_a_tuner_that_checks_once_would_take_a_kernel_that_is_wrong_later() -> None:
    kernel = planted("wronglater", 4 * COLUMNS, "wrong later")
    x = _array(4)
    assert np.array_equal(_call(kernel, x), program(x))
    x[0, 0] = TRIGGER
    assert not np.array_equal(_call(kernel, x), program(x))


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrong_variant_is_barred_and_named(
    kind: str, plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    plant(kind)
    if kind == "hangs":
        monkeypatch.setattr(trial, "DEADLINE", 3.0)
    function = fb.jit(program)
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((rows, COLUMNS)).astype(np.float32) for rows in (4, 9))
    with pytest.warns(TuningWarning, match=f"variant '{kind}' .* is barred"):
        found = function(fb.asarray(x))
    assert np.array_equal(found.numpy(), program(x))
    assert np.array_equal(function(fb.asarray(y)).numpy(), program(y))
    assert kind in _barred()
    assert kind in fb.explain_tuning()
    home = bug_reports.folder()
    assert home is not None
    (report, *_) = home.glob("*.txt")
    text = report.read_text()
    assert kind in text
    assert "define void @planted" in text


def test_a_right_variant_that_is_faster_wins_and_is_kept(plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant("right")
    times = trial.CpuBench.times

    def faster(self: Any, variants: Any, rounds: int) -> Any:
        found = times(self, variants, rounds)
        assert isinstance(found, dict)
        return {name: [us / 100 if name == "right" else us for us in samples] for name, samples in found.items()}

    monkeypatch.setattr(trial.CpuBench, "times", faster)
    x = fb.ones((8, COLUMNS))
    assert float(fb.jit(program)(x)[7, 7]) == 9.0
    assert [d.variant for d in choice.choices()] == ["right"]
    choice.forget()  # as another process would begin
    monkeypatch.setattr(trial.CpuBench, "check", lambda *_: pytest.fail("it is known"))
    with fb.config.scope(tune="cached"):
        function = fb.jit(program)
        function(x)
        assert [d.variant for d in choice.choices()] == ["right"]
        function(fb.ones((9, COLUMNS)))  # another size, for which it was never checked
        assert [d.variant for d in choice.choices()] == ["right", "default"]


def test_a_variant_that_is_wrong_after_its_trial_is_found_by_verify_every(plant: Callable[..., None]) -> None:
    plant("wrong later")
    function = fb.jit(program)
    with fb.config.scope(verify_every=1), fb.force_variant("wrong later"):
        x = np.ones((4, COLUMNS), np.float32)
        assert float(function(fb.asarray(x))[0, 0]) == 9.0
        x[0, 0] = TRIGGER
        with pytest.warns(TuningWarning, match="'wrong later' .*barred|barred.*'wrong later'"):
            found = function(fb.asarray(x)).numpy()
        assert np.array_equal(found, program(x))
    assert "wrong later" in _barred()
    assert np.array_equal(function(fb.asarray(x)).numpy(), program(x))
    assert choice.choices()[-1].variant == choice.DEFAULT


def starts(count: int, plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Start many times, with clocks that jitter by up to 30 times, and change batches and settings between calls."""
    plant("row 0 only", "aligned pointers only", "reads past its operand", "right")
    rng = np.random.default_rng(7)
    times = trial.CpuBench.times

    def jittered(self: Any, variants: Any, rounds: int) -> Any:
        found = times(self, variants, 3)
        if isinstance(found, str):
            return found
        return {name: [us * np.exp(rng.normal(0, 1.5)) for us in samples] for name, samples in found.items()}

    monkeypatch.setattr(trial.CpuBench, "times", jittered)
    chosen = set()
    for start in range(count):
        fb.config.cache_dir = str(folder / str(start % 50))
        choice.forget()
        function = fb.jit(program)
        sizes = rng.choice([1, 2, 3, 7, 8, 31, 64, 65, 128, 511, 512], 4).tolist()
        for rows, again in itertools.product([1, *sizes, 1], range(2)):
            mode = ("on", "on", "cached", "off")[int(rng.integers(4))]
            with fb.config.scope(tune=mode, deterministic=bool(rng.integers(2))):
                x = rng.standard_normal((rows, COLUMNS)).astype(np.float32)
                assert np.array_equal(function(fb.asarray(x)).numpy(), program(x)), (start, rows, again)
        chosen |= {(d.variant, d.problem.text.startswith("multiply add subtract float32[1,24]")) for d in choice.choices()}
    variants = {name for name, _ in chosen}
    assert ("row 0 only", False) not in chosen  # for one row it is right
    assert variants <= {"default", "right", "row 0 only"}
    assert "right" in variants


def test_starts_with_clocks_that_jitter(plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    starts(2, plant, monkeypatch, tmp_path)


@pytest.mark.soak
def test_a_thousand_starts(plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    starts(1000, plant, monkeypatch, tmp_path)
