"""What tuning has found is kept on disk: read by later processes, never believed when damaged or foreign."""

from __future__ import annotations

import json
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.cpu import trial, tuning
from firebrick.compiler import cache
from firebrick.compiler.tune import choice, records
from firebrick.compiler.tune.records import Record, Records, TuningWarning
from firebrick.compiler.tune.variant import DEFAULT, KernelProblem, KernelVariant
from firebrick.core.errors import ConfigError, UnsupportedError


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    with fb.config.scope(cache_dir=str(tmp_path), tune="cached"):
        choice.forget()
        yield tmp_path
    choice.forget()


def problem(*sizes: int, device: str = "a device", threads: int = 1) -> KernelProblem:
    return KernelProblem("Map", "structure", sizes, device, threads, f"a kernel of {sizes}")


def variants(*names: str, order: str = "same", valid: Any = lambda p: True) -> list[KernelVariant]:
    return [KernelVariant(DEFAULT, "same", list), *(KernelVariant(n, order, list, valid) for n in names)]


def record(p: KernelProblem, fastest: str, **more: Any) -> Record:
    return Record(p.id, p.structure, p.text, fastest, None, {DEFAULT: 2.0, fastest: 1.0}, **more)


def kept(p: KernelProblem, fastest: str, **more: Any) -> None:
    choice.records_of(p.device).add(record(p, fastest, **more))


def name(p: KernelProblem, found: list[KernelVariant]) -> str:
    return choice.chosen(p, found).name


def test_a_record_serves_exactly_its_problem() -> None:
    kept(problem(64, 32), "fast")
    choice.forget()  # as a new process would begin
    assert name(problem(64, 32), variants("fast")) == "fast"
    for other in (problem(63, 32), problem(1, 32), problem(64, 33), problem(64, 32, threads=2), problem(64, 32, device="b")):
        assert name(other, variants("fast")) == DEFAULT


def test_valid_for_is_asked_at_every_use() -> None:
    kept(problem(64), "fast")
    asked = []
    assert name(problem(64), variants("fast", valid=lambda p: asked.append(p.sizes) or True)) == "fast"
    assert name(problem(64), variants("fast", valid=lambda p: False)) == DEFAULT
    assert asked == [(64,)]


def test_other_bits_need_the_setting_or_a_pin() -> None:
    kept(problem(64), "reordered")
    found = variants("reordered", order="another")
    assert name(problem(64), found) == DEFAULT
    with fb.config.scope(deterministic=False):
        assert name(problem(64), found) == "reordered"
        assert set(choice.used().values()) == {"reordered"}
        choice.pin({})  # a run without such kernels is resumed
        assert name(problem(64), found) == DEFAULT
    choice.pin({choice.pin_of(problem(64)): "reordered"})
    assert name(problem(64), found) == "reordered"
    assert name(problem(64, threads=3), found) == "reordered", "for every number of threads"
    with pytest.warns(TuningWarning, match="'reordered', which this device does not have"):
        assert name(problem(64), variants("fast")) == DEFAULT


def test_what_was_wrong_for_some_sizes_is_used_for_none() -> None:
    kept(problem(1), "fast")
    assert name(problem(1), variants("fast")) == "fast"
    choice.bar(problem(64), "fast", "it computed row 0 only")
    assert name(problem(1), variants("fast")) == DEFAULT
    choice.forget()
    assert name(problem(1), variants("fast")) == DEFAULT
    kept(problem(64), "other")
    assert choice.records_of("a device")[problem(64).id].barred == {"fast": "it computed row 0 only"}


def test_tune_off_uses_defaults() -> None:
    kept(problem(64), "fast")
    with fb.config.scope(tune="off"):
        assert name(problem(64), variants("fast")) == DEFAULT


