"""The doctor finds every planted fault on the engine that has it, says how far off it is and what to do, and passes without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import firebrick as fb
from firebrick.cli.main import main
from firebrick.testing import doctor, examine, faults
from firebrick.testing.doctor import Examination, Finding
from firebrick.testing.report import Report

SOME = ["add", "multiply", "matmul", "relu", "cast", "sum", "where", "softmax", "maximum"]


def only_failures(found: Examination, check: str) -> bool:
    """Whether a check that failed says nowhere that all is well."""
    return [f.ok for f in found.findings if f.check == check].count(True) == 0


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Leaves the doctor no other checks than the named ones; examinations with all of them are in other tests."""

    def only(*checks: str) -> None:
        monkeypatch.setattr(doctor, "_CHECKS", {n: c for n, c in doctor._CHECKS.items() if n in checks})

    return only


def test_a_sound_engine_is_well(device: str) -> None:
    found = examine([device], ["add", "matmul", "relu"])
    assert found.ok, found.text()
    assert {f.check for f in found.findings} == {
        "conformance", "gradient rules", "large tensors", "transfers", "destinations", "random bits", "training",
    }  # fmt: skip
    assert not found.failures
    assert {f.advice for f in found.findings} == {""}
    said = {f.check: f.subject for f in found.findings}
    assert said["destinations"] == "384 writes read true, earlier views stay"
    assert said["large tensors"] == "4 calls of 2 ops, to 70,001 elements"
    assert said["random bits"] == "5 kinds of draws are the reference's"


@pytest.mark.parametrize(
    ("fault", "name"),
    faults.EXAMPLES,
    ids=lambda v: v if isinstance(v, str) else v.__qualname__.split(".")[0],
)
def test_it_finds_a_planted_fault_and_names_the_op(fault: faults.Fault, name: str, alone: Callable[..., None]) -> None:
    alone("conformance")
    with faults.planted(fault) as device:
        found = examine([device], [name])
    named = [f for f in found.failures if f.check == "conformance"]
    assert [f.subject for f in named] == [name], found.text()
    assert "cases" in named[0].off
    assert "use another device" in named[0].advice
    assert name in named[0].message
    assert f"[FAILED] {faults.ENGINE}:0 conformance: {name}" in found.text()


def test_it_finds_destinations_that_read_zero_by_two_ways(alone: Callable[..., None]) -> None:
    alone("conformance", "destinations")
    with faults.planted(faults.destinations_read_zero()) as device:
        found = examine([device], ["add"])
    assert {f.check for f in found.failures} == {"conformance", "destinations"}
    (lost,) = [f for f in found.failures if f.check == "destinations" and "[4], fresh" in f.subject]
    assert "off by" in lost.off
    assert "out=" in lost.advice
    assert lost.off == "off by 64"
    assert "64 additions of 1 into a destination (fresh) give 0, not 64" in lost.message
    assert only_failures(found, "destinations")
    assert only_failures(found, "conformance")


def test_it_finds_a_wrong_gradient_rule_and_what_it_does_to_training() -> None:
    with faults.wrong_gradient("gelu" if "gelu" in fb.ops.OPS else "erf") as op:
        found = examine(["cpu"], [op.name])
    assert [f.subject for f in found.failures if f.check == "gradient rules"] == [op.name]
    assert "every engine" in found.failures[0].advice
    assert only_failures(found, "gradient rules")


