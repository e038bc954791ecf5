"""Devices: their strings, identities, defaults and scopes."""

from __future__ import annotations

import contextvars
import pickle
import threading

import pytest

import firebrick as fb
from firebrick.backends import registry
from firebrick.core.operands import check_devices
from firebrick.testing import engines


def test_a_device_is_one_object() -> None:
    assert fb.device("cpu") is fb.device("cpu:0") is fb.device(fb.device("cpu"))
    assert fb.device("cpu:1") is not fb.device("cpu:0")
    assert fb.device("numpy:0") is not fb.device("cpu:0")
    assert pickle.loads(pickle.dumps(fb.device("cpu:2"))) is fb.device("cpu:2")
    assert str(fb.device("numpy")) == "numpy:0"
    assert repr(fb.device("numpy:3")) == "Device('numpy:3')"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("gpu", "cpu, numpy, torch"),
        ("", "a device is a string"),
        (3, "a device is a string"),
        (fb.float16, "change a dtype with astype"),
        ("cpu:x", "engine[:platform]"),
        ("cpu:-1", "engine[:platform]"),
        ("cpu:0:0", "engine[:platform]"),
        ("cpu:99", "has 4 device(s), cpu:0 to cpu:3"),
        ("torch:tpu", "has the platforms cpu, cuda"),
        ("CPU", "begins with an engine"),
        ("cpu ", "begins with an engine"),
        ("cuda:0", "PyTorch's GPUs are torch:cuda:0"),
        ("torch:cpu:7", "torch:cpu has 4 device(s)"),
        ("torch:cpu:0:1", "engine[:platform]"),
        ("cpu:0,numpy:0", "pass a list of strings"),
    ],
)
def test_a_string_that_is_no_device_is_answered_with_what_is(text: object, part: str) -> None:
    if str(text).startswith("torch") and "torch" in engines().missing:
        pytest.skip("engine torch cannot be used here")
    with pytest.raises(fb.DeviceError) as caught:
        fb.device(text)
    assert part in str(caught.value)
    assert "Remedy: " in str(caught.value)


def test_an_engine_with_fewer_devices_than_logical_ones_has_only_these(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_found", {})  # what was found before
    monkeypatch.setattr(registry.backend("numpy"), "device_count", lambda platform: 2)  # as a machine with two GPUs
    assert str(fb.device("numpy:1")) == "numpy:1"
    with pytest.raises(fb.DeviceError, match=r"numpy has 2 device\(s\), numpy:0 to numpy:1"):
        fb.device("numpy:2")


def test_an_unknown_default_is_an_error_where_it_is_used() -> None:
    with pytest.raises(fb.DeviceError, match="begins with an engine"):
        fb.set_default_device("tpu")
    with fb.config.scope(device="tpu"), pytest.raises(fb.DeviceError, match="begins with an engine"):
        fb.zeros(2)


def test_the_number_of_logical_devices_is_a_setting() -> None:
    with fb.config.scope(logical_devices=6):
        assert fb.zeros(2, device="cpu:5").device.name == "cpu:5"
    with pytest.raises(fb.DeviceError, match="has 4 device"):
        fb.zeros(2, device="cpu:5")
    with fb.config.scope(logical_devices=1), pytest.raises(fb.DeviceError, match=r"raise fb\.config\.logical_devices"):
        fb.device("cpu:1")


def test_the_default_device_is_the_innermost_scopes() -> None:
    assert fb.default_device() is fb.device("cpu:0")
    with fb.use_device("numpy:1"):
        assert fb.zeros(2).device.name == "numpy:1"
        with fb.use_device("cpu:2"):
            assert fb.arange(2).device.name == "cpu:2"
        assert fb.asarray([1]).device.name == "numpy:1"
    with pytest.raises(RuntimeError), fb.use_device("numpy"):
        raise RuntimeError
    assert fb.zeros(2).device.name == "cpu:0"


def test_a_device_scope_belongs_to_its_thread_and_the_setting_to_all() -> None:
    seen: list[str] = []

    def look() -> None:
        seen.append(fb.default_device().name)

    with fb.use_device("numpy:1"):
        thread = threading.Thread(target=contextvars.Context().run, args=(look,))
        thread.start()
        thread.join()
    fb.set_default_device("cpu:1")
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == ["cpu:0", "cpu:1"]


def test_every_listed_device_can_be_used() -> None:
    for found in fb.devices():
        assert fb.device(found.name) is found
        if found.engine != "meta":
            assert fb.sum(fb.ones(3, device=found)).item() == 3.0


def test_what_cannot_be_used_says_why_and_what_to_do() -> None:
    for name, reason in fb.unavailable().items():
        assert len(reason) > 20
        with pytest.raises(fb.DeviceError) as caught:
            fb.device(name)
        assert reason in str(caught.value)


def test_an_engine_that_gives_a_reason_is_listed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.backend("numpy"), "unavailable", lambda platform: "NumPy is asleep: wake it")
    assert fb.unavailable()["numpy"] == "NumPy is asleep: wake it"
    assert "cpu" not in fb.unavailable()
    assert not any(d.engine == "numpy" for d in fb.devices())


def test_an_engine_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_backends", {})
    assert registry.backend("numpy") is registry.backend("numpy")


def test_the_fastest_device_can_be_asked_for() -> None:
    assert fb.device("auto") in fb.devices()


def test_meta_tensors_have_shapes_and_no_values() -> None:
    x = fb.ones((1000, 1000), device="meta")
    y = fb.sum(x @ x, axis=0)
    assert (y.shape, y.dtype, y.device.name) == ((1000,), fb.float32, "meta:0")
    with pytest.raises(fb.UnsupportedError, match="no values"):
        y.numpy()
    assert "no values" in repr(y)
    assert fb.grad(lambda w: fb.sum(w @ w))(x).shape == (1000, 1000)


def test_the_first_two_tensors_on_two_devices_are_refused_by_name() -> None:
    a, b = fb.ones(2, device="cpu"), fb.ones(2, device="numpy")
    for given in ({"a": a, "b": b}, {"a": [a, a, b]}, {"a": a, "n": 3, "b": (None, b)}):
        with pytest.raises(fb.DeviceMismatchError, match="a function: all tensors must be on one device"):
            check_devices("a function", **given)
    check_devices("a function", a=a, c=[a, None], n=3)


def test_what_stays_is_counted_until_the_outer_block_ends() -> None:
    device = fb.device("cpu:3")
    kept, before = [], fb.memory_stats(device)["persistent"]

    def persistent() -> int:
        return fb.memory_stats(device)["persistent"] - before

    with fb.memory_persistent_allocations(device):
        kept.append(fb.ones(1024, device=device))
        with fb.memory_persistent_allocations(device):
            kept.append(fb.ones(1024, device=device))
        kept.append(fb.ones(1024, device=device))
        assert persistent() == 3 * 4096
    other = fb.ones(1024, device=device)
    assert persistent() == 3 * 4096
    live = fb.memory_stats(device)["live"]
    with fb.memory_persistent_allocations(device):
        kept.append(fb.ones(1024, device=device))
    assert fb.memory_stats(device)["live"] - live == 4096
    del other
    assert persistent() == 4 * 4096
