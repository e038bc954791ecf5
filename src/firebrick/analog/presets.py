"""Presets: measured or assumed devices and periphery, as data, under the names of the field."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from firebrick.analog.config import RPUConfig
from firebrick.analog.ideal_devices import FloatingPointDevice
from firebrick.analog.inference_config import InferenceRPUConfig
from firebrick.analog.input_ranges import InputRangeParameter
from firebrick.analog.io_parameters import IOParameters, NoiseManagementType, WeightNoiseType
from firebrick.analog.mapping_parameter import MappingParameter
from firebrick.analog.mixed_precision import MixedPrecisionCompound
from firebrick.analog.nonlinear_devices import ExpStepDevice
from firebrick.analog.one_sided import OneSidedUnitCell
from firebrick.analog.reference_devices import SoftBoundsReferenceDevice
from firebrick.analog.step_devices import ConstantStepDevice, LinearStepDevice
from firebrick.analog.transfers import ChoppedTransferCompound, DynamicTransferCompound, TransferCompound
from firebrick.analog.unit_cells import UnitCell, VectorUnitCell, VectorUnitCellUpdatePolicy
from firebrick.analog.update_parameters import UpdateParameters
from firebrick.analog.weight_limits import WeightClipParameter, WeightClipType, WeightRemapParameter, WeightRemapType
from firebrick.core.errors import ConfigError

DEVICES: dict[str, Callable[[], Any]] = {
    "ReRamESPresetDevice": partial(
        ExpStepDevice, dw_min=0.00135, dw_min_dtod=0.2, dw_min_std=5.0, up_down=0.259359, up_down_dtod=0.05, w_max=1.0,
        w_min=-1.0, A_up=-1.18445, A_down=-0.081404, gamma_up=5.0, gamma_down=5.0, a=-0.5, b=-0.5, write_noise_std=75.0,
    ),
    "ReRamSBPresetDevice": partial(
        SoftBoundsReferenceDevice, dw_min=0.002, dw_min_std=3.75, w_max=1.25, w_max_dtod=0.24, w_min=-0.75, w_min_dtod=0.4,
        mult_noise=False, write_noise_std=56.0,
    ),
    "CapacitorPresetDevice": partial(
        LinearStepDevice, dw_min=0.005, dw_min_dtod=0.1, up_down_dtod=0.06, w_max=1.0, w_max_dtod=0.07, w_min=-1.0,
        w_min_dtod=0.07, gamma_up=0.05, gamma_down=0.05, gamma_up_dtod=0.01, gamma_down_dtod=0.01, mult_noise=False,
        lifetime=1e6, lifetime_dtod=0.3,
    ),
    "EcRamPresetDevice": partial(
        LinearStepDevice, dw_min=0.002, dw_min_dtod=0.1, w_max=1.1724, w_max_dtod=0.05, w_min=-0.8276, w_min_dtod=0.05,
        gamma_up=0.1153, gamma_down=0.5085,
    ),
    "EcRamMOPresetDevice": partial(
        LinearStepDevice, dw_min=2.8214e-4, dw_min_dtod=0.1, dw_min_std=2.0, w_max=1.1714, w_max_dtod=0.05, w_min=-0.8286,
        w_min_dtod=0.05, gamma_up=0.4152, gamma_down=0.7342,
    ),
    "IdealizedPresetDevice": partial(ConstantStepDevice, dw_min=0.0002, w_max=1.0, w_min=-1.0, up_down_dtod=0.0),
    "GokmenVlasovPresetDevice": partial(ConstantStepDevice, dw_min=0.0016, w_max=1.0, w_min=-1.0),
    "PCMPresetDevice": partial(
        ExpStepDevice, dw_min=0.01, dw_min_dtod=0.2, dw_min_std=0.6, up_down_dtod=0.05, w_max=2.0, w_max_dtod=0.1, w_min=0.0,
        w_min_dtod=0.0, A_up=-27.235, A_down=-2.235, gamma_up=2.5, gamma_down=2.5, a=-1.0, b=0.0, dw_min_std_add=0.042,
        dw_min_std_slope=0.108, reset=0.01, reset_dtod=0.02,
    ),
    "ReRamArrayOMPresetDevice": partial(
        SoftBoundsReferenceDevice, dw_min=0.0949, dw_min_dtod=0.7829, dw_min_dtod_log_normal=True, dw_min_std=0.4158, w_max=1.0,
        w_max_dtod=0.3499, w_min=-1.0, w_min_dtod=0.5695, write_noise_std=1.4113, reference_std=0.05,
        subtract_symmetry_point=True, corrupt_devices_range=0.01,
    ),
    "ReRamArrayHfO2PresetDevice": partial(
        SoftBoundsReferenceDevice, dw_min=0.4622, dw_min_dtod=0.7125, dw_min_dtod_log_normal=True, dw_min_std=0.2174, w_max=1.0,
        w_max_dtod=0.43, w_min=-1.0, w_min_dtod=0.60, write_noise_std=0.5841, reference_std=0.05,
        subtract_symmetry_point=True, corrupt_devices_range=0.01,
    ),
}  # fmt: skip

IO: dict[str, Callable[[], IOParameters]] = {
    "PresetIOParameters": partial(IOParameters, inp_res=1.0 / 126.0, out_res=1.0 / 510.0, out_bound=20.0, out_noise=0.1),
    "StandardIOParameters": partial(IOParameters, inp_res=1.0 / 254.0, out_res=1.0 / 254.0, out_bound=10.0, out_noise=0.04),
}


def _config(device: str) -> RPUConfig:
    io = IO["PresetIOParameters"]()
    return RPUConfig(DEVICES[device](), io, io, UpdateParameters())


def _floating_point() -> RPUConfig:
    perfect = IOParameters(is_perfect=True)
    return RPUConfig(FloatingPointDevice(), perfect, perfect)


def _hardware_aware() -> InferenceRPUConfig:
    """Inputs have learned ranges, of which the largest input is 1, so that noise management is constant."""
    forward = IOParameters(
        inp_res=1.0 / 254.0, out_res=1.0 / 254.0, out_bound=10.0, out_noise=0.04, ir_drop=1.0, w_noise=0.0175,
        w_noise_type=WeightNoiseType.PCM_READ, noise_management=NoiseManagementType.CONSTANT,
    )  # fmt: skip
    return InferenceRPUConfig(
        forward=forward, mapping=MappingParameter(max_input_size=512, max_output_size=0, weight_scaling_omega=1.0),
        clip=WeightClipParameter(WeightClipType.FIXED_VALUE, 1.0), input_range=InputRangeParameter(enable=True),
        remap=WeightRemapParameter(WeightRemapType.CHANNELWISE_SYMMETRIC),
    )  # fmt: skip


NAMES = ("ReRamES", "ReRamSB", "Capacitor", "EcRam", "EcRamMO", "Idealized")
"""The devices that configurations of several are made of."""
_LONG = ("EcRam", "EcRamMO", "Idealized")  # of which a transfer may have 100 pulses
_SINGLE_RANDOM = VectorUnitCellUpdatePolicy.SINGLE_RANDOM


def _of_cell(cell: Callable[..., UnitCell], devices: tuple[str, ...], **settings: Any) -> RPUConfig:
    io = IO["PresetIOParameters"]()
    made = tuple(DEVICES[f"{name}PresetDevice"]() for name in devices)
    return RPUConfig(cell(made, **settings), io, io, UpdateParameters())


def _tiki_taka(name: str) -> RPUConfig:
    io = IO["PresetIOParameters"]()
    return _of_cell(TransferCompound, (name, name), transfer_forward=io, transfer_update=UpdateParameters())


def _chopped(cell: Callable[..., UnitCell], name: str, **settings: Any) -> RPUConfig:
    slots = 100 if name in _LONG else 31
    return _of_cell(
        cell, (name, name), transfer_forward=IO["PresetIOParameters"](), auto_scale=True,
        auto_granularity=1000.0 if name in _LONG else 500.0, fast_lr=0.1 if name in _LONG else 0.5,
        transfer_update=UpdateParameters(desired_bl=slots, update_management=False, update_bl_management=False), **settings,
    )  # fmt: skip


def _pcm_cell() -> OneSidedUnitCell:
    pair = DEVICES["PCMPresetDevice"](), DEVICES["PCMPresetDevice"]()
    return OneSidedUnitCell(pair, refresh_every=1, refresh_forward=IO["PresetIOParameters"]())


def _pcm() -> RPUConfig:
    io = IO["PresetIOParameters"]()
    return RPUConfig(_pcm_cell(), io, io, UpdateParameters())


def _mixed_precision_pcm() -> RPUConfig:
    io = IO["PresetIOParameters"]()
    return RPUConfig(MixedPrecisionCompound((_pcm_cell(),)), io, io, UpdateParameters())


CONFIGS: dict[str, Callable[[], RPUConfig]] = {
    **{
        f"{name}Preset": partial(_config, f"{name}PresetDevice")
        for name in ("ReRamES", "ReRamSB", "Capacitor", "EcRam", "EcRamMO", "Idealized", "GokmenVlasov")
    },
    "FloatingPointPreset": _floating_point,
    "StandardHWATrainingPreset": _hardware_aware,
    "PCMPreset": _pcm,
    **{f"{n}2Preset": partial(_of_cell, VectorUnitCell, (n,) * 2, update_policy=_SINGLE_RANDOM) for n in NAMES},
    **{f"{n}4Preset": partial(_of_cell, VectorUnitCell, (n,) * 4, update_policy=_SINGLE_RANDOM) for n in NAMES},
    **{f"MixedPrecision{n}Preset": partial(_of_cell, MixedPrecisionCompound, (n,)) for n in (*NAMES, "GokmenVlasov")},
    "MixedPrecisionPCMPreset": _mixed_precision_pcm,
    **{f"TikiTaka{n}Preset": partial(_tiki_taka, n) for n in NAMES},
    **{f"TTv2{n}Preset": partial(_chopped, ChoppedTransferCompound, n, in_chop_prob=0.0) for n in NAMES},
    **{f"ChoppedTTv2{n}Preset": partial(_chopped, ChoppedTransferCompound, n, in_chop_prob=0.01) for n in NAMES},
    **{f"AGAD{n}Preset": partial(_chopped, DynamicTransferCompound, n, in_chop_prob=0.02) for n in NAMES},
}

PRESETS: dict[str, Callable[[], Any]] = {
    **DEVICES, "PCMPresetUnitCell": _pcm_cell, **IO, "PresetUpdateParameters": UpdateParameters, **CONFIGS,
}  # fmt: skip
"""Name → what makes the preset."""


def preset(name: str) -> Any:
    """A preset by its name: a device, a configuration of tiles, or settings of the periphery.

    Args:
        name: Such as "EcRamPresetDevice" (a device), "EcRamPreset" (an ``RPUConfig`` of it) or "PresetIOParameters".

    Raises:
        ConfigError: There is no preset of the name; the error lists them.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.preset("EcRamPreset").device.dw_min
        0.002
    """
    if name not in PRESETS:
        raise ConfigError(f"analog.preset: one of {', '.join(PRESETS)}", repr(name)[:80], "correct the name")
    return PRESETS[name]()


def preset_names() -> list[str]:
    """The names that ``preset`` knows.

    Example:
        >>> import firebrick as fb
        >>> "EcRamPreset" in fb.analog.preset_names()
        True
    """
    return list(PRESETS)
