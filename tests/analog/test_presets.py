"""Presets learn, make layers, and are those that are written down.

``PYTHONPATH=src python tests/analog/test_presets.py`` writes ``presets.txt`` anew, where a change is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import firebrick as fb
from firebrick import analog
from firebrick.analog.presets import CONFIGS, DEVICES, IO, PRESETS
from firebrick.core.errors import ConfigError

FILE = Path(__file__).with_name("presets.txt")


@pytest.mark.parametrize("name", list(DEVICES))
def test_a_preset_of_a_device_learns(name: str) -> None:
    device = analog.preset(name)
    tile = analog.Tile(6, 5, analog.RPUConfig(device), seed=1)
    tile.update(fb.ones((40, 5)), fb.full((40, 6), -0.1), 0.2)
    up = tile.weight.numpy().mean()
    tile.update(fb.ones((80, 5)), fb.full((80, 6), 0.1), 0.2)
    assert tile.weight.numpy().mean() < up - 0.05


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_preset_of_a_configuration_makes_a_layer(name: str) -> None:
    assert analog.Linear(4, 3, config=analog.preset(name), seed=0)(fb.ones((2, 4))).shape == (2, 3)


def test_an_unknown_preset_is_refused_with_a_list() -> None:
    assert len(PRESETS) == len(set(PRESETS))
    with pytest.raises(ConfigError, match="one of ReRamESPresetDevice, ReRamSBPresetDevice"):
        analog.preset("EcRam")


def written(value: Any, known: dict[str, Any]) -> str:
    """A setting by the name of its preset, or by its class with what differs from the defaults."""
    if (name := next((n for n, v in known.items() if v == value), None)) is not None:
        return name
    if isinstance(value, tuple):
        return f"({', '.join(written(v, known) for v in value)})"
    if not is_dataclass(value):
        return value.name if isinstance(value, Enum) else repr(value)
    return f"{type(value).__name__}({', '.join(f'{n}={written(v, known)}' for n, v in different(value))})"


def different(value: Any) -> Iterator[tuple[str, Any]]:
    for f in fields(value):
        default = f.default if f.default_factory is MISSING else f.default_factory()
        if getattr(value, f.name) != default:
            yield f.name, getattr(value, f.name)


def presets() -> str:
    parts = {name: analog.preset(name) for name in (*DEVICES, *IO)}
    lines = {n: written(analog.preset(n), {} if n in parts else parts) for n in analog.preset_names()}
    return "".join(f"{name}: {text}\n" for name, text in lines.items())


def test_presets_are_those_that_are_written_down() -> None:
    assert presets() == FILE.read_text("utf-8")


if __name__ == "__main__":
    FILE.write_text(presets(), "utf-8")
