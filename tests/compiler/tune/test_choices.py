"""Which variant is chosen, and why: a table of settings, records and answers of a search. ``explain_tuning`` as text."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import firebrick as fb
from firebrick.compiler import cache
from firebrick.compiler.tune import bug_reports, choice, records
from firebrick.compiler.tune.records import Record, Records, TuningWarning
from firebrick.compiler.tune.variant import DEFAULT, KernelProblem, KernelVariant
from firebrick.core.config import config
from firebrick.core.errors import ConfigError, UnsupportedError

DEVICE = "a device\nof which this is the second line"
PROBLEM = KernelProblem("Map", "structure", (64,), DEVICE, 1, "a kernel")
OTHER = KernelProblem("Map", "structure", (65,), DEVICE, 1, "another size")
FAST, ODD = KernelVariant("fast", "same", list), KernelVariant("odd", "odd", list)
NEVER = KernelVariant("never", "same", list, lambda p: False)
VARIANTS = [KernelVariant(DEFAULT, "same", list), FAST, ODD, NEVER]


@pytest.fixture(autouse=True)
def home(tmp_path: Path) -> Iterator[Path]:
    with fb.config.scope(cache_dir=str(tmp_path), tune="off", deterministic=True, num_threads=1):
        choice.forget()
        yield tmp_path
    choice.forget()


def record(chosen: str = "fast", any_order: str | None = "odd", **more: Any) -> Record:
    return Record(PROBLEM.id, "structure", "a kernel", chosen, any_order, **more)


# settings, the record before, what is pinned and forced, what a search finds → variant, reason, the variants that are tried
Case = tuple[dict[str, Any], Record | None, str | None, tuple[str, ...], Record | None, str, str, list[str] | None]
ON, LOOSE = {"tune": "on"}, {"tune": "on", "deterministic": False}
CACHED, OPEN = {"tune": "cached"}, {"tune": "cached", "deterministic": False}
MEASURED = "the fastest that was measured"
CASES: dict[str, Case] = {
    "off": ({}, record(), None, (), record(), DEFAULT, "tuning is off", None),
    "cached, nothing known": (CACHED, None, None, (), record(), DEFAULT, "not tuned", None),
    "cached": (CACHED, record(), None, (), record("odd"), "fast", MEASURED, None),
    "cached, any order": (OPEN, record(), None, (), None, "odd", MEASURED, None),
    "cached, any order was not tried": (OPEN, record(any_order=None), None, (), None, "fast", MEASURED, None),
    "cached, withdrawn": (CACHED, record(DEFAULT, withdrawn="slower"), None, (), None, DEFAULT, "slower", None),
    "cached, of another order": (CACHED, record("odd"), None, (), None, DEFAULT, "not tuned", None),
    "cached, not valid": (CACHED, record("never"), None, (), None, DEFAULT, "not tuned", None),
    "cached, unknown": (CACHED, record("unknown"), None, (), None, DEFAULT, "not tuned", None),
    "cached, barred": (CACHED, record(barred={"fast": "wrong"}), None, (), None, DEFAULT, "not tuned", None),
    "on": (ON, None, None, (), record(), "fast", MEASURED, [DEFAULT, "fast"]),
    "on, any order": (LOOSE, None, None, (), record(), "odd", MEASURED, [DEFAULT, "fast", "odd"]),
    "on, known": (ON, record(), None, (), record("odd"), "fast", MEASURED, None),
    "on, any order was not tried": (
        LOOSE, record(any_order=None), None, (), record(), "odd", MEASURED, [DEFAULT, "fast", "odd"],
    ),
    "on, any order was tried": (LOOSE, record(any_order=DEFAULT), None, (), record(), DEFAULT, MEASURED, None),
    "on, without a search": (ON, None, None, (), None, DEFAULT, "not tuned", None),
    "on, a default that cannot be checked": (
        ON, None, None, (), record(DEFAULT, barred={DEFAULT: "no answer"}), DEFAULT, "not tuned", [DEFAULT, "fast"],
    ),
    "pinned": ({}, None, "odd", (), None, "odd", "pinned, as in the run that is resumed", None),
    "pinned before measured": (CACHED, record(), "odd", (), None, "odd", "pinned, as in the run that is resumed", None),
    "pinned elsewhere: no other order": (LOOSE, None, "", (), record("fast", "odd"), "fast", MEASURED, [DEFAULT, "fast"]),
    "forced": ({}, None, None, ("fast",), None, "fast", "forced", None),
    "forced before pinned": ({}, None, "odd", ("fast",), None, "fast", "forced", None),
    "forced by a pattern: the first of them": ({}, None, None, ("*a*t",), None, DEFAULT, "forced", None),
    "the innermost is forced": ({}, None, None, ("fast", "o?d"), None, "odd", "forced", None),
    "the outer one, if no variant has the name": ({}, None, None, ("fast", "none"), None, "fast", "forced", None),
    "forced by a name that none has": (CACHED, record(), None, ("none",), None, "fast", MEASURED, None),
    "forced: cases of letters count": ({}, None, None, ("FAST",), None, DEFAULT, "tuning is off", None),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::firebrick.compiler.tune.records.TuningWarning")
@pytest.mark.parametrize("name", CASES)
def test_a_choice_is_as_listed(name: str) -> None:
    settings, before, pinned, forced, found, variant, reason, tried = CASES[name]
    asked: list[list[str]] = []

    def search(problem: KernelProblem, competing: Sequence[KernelVariant]) -> Record:
        asked.append([v.name for v in competing])
        assert found is not None
        return replace(found)

    if before is not None:
        choice.records_of(DEVICE).add(replace(before, barred=dict(before.barred)))
    if pinned is not None:
        choice.pin({choice.pin_of(PROBLEM): pinned} if pinned else {})

    def choose(patterns: tuple[str, ...]) -> KernelVariant:
        if not patterns:
            return choice.chosen(PROBLEM, VARIANTS, None if found is None else search)
        with fb.force_variant(patterns[0]):
            return choose(patterns[1:])

    with fb.config.scope(**settings):
        for _ in range(2):  # what was tried once is known
            assert choose(forced).name == variant
    assert asked == ([] if tried is None else [tried])
    (decided,) = choice.choices()
    assert decided.problem == PROBLEM
    assert decided.reason == reason
    assert decided.candidates == (DEFAULT, "fast", "odd")
    assert decided.reordered is (variant == "odd")
    assert decided.pin == choice.pin_of(PROBLEM)
    assert choice.used() == ({choice.pin_of(PROBLEM): "odd"} if variant == "odd" else {})
    kept = Records(DEVICE).get(PROBLEM.id)
    if tried is not None and found is not None:
        if DEFAULT in found.barred:
            assert kept is None
        else:
            assert kept is not None
            assert kept.any_order == (found.any_order if "odd" in tried else None)


def test_a_forced_variant_is_an_error_where_it_is_not_valid() -> None:
    with fb.force_variant("fast"), fb.force_variant("ne*"), pytest.raises(UnsupportedError) as caught:
        choice.chosen(PROBLEM, VARIANTS)
    assert str(caught.value).split("\n") == [
        "a variant 'ne*' that may compute a kernel", "Received: never, whose valid_for is false for these sizes.",
        "Remedy: force another variant, or none.",
    ]  # fmt: skip


def test_a_forced_name_that_none_has_is_reported_with_up_to_eight_names() -> None:
    for count in (8, 9):
        many = [VARIANTS[0], *(KernelVariant(f"v{k}", "same", list) for k in range(count - 1))]
        with pytest.warns(TuningWarning) as said, fb.force_variant("none"):
            choice.chosen(PROBLEM, many)
        names = ", ".join([DEFAULT, *(f"v{k}" for k in range(7))])
        assert str(said[0].message).endswith(
            f"so all of them are the defaults: the names are {names}{' …' if count > 8 else ''}"
        )


@pytest.mark.parametrize("given", [3, "", None])
def test_what_force_variant_takes(given: Any) -> None:
    with pytest.raises(ConfigError, match=rf"takes the name of a variant\nReceived: {given!r}."), fb.force_variant(given):
        pass
    assert not choice.forces()


@pytest.mark.parametrize("given", [{"a": 3}, {3: "a"}])
def test_what_pin_takes(given: Any) -> None:
    with pytest.raises(ConfigError, match="pinned choices are names of variants by problem"):
        choice.pin(given)


# what happens → whether anything but defaults may be chosen, whether it is measured here, whether programs are compiled again
STATES: dict[str, tuple[dict[str, Any], Callable[[], Any], bool, bool, bool]] = {
    "nothing, off": ({}, lambda: None, False, False, False),
    "nothing, cached": (CACHED, lambda: None, False, False, False),
    "nothing, on": (ON, lambda: None, True, True, False),
    "a record, off": ({}, lambda: choice.records_of(DEVICE).add(record()), False, False, False),
    "a record, cached": (CACHED, lambda: choice.records_of(DEVICE).add(record()), True, False, False),
    "pinned": ({}, lambda: choice.pin({"a": "b"}), True, False, True),
    "pinned, on": (ON, lambda: choice.pin({"a": "b"}), True, False, True),
    "pinned nothing": ({}, lambda: choice.pin({}), False, False, False),
    "pinned nothing, any order": (LOOSE, lambda: choice.pin({}), True, False, True),
    "pinned as before": ({}, lambda: (choice.pin({"a": "b"}), choice.pin(None)), False, False, False),
    "barred": ({}, lambda: choice.bar(PROBLEM, "fast", "wrong"), False, False, True),
    "withdrawn": ({}, lambda: choice.withdraw([PROBLEM], "slower"), False, False, True),
    "cleared": ({}, lambda: choice.clear_records(), False, False, True),
    "forgotten": ({}, lambda: choice.forget(), False, False, True),
}


@pytest.mark.parametrize("name", STATES)
def test_what_is_in_force(name: str) -> None:
    settings, happens, active, measures, again = STATES[name]
    with fb.config.scope(**settings):
        config.compile_by("num_threads", False)
        before = config.compiled_with
        happens()
        assert (config.compiled_with != before) is again
        assert choice.active(DEVICE) is active
        assert ("num_threads" in config._compiled) is (settings.get("tune") == "on" or (name == "a record, cached"))
        assert choice.measures() is measures
        assert (choice.stamp(DEVICE, 1) != "") is active


@pytest.mark.filterwarnings("ignore::firebrick.compiler.tune.records.TuningWarning")
def test_a_stamp_depends_on_all_that_decides() -> None:
    found = []
    with fb.config.scope(tune="cached"):
        choice.records_of(DEVICE).add(record())
        found += [choice.stamp(DEVICE, 1), choice.stamp(DEVICE, 2)]
        assert choice.stamp(DEVICE, 1) == found[0], "as long as nothing happens"
        choice.pin({"a": "b"})
        found += [choice.stamp(DEVICE, 1)]
        choice.pin({"a": "c"})
        found += [choice.stamp(DEVICE, 1)]
        with fb.force_variant("fast"):
            assert choice.forces()
            assert not choice.measures()
            found += [choice.stamp(DEVICE, 1)]
        with fb.config.scope(tune="off"):
            found += [choice.stamp(DEVICE, 1)]
            choice.records_of(DEVICE).add(record("odd"))
            assert choice.stamp(DEVICE, 1) == found[-1]
        found += [choice.stamp(DEVICE, 1)]
    assert len(set(found)) == len(found)
    with fb.force_variant("fast"):
        assert choice.forces()
    assert not choice.forces()


def test_as_many_decisions_are_kept_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "KEPT", 2)
    problems = [replace(PROBLEM, sizes=(n,)) for n in range(4)]
    for n in (0, 1, 0, 2):
        choice.chosen(problems[n], VARIANTS)
    assert [c.problem for c in choice.choices()] == [problems[0], problems[2]]


def test_a_default_that_could_not_be_checked_is_tried_again_in_a_later_process() -> None:
    asked = []

    def search(problem: KernelProblem, competing: Sequence[KernelVariant]) -> Record:
        asked.append(problem)
        return record(DEFAULT, barred={DEFAULT: "no answer"})

    with fb.config.scope(tune="on"):
        for _ in range(2):
            choice.chosen(PROBLEM, VARIANTS, search)
        choice.forget()
        choice.chosen(PROBLEM, VARIANTS, search)
    assert asked == [PROBLEM, PROBLEM]


def test_what_is_barred_is_no_choice_any_more() -> None:
    choice.records_of(DEVICE).add(record("fast", "odd"))
    choice.bar(PROBLEM, "odd", "wrong")
    assert choice.records_of(DEVICE)[PROBLEM.id] == record("fast", DEFAULT, barred={"odd": "wrong"})
    choice.bar(PROBLEM, "fast", "wrong too")
    assert Records(DEVICE)[PROBLEM.id] == record(DEFAULT, DEFAULT, barred={"odd": "wrong", "fast": "wrong too"})
    choice.bar(OTHER, "fast", "wrong here")
    assert Records(DEVICE)[OTHER.id] == Record(OTHER.id, "structure", "another size", DEFAULT, barred={"fast": "wrong here"})
    assert Records(DEVICE).barred("structure") == {"odd": "wrong", "fast": "wrong here"}
    assert Records(DEVICE).barred("another") == {}


@pytest.mark.parametrize("any_order", ["odd", None])
def test_what_is_withdrawn_is_the_default_again(any_order: str | None) -> None:
    before = record("fast", any_order, times={"fast": 1.0}, barred={"never": "wrong"})
    choice.records_of(DEVICE).add(before)
    choice.withdraw([OTHER, PROBLEM], "slower")
    expected = replace(before, choice=DEFAULT, any_order=None if any_order is None else DEFAULT, withdrawn="slower")
    assert dict(Records(DEVICE)) == {PROBLEM.id: expected}


def test_records_of_all_devices_that_were_used_are_removed(home: Path) -> None:
    choice.records_of(DEVICE).add(record())
    choice.records_of("b").add(replace(record(), problem="p"))
    choice.records_of("b").add(replace(record(), problem="q"))
    assert choice.records_of("b") is choice.records_of("b")
    assert choice.clear_records() == 3
    assert choice.clear_records() == 0
    assert (len(Records(DEVICE)), len(Records("b")), choice.records_of("b").stamp) == (0, 0, "")


def test_what_is_written_about_records(home: Path) -> None:
    found = choice.records_of(DEVICE)
    assert found.stamp == ""
    found.add(record())
    assert found.stamp == Records(DEVICE).stamp != ""
    (entry,) = cache.store.entries()
    llvmlite, llvm = cache.versions()
    assert entry.facts == {
        "functions": ["(tuning of 1 problems)"], "target": "a device", "llvm": f"{llvm} (llvmlite {llvmlite})",
    }  # fmt: skip
    assert list(found) == [PROBLEM.id]
    again = replace(record("odd"), barred={"fast": "new"})
    found.add(replace(again, problem="p", structure="another", barred={"x": "y"}))
    found.add(again)
    assert list(found) == ["p", PROBLEM.id], "the last one last"


@pytest.mark.parametrize("change", ["text", "no text", "number", "no number"])
@pytest.mark.parametrize("name", [f.name for f in fields(Record)])
def test_a_record_of_another_form_is_not_used(name: str, change: str) -> None:
    values = {"text": "text", "no text": 7, "number": {"a": 1.5, "b": 2}, "no number": {"a": "b"}}
    kind = {"times": "number", "barred": "no number", "any_order": "text"}.get(name, "text")
    good = change == kind or (name == "barred" and change == "no number")
    value = values[change]
    changed = {**{f.name: getattr(record(times={"a": 1.0}, barred={"a": "b"}), f.name) for f in fields(Record)}, name: value}
    if good:
        assert records._checked(Record(**changed)) == Record(**changed)
    else:
        with pytest.raises((ValueError, TypeError, AttributeError)):
            records._checked(Record(**changed))


def test_records_without_known_sources_have_a_stamp_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "fingerprint", lambda: None)
    found = choice.records_of(DEVICE)
    found.add(record())
    assert found.stamp != ""
    assert list(cache.store.entries()) == []
    assert found.clear() == 1
    assert found.stamp == ""


def test_reports_lie_beside_the_objects(home: Path) -> None:
    assert bug_reports.folder() == home / "reports"
    with fb.config.scope(cache_dir="off"):
        assert bug_reports.folder() is None


def test_what_is_explained() -> None:
    assert fb.explain_tuning() == (
        "no kernel with variants was chosen in this process (fb.config.tune is 'off'; with 'off', and with 'cached' before "
        "anything was tuned, all kernels are the defaults)"
    )
    choice.records_of(DEVICE).add(record(times={DEFAULT: 20.04, "odd": 3.0}))
    with fb.config.scope(tune="cached"), warnings.catch_warnings():
        choice.chosen(PROBLEM, VARIANTS)
        choice.chosen(OTHER, VARIANTS)
        choice.bar(OTHER, "odd", "wrong")
    assert fb.explain_tuning().split("\n") == [
        "a kernel: fast (the fastest that was measured)", "  odd: barred: wrong", "  default: 20.0 µs", "  fast: not measured",
        "another size: default (not tuned)", "  default: not measured", "  fast: not measured", "  odd: barred: wrong",
    ]  # fmt: skip
