"""What is found of a driver whose arithmetic, conversions or shuffles are wrong, by probes that answer as it would."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.webgpu import measurements, probes
from firebrick.core.errors import KernelCompileError

CORRECTED = ("division", "square root", "fma", "products in sums")
OTHERS = ("sums", "comparisons")
POINTS = np.arange(6.0).reshape(3, 2)


def refuse(*_: Any) -> Any:
    raise KernelCompileError("a shader", "no", "none")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What each operation gives at two points; one may be put there that is wrong."""
    found = {what: np.array([True, True]) for what in (*OTHERS[:1], *CORRECTED, *OTHERS[1:])}
    monkeypatch.setattr(probes, "_arithmetic", lambda run, dtype: (POINTS, found))
    monkeypatch.setattr(probes, "_halves", lambda run: "halves")
    monkeypatch.setattr(probes, "_shuffles", lambda run: 32)
    return found


@pytest.mark.parametrize("wrong", [(), *((what,) for what in CORRECTED), CORRECTED])
def test_operations_that_are_corrected_may_be_wrong(wrong: tuple[str, ...], driver: dict[str, Any]) -> None:
    driver.update((what, np.array([True, False])) for what in wrong)
    each = {what: what not in wrong for what in CORRECTED}
    assert probes.arithmetic(lambda *_: None, "a driver") == each
    assert probes.arithmetic64(lambda *_: None) == {"all others": True, **each}


@pytest.mark.parametrize("wrong", OTHERS)
def test_operations_that_every_kernel_relies_on_must_be_right(wrong: str, driver: dict[str, Any]) -> None:
    driver[wrong] = np.array([True, False])
    with pytest.raises(fb.DeviceError) as caught:
        probes.arithmetic(lambda *_: None, "a driver")
    assert caught.value.expected == f"a driver computes {wrong} of float32 as IEEE 754 does"
    assert caught.value.received == "other bits for x = np.float64(1.0), y = np.float64(3.0)"
    assert probes.arithmetic64(lambda *_: None) == {"all others": False, **dict.fromkeys(CORRECTED, True)}


def test_only_features_that_there_are_are_tried(driver: dict[str, Any]) -> None:
    def found(*features: str) -> tuple[Any, ...]:
        made = probes.optional(lambda *_: None, features)
        assert list(made) == ["float16", "float64", "subgroups"]
        return tuple(made.values())

    exact = {"all others": True, **dict.fromkeys(CORRECTED, True)}
    assert found() == (probes.NOT_OFFERED, None, probes.MISSING)
    assert found("shader-f16") == ("halves", None, probes.MISSING)
    assert found(*probes.FLOAT64) == (probes.NOT_OFFERED, exact, probes.MISSING)
    assert found("subgroup") == (probes.NOT_OFFERED, None, 32)
    assert found("subgroup", "shader-f16", *probes.FLOAT64) == ("halves", exact, 32)


def test_a_feature_whose_shaders_are_not_compiled_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_halves", "arithmetic64", "_shuffles"):
        monkeypatch.setattr(probes, name, refuse)
    found = probes.optional(lambda *_: None, ("subgroup", "shader-f16", *probes.FLOAT64))
    assert found == {"float16": "not compiled, and not used", "float64": None, "subgroups": probes.WRONG}


GOOD: dict[str, Any] = {
    "arithmetic": dict.fromkeys(CORRECTED, True),
    "optional": {"float16": "exact", "float64": {"all others": True, **dict.fromkeys(CORRECTED, False)}, "subgroups": 8},
    "longest loop": 100, "habits": {},
}  # fmt: skip


def entry(**changes: Any) -> bytes:
    return measurements.json.dumps({"identity": {"a": 1}, **GOOD, **changes}).encode()


def test_an_entry_is_read_as_it_was_kept() -> None:
    assert measurements._findings(entry(), {"a": 1}) == GOOD
    none = {**GOOD["optional"], "float64": None}
    assert measurements._findings(entry(optional=none), {"a": 1}) == {**GOOD, "optional": none}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "the entry is no JSON"), (b"[1]", "the entry is of another adapter"),
        (entry(identity={"a": 2}), "the entry is of another adapter"),
        *((entry(**change), "the entry has other findings") for change in (
            {"more": 1}, {"arithmetic": None}, {"arithmetic": {"division": True}},
            {"arithmetic": {**GOOD["arithmetic"], "fma": 1}}, {"optional": None}, {"optional": {"float16": "exact"}},
            {"optional": {**GOOD["optional"], "float16": 1}}, {"optional": {**GOOD["optional"], "subgroups": "8"}},
            {"optional": {**GOOD["optional"], "subgroups": True}}, {"optional": {**GOOD["optional"], "float64": {}}},
            {"optional": {**GOOD["optional"], "float64": dict.fromkeys(CORRECTED, True)}},
            {"longest loop": 1.0}, {"longest loop": None}, {"habits": []},
        )),
    ],
)  # fmt: skip
def test_an_entry_of_another_form_is_not_used(content: bytes, reason: str) -> None:
    found = measurements._findings(content, {"a": 1})
    assert isinstance(found, str)
    assert found.startswith(reason)