def test_it_finds_wrong_random_bits_and_lost_transfers(alone: Callable[..., None]) -> None:
    alone("random bits", "transfers")

    def off_by_one(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        result = right(op, inputs, params, out)
        return result + result.dtype.type(1) if op.name in ("random_bits", "random_uniform") else result

    with faults.planted(off_by_one) as device:
        found = examine([device], ["add"])
    assert {f.subject for f in found.failures if f.check == "random bits"} >= {"uniform", "bernoulli"}
    assert only_failures(found, "random bits")

    class Lossy(faults.FaultyBackend):
        def from_host(self, array, device):  # type: ignore[no-untyped-def]
            kept = super().from_host(array, device)
            with np.errstate(all="ignore"):
                return kept.astype("float32").astype("float64") if kept.dtype == "float64" else kept

    from firebrick.backends.registry import register_backend, unregister_backend

    register_backend(Lossy(faults.sound()))
    try:
        found = examine([faults.ENGINE], ["add"])
    finally:
        unregister_backend(faults.ENGINE)
    assert [f.subject for f in found.failures if f.check == "transfers"] == ["float64"]
    assert only_failures(found, "transfers")


def spoiled(name, when):  # type: ignore[no-untyped-def]
    """A fault: the op is off by one where ``when(inputs, params)`` holds."""

    def fault(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        result = right(op, inputs, params, out)
        return result + result.dtype.type(1) if op.name == name and when(inputs, params) else result

    return fault


@pytest.mark.parametrize("name", ["add", "take", "sum", "permute"])
def test_it_finds_what_is_wrong_on_large_tensors_only(name: str, alone: Callable[..., None]) -> None:
    alone("conformance", "large tensors")
    with faults.planted(spoiled(name, lambda inputs, params: inputs[0].size > 1 << 16)) as device:
        found = examine([device], [name])
    named = [f for f in found.failures if f.check == "large tensors"]
    assert [f.subject for f in named] == [name], found.text()
    assert "calls" in named[0].off
    assert "large tensors" in named[0].advice
    assert only_failures(found, "large tensors")


def test_it_finds_draws_that_are_wrong_far_into_a_batch(alone: Callable[..., None]) -> None:
    alone("random bits")
    with faults.planted(spoiled("random_uniform", lambda inputs, params: params["offset"] > 1 << 32)) as device:
        found = examine([device], ["add"])
    assert [f.subject for f in found.failures if f.check == "random bits"] == ["uniform, far into a batch"]
    assert only_failures(found, "random bits")


def test_it_finds_a_transfer_that_changes_what_a_nan_carries(alone: Callable[..., None]) -> None:
    alone("transfers")

    class Tidy(faults.FaultyBackend):
        def from_host(self, array, device):  # type: ignore[no-untyped-def]
            kept = super().from_host(array, device)
            return np.where(np.isnan(kept), np.float32(np.nan), kept) if kept.dtype == "float32" else kept

    from firebrick.backends.registry import register_backend, unregister_backend

    register_backend(Tidy(faults.sound()))
    try:
        found = examine([faults.ENGINE], ["add"])
    finally:
        unregister_backend(faults.ENGINE)
    assert [f.subject for f in found.failures if f.check == "transfers"] == ["float32"], found.text()


def test_it_finds_what_comes_otherwise_from_another_engine(alone: Callable[..., None]) -> None:
    alone("transfers")

    class Forgetful(faults.FaultyBackend):
        def from_dlpack(self, external, device):  # type: ignore[no-untyped-def]
            lent = super().from_dlpack(external, device)
            return np.abs(lent) if lent.dtype == "int8" else lent

    from firebrick.backends.registry import register_backend, unregister_backend

    register_backend(Forgetful(faults.sound()))
    try:
        found = examine([faults.ENGINE], ["add"])
    finally:
        unregister_backend(faults.ENGINE)
    assert [f.subject for f in found.failures if f.check == "transfers"] == ["int8"], found.text()


def test_a_device_named_twice_is_examined_once_and_one_without_values_not_at_all(alone: Callable[..., None]) -> None:
    alone("destinations")
    checks = [f.check for f in examine(["cpu", "cpu:0"], ["add"]).findings]
    assert checks.count("destinations") == 1
    with pytest.raises(fb.DeviceError, match="knows shapes only"):
        examine(["cpu", "meta"], ["add"])


def test_an_engine_that_raises_is_a_finding_and_not_the_end(alone: Callable[..., None]) -> None:
    alone("training")

    def raises(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        if op.name == "matmul":
            raise OSError("the driver is gone")
        return right(op, inputs, params, out)

    with faults.planted(raises) as device:
        found = examine([device], ["add"])
    (failed,) = [f for f in found.failures if f.check == "training"]
    assert "the driver is gone" in failed.message


def test_the_checks_run_in_order_on_every_device_with_the_seed_and_the_ops_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []

    def check(home: fb.Device, ops: list[str] | None, seed: int) -> Iterator[Finding]:
        asked.append((home.name, ops, seed))
        yield Finding("transfers", home.name, "one", True)
        raise OSError("the driver is gone")

    monkeypatch.setattr(doctor, "_CHECKS", {"transfers": check, "training": check})
    monkeypatch.setattr(doctor, "_rules", lambda ops, seed: iter(asked.append((ops, seed)) or ()))
    seen: list[tuple[str, str]] = []
    found = examine(["numpy", "cpu:1"], iter(["add"]), seed=3, watch=lambda *at: seen.append(at))
    assert asked == [(["add"], 3), *((d, ["add"], 3) for d in ("numpy:0", "numpy:0", "cpu:1", "cpu:1"))]
    assert seen == [
        ("every engine", "gradient rules"),
        *((d, c) for d in ("numpy:0", "cpu:1") for c in ("transfers", "training")),
    ]
    rows = [(f.check, f.device, f.subject, f.ok, f.message) for f in found.findings]
    end = ("it could not be finished", False, "OSError: the driver is gone")
    assert rows == [
        row for d in ("numpy:0", "cpu:1") for c in ("transfers", "training")
        for row in (("transfers", d, "one", True, ""), (c, d, *end))
    ]  # fmt: skip
    asked.clear()
    examine()
    homes = [d.name for d in fb.devices() if d.index == 0 and d.engine != "meta"]
    assert asked == [(None, 0), *((d, None, 0) for d in homes for _ in range(2))]


@pytest.mark.parametrize("fallback", ["warn", "error"])
def test_ops_that_run_on_the_host_neither_warn_nor_end_it_and_the_setting_is_as_before(
    fallback: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: list[str] = []

    def check(home: fb.Device, ops: list[str] | None, seed: int) -> Iterator[Finding]:
        settings.append(fb.config.fallback)
        yield Finding("transfers", home.name, "one", True)

    monkeypatch.setattr(doctor, "_CHECKS", {"transfers": check})
    monkeypatch.setattr(doctor, "_rules", lambda ops, seed: settings.append(fb.config.fallback) or ())
    with fb.config.scope(fallback=fallback):
        assert examine(["numpy"]).ok
        assert fb.config.fallback == fallback
    assert settings == ["silent", "silent"]


def test_a_report_has_the_facts_and_what_failed_with_what_was_received() -> None:
    assert not Examination().ok, "nothing was checked"
    good = Finding("transfers", "cpu:0", "9 moves", True, "exact", "not shown")
    bad = Finding("training", "cpu:0", "float32", False, message="went up\nand up")
    found = Examination([good, bad, good], {"firebrick": "1", "seed": "7"}, 61.6)
    assert not found.ok
    assert Examination([good]).ok
    assert found.failures == [bad]
    assert (good.advice, "do not train there" in bad.advice) == ("", True)
    assert found.text() == (
        "firebrick doctor\nfirebrick: 1\nseed: 7\n\n[ok] cpu:0 transfers: 9 moves, exact\n[FAILED] cpu:0 training: float32\n"
        "    went up\n    and up\n[ok] cpu:0 transfers: 9 moves, exact\n\n1 of 3 failed, 62 s\n"
    )


def test_the_facts_name_the_device_and_the_packages_that_are_there() -> None:
    facts = doctor._facts([fb.device("numpy")], 0)
    assert list(facts) == ["firebrick", "python", "system", "packages", "seed", "numpy:0"]
    assert f"numpy {np.__version__}" in facts["packages"]
    assert "firebrick" not in facts["packages"]
    assert all(len(p.split()) == 2 for p in facts["packages"].split(", "))
    assert f"driver NumPy {np.__version__}" in facts["numpy:0"]
    assert "None" not in facts["numpy:0"]


EPS = float(np.finfo(np.float32).eps)


@pytest.mark.parametrize(
    ("want", "got", "subject", "off"),
    [
        ([3.0, 2.0, 1.0], [3.0, 2.0, 1.0 + 9e-11], None, ""),
        ([3.0, 2.0, 1.0], [3.0, 2.0 + 3e-10, 1.0 + 3e-10], "float64, step 2", "off by 1.5e-10"),
        ([300.0, 2.0, 0.01], [300.0 + 2e-8, 2.0, 0.01 + 9e-11], None, ""),
        ([3.0, 2.0, 1.0], [3.0, float("nan"), 1.0], "float64, step 2", "off by nan"),
        ([3.0, 2.0, 3.0], [3.0, 2.0, 3.0], "float64", "it does not fall"),
    ],
)
def test_a_training_goes_wrong_at_the_step_where_its_loss_leaves_the_references_or_where_it_does_not_fall(
    monkeypatch: pytest.MonkeyPatch, want: list[float], got: list[float], subject: str | None, off: str
) -> None:
    home = fb.device("cpu")
    monkeypatch.setattr(doctor, "_losses", lambda d, dt, seed: got if d is home and dt is fb.float64 else want)
    first = next(doctor._training(home, None, 0))
    assert first.ok == (subject is None)
    if subject is not None:
        assert (first.subject, first.off) == (subject, off)


@pytest.mark.parametrize(("gap", "ok"), [(1.9e4 * EPS, True), (2.1e4 * EPS, False)])
def test_a_training_in_float32_may_leave_the_references_as_far_as_rounding_goes(
    monkeypatch: pytest.MonkeyPatch, gap: float, ok: bool
) -> None:
    home = fb.device("cpu")
    monkeypatch.setattr(home.backend, "supports_dtype", lambda device, dt: dt is not fb.float64)
    monkeypatch.setattr(doctor, "_losses", lambda d, dt, seed: [3.0, 1.0 + gap if d is home else 1.0])
    (found,) = doctor._training(home, None, 0)
    assert found.ok == ok
    assert "float32" in found.subject


def test_a_destination_that_an_earlier_view_shares_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_place(op: Any, inputs: Any, params: Any, out: fb.Tensor) -> fb.Tensor:
        out.storage.data[...] = inputs[0].storage.data + 1
        return out

    monkeypatch.setattr(doctor, "bind", in_place)
    found = list(doctor._destinations(fb.device("numpy"), None, 0))
    assert [f.subject for f in found] == ["float32[4], under a view", "float32[33, 65], under a view"]
    assert all(f.message.endswith("give 64, not 64; 64 earlier views changed") for f in found)


@pytest.mark.parametrize(("ulps", "ok"), [(0, True), (4, True), (5, False), (float("nan"), False)])
def test_normals_may_differ_by_four_units_in_the_last_place(monkeypatch: pytest.MonkeyPatch, ulps: float, ok: bool) -> None:
    class Drawn:
        def __init__(self, seed: int) -> None: ...

        def normal(self, shape: tuple[int, ...], device: Any) -> Any:
            return SimpleNamespace(numpy=lambda: np.float64([2.0, -2.0 + (0 if device == "numpy" else ulps * 2.0**-51)]))

    monkeypatch.setattr(doctor, "_DRAWS", {})
    monkeypatch.setattr(doctor, "Generator", Drawn)
    (found,) = doctor._random(fb.device("cpu"), None, 0)
    assert (found.ok, found.subject == "normal") == (ok, not ok)


def test_ops_that_ran_on_the_host_are_told_and_the_worst_error_with_its_op(monkeypatch: pytest.MonkeyPatch) -> None:
    report = Report("cpu:0", 0, 9, {"add": 0.5, "exp": 2.25, "sin": 1.0}, fallbacks={"tan", "erf"})
    monkeypatch.setattr(doctor, "conformance", lambda *args, **settings: report)
    found = [(f.subject, f.ok, f.off) for f in doctor._conformance(fb.device("cpu"), None, 0)]
    assert found == [
        ("9 cases of 3 ops", True, "worst error 2.25 units of precision (exp)"), ("on the host run: erf, tan", True, ""),
    ]  # fmt: skip


# the command


def test_the_command_shows_a_table_and_writes_the_report(tmp_path: Path) -> None:
    goal = tmp_path / "report.txt"
    result = CliRunner().invoke(main, ["doctor", "--device", "cpu", "--op", "add", "--report", str(goal)])
    assert result.exit_code == 0, result.output
    assert "all is well" in result.output
    text = goal.read_text()
    assert f"firebrick: {fb.__version__}" in text
    assert "[ok] cpu:0 destinations" in text
    assert "seed: 0" in text


def test_the_command_fails_where_something_does_and_prints_what_to_paste() -> None:
    with faults.planted(faults.reads_zero("relu")):
        result = CliRunner().invoke(main, ["doctor", "--device", faults.ENGINE, "--op", "relu"])
    assert result.exit_code == 1
    assert "FAILED" in result.output
    assert "paste this into a bug report" in result.output
    assert "use another" in result.output


def test_the_command_refuses_a_report_that_it_could_not_write_before_it_works(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["doctor", "--device", "cpu", "--report", str(tmp_path / "none" / "report.txt")])
    assert result.exit_code == 1
    assert "No such file" in result.output
    assert "checking" not in result.output


@pytest.mark.parametrize(
    "arguments", [["--device", "cuda:99"], ["--device", "cpu", "--op", "frobnicate"], ["--device", "meta", "--op", "add"]]
)
def test_the_command_says_what_it_does_not_know(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["doctor", *arguments])
    assert result.exit_code == 1
    assert "error:" in result.output
    assert "Traceback" not in result.output
