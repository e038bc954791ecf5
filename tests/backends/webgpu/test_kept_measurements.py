"""What was measured of a driver is kept on disk: used by the next process, and never believed blindly."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path

import cffi
import pytest

import firebrick as fb
from firebrick.backends.webgpu import measurements, probes
from firebrick.backends.webgpu.adapters import Adapter, adapters, looked_up
from firebrick.backends.webgpu.commands import Gpu
from firebrick.compiler.cache import CacheWarning, pack, store, unpack


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for entries."""
    if not adapters()[0].driver:
        pytest.skip("the driver does not report its version, so nothing is kept of it")
    monkeypatch.setattr(fb.config, "cache_dir", str(tmp_path))
    monkeypatch.setattr(store, "_warned", set())
    return tmp_path / "objects"


def opened(adapter: Adapter | None = None) -> tuple[Gpu, int]:
    """A device, and how often the long probe ran."""
    count = 0
    probe = probes.arithmetic

    def counted(run: probes.Run, name: str) -> dict[str, bool]:
        nonlocal count
        count += 1
        return probe(run, name)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(probes, "arithmetic", counted)
        return Gpu(adapter or adapters()[0], 0), count


def test_a_driver_is_measured_once(kept: Path) -> None:
    first, count = opened()
    assert count == 1
    (entry,) = kept.iterdir()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second, count = opened()
    assert count == 0
    assert second.measured == first.measured
    assert [p.name for p in kept.iterdir()] == [entry.name]
    assert store.entries()[0].facts["functions"] == ["measured arithmetic"]  # firebrick cache list shows it


def test_nothing_is_kept_where_caches_are_off(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fb.config, "cache_dir", "off")
    assert [opened()[1], opened()[1]] == [1, 1]
    assert not kept.exists()


def _cut(content: bytes) -> bytes:
    return content[:-7]


def _flipped(content: bytes) -> bytes:
    return content[:-9] + bytes([content[-9] ^ 4]) + content[-8:]


def _empty(content: bytes) -> bytes:
    return b""


def _changed(change: Callable[[dict[str, object]], object]) -> Callable[[bytes], bytes]:
    """An entry whose container is whole, and whose content is another."""

    def changed(content: bytes) -> bytes:
        key = content[12:44]
        image, facts = unpack(content, key)
        found = json.loads(image)
        change(found)
        return pack(key, json.dumps(found).encode(), facts)

    return changed


DAMAGES = {
    "cut short": (_cut, "in place of"),
    "a changed byte": (_flipped, "damaged"),
    "empty": (_empty, "not an entry"),
    "another adapter": (_changed(lambda f: f["identity"]["adapter"].update(device="another")), "another adapter"),  # type: ignore[index]
    "a missing finding": (_changed(lambda f: f["arithmetic"].pop("fma")), "other findings"),  # type: ignore[attr-defined]
    "a finding of another type": (_changed(lambda f: f["arithmetic"].update(division=1)), "other findings"),  # type: ignore[attr-defined]
    "a missing finding of float64": (
        _changed(
            lambda f: f["optional"].update(
                float64=dict.fromkeys(("all others", "division", "square root", "products in sums"), True)
            )
        ),  # type: ignore[attr-defined]
        "other findings",
    ),
    "a finding of float64 of another type": (
        _changed(lambda f: f["optional"].update(float64={"all others": True})),
        "other findings",
    ),
    "a shorter loop": (_changed(lambda f: f.update({"longest loop": 1000})), "it does something else now"),
    "other habits": (_changed(lambda f: f["habits"].update(denormals="lost")), "it does something else now"),  # type: ignore[attr-defined]
    "a further key": (_changed(lambda f: f.update(more=1)), "other findings"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_or_foreign_entry_is_ignored_reported_and_replaced(name: str, kept: Path) -> None:
    damage, reason = DAMAGES[name]
    want = opened()[0].measured
    (entry,) = kept.iterdir()
    entry.write_bytes(damage(entry.read_bytes()))
    with pytest.warns(CacheWarning, match=rf"(?s){reason}.*what the driver does was measured again"):
        found, count = opened()
    assert (count, found.measured) == (1, want)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert opened()[1] == 0


def test_another_version_of_a_driver_is_measured_anew(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened()
    identity = measurements.identity_of

    def updated(adapter: Adapter) -> dict[str, object] | None:
        found = identity(adapter)
        assert found is not None
        found["adapter"]["description"] += " with a fix"
        return found

    with monkeypatch.context() as patched:
        patched.setattr(measurements, "identity_of", updated)
        assert opened()[1] == 1
        assert opened()[1] == 0
    monkeypatch.setenv("LP_NATIVE_VECTOR_WIDTH", "128")  # which changes what lavapipe does
    assert opened()[1] == 1
    assert len(list(kept.iterdir())) == 3


def test_nothing_is_kept_of_a_driver_that_does_not_report_its_version(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = adapters()[0]
    nameless = Adapter(a.handle, a.api, a.name, "", a.kind)
    monkeypatch.setattr("sys.platform", "linux")
    assert [opened(nameless)[1], opened(nameless)[1]] == [1, 1]
    monkeypatch.setattr("sys.platform", "darwin")  # where it is a part of the system, whose version is known
    assert [opened(nameless)[1], opened(nameless)[1]] == [1, 0]


@pytest.mark.usefixtures("kept")
def test_a_folder_that_cannot_be_written_costs_measuring_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(fb.config, "cache_dir", str(tmp_path / "file"))
    monkeypatch.setattr(store, "_warned", set())
    with pytest.warns(CacheWarning, match="is not kept"):
        assert opened()[1] == 1


def test_types_that_are_looked_up_are_those_that_cffi_parses() -> None:
    native = pytest.importorskip("wgpu.backends.wgpu_native")
    parser = native.ffi._parser
    parse = cffi.cparser.Parser.parse_type
    asked: list[str] = []

    def parsed(text: str) -> object:
        asked.append(text)
        return parse(parser, text)

    plain = [
        "WGPULimits *",
        "WGPUAdapter[]",
        "WGPUBindGroupEntry",
        "WGPUBindGroupEntry [ ]",
        "WGPUBufferUsage",
        " WGPUDevice *",
    ]
    for text in plain:
        assert looked_up(parser, parsed, text) == parse(parser, text), text
    assert not asked
    others = ["uint32_t *", "WGPULimits * *", "WGPULimits const *", "void(WGPUDevice const *, void *)", "char []"]
    for text in others:
        assert looked_up(parser, parsed, text) == parse(parser, text), text
    assert asked == others
