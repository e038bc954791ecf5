from __future__ import annotations

import pytest

import firebrick as fb
from firebrick import analog
from firebrick.analog.presets import CONFIGS, DEVICES, PRESETS
from firebrick.core.errors import ConfigError


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