def entries(home: Path) -> list[Path]:
    return list((home / "objects").glob("*.fbo"))


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign"])
def test_a_damaged_entry_is_not_used_and_said_so(damage: str, home: Path) -> None:
    kept(problem(64), "fast")
    (path,) = entries(home)
    content = bytearray(path.read_bytes())
    if damage == "flip":
        content[-3] ^= 1
    elif damage == "foreign":
        content = bytearray(b"something else entirely")
    path.write_bytes(bytes(content[: len(content) // 2] if damage == "cut" else b"" if damage == "empty" else content))
    cache.store._warned.clear()
    choice.forget()
    with pytest.warns(cache.CacheWarning):
        found = name(problem(64), variants("fast"))
    assert found == DEFAULT
    kept(problem(64), "fast")
    choice.forget()
    assert name(problem(64), variants("fast")) == "fast"


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(device="another"),
        lambda d: d.update(records=3),
        lambda d: d["records"][0].pop("choice"),
        lambda d: d["records"][0].update(choice=7),
        lambda d: d["records"][0].update(times={"fast": "soon"}),
        lambda d: d["records"][0].update(barred=["x"]),
    ],
)
def test_a_whole_entry_of_another_form_is_not_used(change: Any) -> None:
    kept(problem(64), "fast")
    found = choice.records_of("a device")
    image = json.loads(cache.store.load(found._key) or b"")
    change(image)
    cache.store.save(found._key, json.dumps(image).encode(), {})
    with pytest.warns(TuningWarning, match="not used"):
        assert len(Records("a device")) == 0


def test_records_of_other_sources_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    kept(problem(64), "fast")
    with monkeypatch.context() as changed:
        changed.setattr(records, "fingerprint", lambda: b"others")
        choice.forget()
        assert name(problem(64), variants("fast")) == DEFAULT
        changed.setattr(records, "fingerprint", lambda: None)  # not known: nothing is read or written
        choice.forget()
        assert name(problem(64), variants("fast")) == DEFAULT
        kept(problem(65), "fast")
        assert name(problem(65), variants("fast")) == "fast", "in this process"
    choice.forget()
    assert name(problem(64), variants("fast")) == "fast"
    assert name(problem(65), variants("fast")) == DEFAULT


def test_choices_are_in_the_order_of_their_last_use() -> None:
    for n in (64, 65, 64):
        choice.chosen(problem(n), variants())
    assert [c.problem for c in choice.choices()] == [problem(65), problem(64)]


def test_records_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST", 5)
    for n in range(9):
        kept(problem(n + 1), "fast")
    choice.forget()
    assert [r.text for r in choice.records_of("a device").values()] == [f"a kernel of {(n,)}" for n in range(5, 10)]


def test_two_processes_keep_what_both_found() -> None:
    one, other = Records("a device"), Records("a device")
    one.add(record(problem(1), "fast"))
    other.add(record(problem(2), "fast"))
    assert set(Records("a device")) == {problem(1).id, problem(2).id}


def test_without_a_folder_records_are_kept_in_memory() -> None:
    with fb.config.scope(cache_dir="off"):
        kept(problem(64), "fast")
        assert name(problem(64), variants("fast")) == "fast"


def test_a_forced_variant_that_is_not_valid_is_refused() -> None:
    found = variants("fast", "slow", valid=lambda p: p.sizes[0] % 8 == 0)
    with fb.force_variant("fast"):
        assert name(problem(64), found) == "fast"
        with fb.force_variant("s*"):
            assert name(problem(64), found) == "slow"
        with pytest.raises(UnsupportedError, match="whose valid_for is false for these sizes"):
            choice.chosen(problem(63), found)
        assert name(problem(63), variants()) == DEFAULT, "it has no variant of that name"
    with pytest.raises(ConfigError, match="takes the name of a variant"), fb.force_variant(""):
        pass


def test_a_forced_name_that_no_kernel_has_is_a_warning() -> None:
    text = r"force_variant\('fsat'\) has a variant of that name.*: the names are default, fast"
    with pytest.warns(TuningWarning, match=text), fb.force_variant("fsat"):
        assert name(problem(64), variants("fast")) == DEFAULT
    with fb.force_variant("fsat"):
        pass  # nothing was compiled
    with fb.force_variant("fast"):
        assert name(problem(64), variants("fast")) == "fast"
        assert name(problem(64), variants("slow")) == DEFAULT, "one kernel has it"


def test_a_default_that_cannot_be_checked_is_said_and_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial.CpuBench, "check", lambda self, variant: "its process gave no answer")
    function = fb.jit(lambda x: (x * 2.0 + 1.0) * 4.0 - 3.0)
    with fb.config.scope(tune="on"):
        with pytest.warns(TuningWarning, match="could not be checked"):
            assert float(function(fb.ones((8, 8)))[0, 0]) == 9.0
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert float(fb.jit(lambda x: (x * 2.0 + 1.0) * 4.0 - 3.0)(fb.ones((8, 8)))[0, 0]) == 9.0
    choice.forget()
    assert not any(len(r) for r in map(Records, [c.problem.device for c in choice.choices()]))


