"""Analog models of the command line: device models, algorithms and noise models by name, and the model of an analog run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from firebrick import analog, optim
from firebrick.core.errors import ConfigError
from firebrick.nn import Module

_SUFFIX = "PresetDevice"
DEVICE_MODELS = tuple(n.removesuffix(_SUFFIX) for n in analog.preset_names() if n.endswith(_SUFFIX))
"""Presets of devices that pulses change."""
CLASSES: dict[str, type[analog.PulsedDevice]] = {
    name: found
    for name in analog.__all__
    if isinstance(found := getattr(analog, name), type)
    and issubclass(found, analog.PulsedDevice)
    and found is not analog.PulsedDevice
}
"""Models of devices, by the name of their class."""
NOISE_MODELS: dict[str, Callable[[], analog.NoiseModel]] = {
    "pcm": analog.PCMLikeNoiseModel, "hermes-1": analog.HermesNoiseModel,
    "hermes-2": partial(analog.HermesNoiseModel, num_devices=2), "state-independent": analog.StateIndependentNoiseModel,
    "reram-wan": analog.ReRamWan2022NoiseModel, "reram-cmo": analog.ReRamCMONoiseModel,
}  # fmt: skip
"""Noise models of inference."""
HARDWARE_AWARE = "hwa"
ALGORITHMS = {
    "sgd": "{}Preset", "tiki-taka": "TikiTaka{}Preset", "ttv2": "TTv2{}Preset", "c-ttv2": "ChoppedTTv2{}Preset",
    "agad": "AGAD{}Preset", "mixed-precision": "MixedPrecision{}Preset", HARDWARE_AWARE: "",
}  # fmt: skip
"""Training algorithm → the preset that it has with a device model; hardware-aware training has none."""
COMPENSATIONS: dict[str, Callable[[], analog.DriftCompensation | None]] = {
    "global": analog.GlobalDriftCompensation, "per-column": analog.PerColumnDriftCompensation, "none": lambda: None,
}  # fmt: skip
"""Drift compensations."""


class AnalogAdam(analog.AnalogOptimizer, optim.Adam):
    """Adam for models with inference tiles, whose weights it also clips and remaps."""


def device_of(name: str) -> analog.PulsedDevice:
    """A device by the name of its preset or class.

    Args:
        name: In ``DEVICE_MODELS`` or ``CLASSES``.
    """
    if name in CLASSES:
        return CLASSES[name]()
    found: analog.PulsedDevice = analog.preset(name + _SUFFIX)
    return found


def hardware_aware(noise_model: str, noise: float) -> analog.InferenceRPUConfig:
    """The configuration of hardware-aware training: noise of weights, clipping and remapping.

    Args:
        noise_model: In ``NOISE_MODELS``.
        noise: Standard deviation of the weights in training, relative to the largest one; 0 for none.
    """
    modifier = analog.WeightModifierParameter()
    if noise > 0.0:
        modifier = analog.WeightModifierParameter(analog.WeightModifierType.ADD_NORMAL, std_dev=noise)
    return analog.InferenceRPUConfig(
        noise_model=NOISE_MODELS[noise_model](), modifier=modifier,
        clip=analog.WeightClipParameter(analog.WeightClipType.LAYER_GAUSSIAN, sigma=2.5),
        remap=analog.WeightRemapParameter(analog.WeightRemapType.CHANNELWISE_SYMMETRIC),
        mapping=analog.MappingParameter(weight_scaling_omega=1.0, weight_scaling_columnwise=True),
    )  # fmt: skip


def config_of(settings: dict[str, Any]) -> analog.RPUConfig:
    """The configuration of the tiles of an analog run.

    Args:
        settings: ``algorithm``, ``device_model`` and ``noise``.

    Raises:
        ConfigError: The algorithm has no such device model.
    """
    algorithm, device = settings["algorithm"], settings["device_model"]
    if algorithm == HARDWARE_AWARE:
        if device not in NOISE_MODELS:
            raise ConfigError(f"a noise model for hwa: one of {', '.join(NOISE_MODELS)}", repr(device)[:60], "choose one")
        return hardware_aware(device, settings["noise"])
    name, known = ALGORITHMS[algorithm].format(device), analog.preset_names()
    if name not in known:
        fitting = [d for d in DEVICE_MODELS if ALGORITHMS[algorithm].format(d) in known]
        raise ConfigError(f"a device model for {algorithm}: one of {', '.join(fitting)}", repr(device)[:60], "choose one")
    found: analog.RPUConfig = analog.preset(name)
    return found


def analog_model(model: Module, settings: dict[str, Any]) -> Module:
    """The model of an analog run, from a digital one.

    Args:
        model: Digital.
        settings: As of ``config_of``, and ``seed``.
    """
    return analog.convert(model, config_of(settings), seed=settings["seed"])


def fresh_analog_model(model: Module, settings: dict[str, Any]) -> Module:
    """``analog_model`` of a model with initial weights, of which some may be clipped without a warning.

    Args:
        model: Digital.
        settings: As of ``analog_model``.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return analog_model(model, settings)


def optimizer_of(model: Module, settings: dict[str, Any], rate: optim.Schedule) -> optim.Optimizer:
    """The optimizer of an analog run: Adam for hardware-aware training, SGD with pulses otherwise.

    Args:
        model: Analog.
        settings: As of ``config_of``.
        rate: Schedule of the learning rate.
    """
    return AnalogAdam(model, rate) if settings["algorithm"] == HARDWARE_AWARE else analog.SGD(model, rate)
