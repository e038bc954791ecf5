"""Settings: from the environment, from assignment, in a scope; unknown names and values are errors."""

from __future__ import annotations

import pytest

import firebrick as fb
from firebrick.core.config import SETTINGS, Config


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIREBRICK_DEVICE", "numpy:1")
    monkeypatch.setenv("FIREBRICK_LOGICAL_DEVICES", "7")
    monkeypatch.setenv("FIREBRICK_REQUIRE_ENGINES", "numpy, cpu,,torch")
    found = Config()
    assert found.device == "numpy:1"
    assert found.logical_devices == 7
    assert found.require_engines == ("numpy", "cpu", "torch")
    assert "environment (FIREBRICK_DEVICE)" in found.show()


def test_a_variable_that_names_no_setting_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIREBRICK_DEVISE", "cpu")
    with pytest.warns(UserWarning, match=r"FIREBRICK_DEVISE names no setting.*FIREBRICK_DEVICE"):
        Config()


def test_a_value_that_cannot_be_is_an_error_that_says_what_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIREBRICK_FALLBACK", "maybe")
    with pytest.raises(
        fb.ConfigError, match=r"FIREBRICK_FALLBACK is one of warn, error, silent .*\nReceived: FIREBRICK_FALLBACK='maybe'"
    ):
        Config()
    for value in ("zero", 0, -1, None):
        with pytest.raises(fb.ConfigError, match="logical_devices"):
            fb.config.logical_devices = value
    with pytest.raises(fb.ConfigError, match="fallback"):
        fb.config.fallback = "no"


@pytest.mark.parametrize(
    ("name", "value", "accepts"),
    [
        ("jit", "no", "1, true, on, 0, false or off"), ("num_threads", "-1", r"an int in \[0, 1024\]"),
        ("logical_devices", "x", "an int ≥ 1"), ("cache_size", "-1", "a number of bytes, such as 1000000, 64M or 2 GiB"),
        ("cpu_vector_bits", "64", "one of 0, 128, 256, 512"), ("cpu_vector_bits", "x", "one of 0, 128, 256, 512"),
        *(("distributed_timeout", t, r"a number of seconds in \(0, 1e9\)") for t in ("abc", "0", "-1", "1e9", "nan", "inf")),
        ("distributed_backend", "x", "one of '', gloo"),
    ],
)  # fmt: skip
def test_a_variable_with_a_bad_value_is_named_with_what_it_takes(
    name: str, value: str, accepts: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    variable = f"FIREBRICK_{name.upper()}"
    monkeypatch.setenv(variable, value)
    with pytest.raises(fb.ConfigError, match=f"^{variable} is {accepts}.*\nReceived: {variable}='{value}'"):
        Config()
    with pytest.raises(fb.ConfigError, match=f"^{name} is {accepts}.*\nReceived: {name}='{value}'"):
        setattr(fb.config, name, value)


@pytest.mark.parametrize("value", ["", "gpu", "cpu:99", "CPU "])
def test_a_default_device_from_the_environment_that_is_not_there_is_an_error_that_names_the_variable(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIREBRICK_DEVICE", value)
    with fb.config.scope():
        fb.config.load_environment()
        with pytest.raises(fb.DeviceError, match=f"^FIREBRICK_DEVICE: .*\nReceived: FIREBRICK_DEVICE='{value}'"):
            fb.ones(2)


def test_every_setting_says_what_it_takes() -> None:
    assert all(setting.accepts for setting in SETTINGS.values())


def test_an_unknown_setting_is_an_error_that_lists_those_there_are() -> None:
    with pytest.raises(fb.ConfigError, match=r"a setting is one of .*device.*\nReceived: devise"):
        fb.config.devise = "cpu"
    with pytest.raises(AttributeError, match="has no setting 'devise'"):
        _ = fb.config.devise
    with pytest.raises(fb.ConfigError), fb.config.scope(devise="cpu"):
        pass


def test_a_scope_ends_with_its_block_also_by_an_exception() -> None:
    before = fb.config.fallback
    with fb.config.scope(fallback="error", logical_devices=2):
        assert fb.config.fallback == "error"
        with fb.config.scope(fallback="silent"):
            assert fb.config.fallback == "silent"
        assert fb.config.fallback == "error"
    with pytest.raises(RuntimeError, match="stop"), fb.config.scope(fallback="error"):
        raise RuntimeError("stop")
    assert fb.config.fallback == before
    with pytest.raises(fb.ConfigError), fb.config.scope(fallback="error", logical_devices=0):
        pass
    assert fb.config.fallback == before


def test_show_gives_every_setting_its_value_source_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    fb.config.fallback = "silent"
    text = fb.config.show()
    assert capsys.readouterr().out.strip() == text.strip()
    for name, setting in SETTINGS.items():
        row = next(line for line in text.splitlines() if line.startswith(name))
        assert str(getattr(fb.config, name)) in row
        assert setting.meaning in row
    assert "program" in next(line for line in text.splitlines() if line.startswith("fallback"))


SWITCHES = [name for name, setting in SETTINGS.items() if isinstance(setting.default, bool)]


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", True),
        ("true", True),
        ("on", True),
        (" ON ", True),
        ("0", False),
        ("false", False),
        ("off", False),
        ("False", False),
    ],
)
def test_a_switch_is_read_from_the_environment_as_what_it_says(
    name: str, text: str, value: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bool("0") is True."""
    monkeypatch.setenv(f"FIREBRICK_{name.upper()}", text)
    assert getattr(Config(), name) is value
    with fb.config.scope(**{name: text}):
        assert getattr(fb.config, name) is value
    with fb.config.scope(**{name: value}):
        assert getattr(fb.config, name) is value


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("text", ["", " ", "2", "-1", "yes", "no", "none", "1.0", "01", "offf"])
def test_a_switch_that_is_neither_on_nor_off_is_an_error(name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = f"FIREBRICK_{name.upper()}"
    monkeypatch.setenv(variable, text)
    with pytest.raises(fb.ConfigError, match=rf"{variable} is 1, true, on, 0, false or off .*\nReceived: {variable}='{text}'"):
        Config()


def test_there_are_switches() -> None:
    assert {"cpu_compile", "jit", "torch_compile", "verify_graphs", "deterministic"} <= set(SWITCHES)