def test_the_same_bits_tuned_or_not_and_for_any_threads() -> None:
    rng = np.random.default_rng(0)
    a, b = (fb.asarray(rng.standard_normal(s).astype(np.float32)) for s in ((96, 200), (200, 130)))
    function = fb.jit(lambda a, b: fb.softmax(fb.gelu(a @ b), axis=-1))
    with fb.config.scope(tune="off"):
        expected = function(a, b).numpy().tobytes()
    for threads in (1, 2, 4):
        with fb.config.scope(tune="on", num_threads=threads):
            assert fb.jit(lambda a, b: fb.softmax(fb.gelu(a @ b), axis=-1))(a, b).numpy().tobytes() == expected
    assert {c.reason for c in choice.choices()} == {"the fastest that was measured"}


def test_threads_that_tune_at_a_time_do_not_disturb_each_other() -> None:
    programs = [fb.jit(lambda x, k=k: (x * 2.0 + k) * 4.0 - 3.0) for k in (1.0, 5.0, 7.0, 9.0)]
    found: list[float] = [0.0] * len(programs)
    start = threading.Barrier(len(programs))

    def work(n: int) -> None:
        start.wait()
        found[n] = float(programs[n](fb.ones((64 + n, 64)))[0, 0])

    with warnings.catch_warnings(), fb.config.scope(tune="on", num_threads=2):
        warnings.simplefilter("error")
        workers = [threading.Thread(target=work, args=(n,)) for n in range(len(programs))]
        for w in workers:
            w.start()
        for w in workers:
            w.join()
    assert found == [9.0, 25.0, 33.0, 41.0]
    assert not any(choice.records_of(c.problem.device).barred(c.problem.structure) for c in choice.choices())
    assert len(choice.choices()) == len(programs)


def test_where_no_process_can_be_started_the_default_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    trial.PROCESS.end()
    monkeypatch.setattr("sys.executable", "/no/such/python")
    with fb.config.scope(tune="on"), pytest.warns(TuningWarning, match="no process for it could be started"):
        assert float(fb.jit(lambda x: (x * 2.0 + 1.0) * 4.0 - 3.0)(fb.ones((8, 8)))[0, 0]) == 9.0


@pytest.mark.parametrize(("rates", "expected"), [({}, 0.0), ({"flops": 100.0, "bytes": 10.0}, 2.0 * tuning.IN_MEMORY / 10.0)])
def test_memory_bounds_a_problem_where_the_rates_of_the_machine_are_known(
    monkeypatch: pytest.MonkeyPatch, rates: dict[str, float], expected: float
) -> None:
    monkeypatch.setattr(trial, "peaks", lambda threads: rates)
    spec: Any = SimpleNamespace(cost=SimpleNamespace(flops=1.0, nbytes=2.0 * tuning.IN_MEMORY))
    assert tuning._bound_us(spec, (), 1) == expected
