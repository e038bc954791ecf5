"""``InferenceRPUConfig``: everything that a tile for inference, and for hardware-aware training, is configured by."""

from __future__ import annotations

from dataclasses import dataclass, field

from firebrick.analog.config import AnyDevice, RPUConfig
from firebrick.analog.drift_compensation import DriftCompensation, GlobalDriftCompensation
from firebrick.analog.ideal_devices import IdealDevice
from firebrick.analog.input_ranges import InputRangeParameter
from firebrick.analog.io_parameters import IOParameters, NoiseManagementType
from firebrick.analog.noise_models import NoiseModel, PCMLikeNoiseModel
from firebrick.analog.pulsed_device import PulsedDevice
from firebrick.analog.unit_cells import UnitCell
from firebrick.analog.update_parameters import PulseType, UpdateParameters
from firebrick.analog.weight_limits import WeightClipParameter, WeightRemapParameter
from firebrick.analog.weight_modifiers import WeightModifierParameter
from firebrick.core.errors import ConfigError


def _perfect() -> IOParameters:
    return IOParameters(is_perfect=True)


def _without_pulses() -> UpdateParameters:
    return UpdateParameters(pulse_type=PulseType.NONE)


@dataclass(frozen=True)
class InferenceRPUConfig(RPUConfig):
    """Configuration of tiles that are programmed once, and of training for them.

    In training, weights are digital: products have the noise of the forward pass and weights that the modifier changes, and any
    optimizer updates them. An ``analog.AnalogOptimizer``, such as ``analog.SGD``, also clips and remaps them after each update.
    In evaluation, after ``analog.program_weights``, a tile shows what was programmed.

    Args:
        device: Of the weights in training, updated by arithmetic.
        forward: Periphery of products W x.
        backward: Periphery of products Wᵀ d; exact by default.
        update: Not used; updates are the optimizer's.
        mapping: How layers are mapped to tiles.
        noise_model: Programming noise, drift and read noise.
        drift_compensation: Of the outputs; None for none.
        clip: Clipping of weights after each update; a fixed limit holds in each training pass and in programming too.
        remap: Remapping of weights after each update.
        modifier: Noise of weights in training.
        input_range: Range of the inputs.

    Raises:
        ConfigError: A part has the wrong type, the device is updated by pulses, or inputs have both a range and noise
            management that depends on them.

    Example:
        >>> import firebrick as fb
        >>> model = fb.nn.Sequential(fb.nn.Linear(4, 3), fb.nn.ReLU(), fb.nn.Linear(3, 2))
        >>> made = fb.analog.convert(model, fb.analog.InferenceRPUConfig(), seed=0).eval()
        >>> fb.analog.program_weights(made)
        >>> fb.analog.drift_weights(made, 86400.0)
        >>> made(fb.ones((1, 4))).shape
        (1, 2)
    """

    device: AnyDevice = field(default_factory=IdealDevice)
    backward: IOParameters = field(default_factory=_perfect)
    update: UpdateParameters = field(default_factory=_without_pulses)
    noise_model: NoiseModel = field(default_factory=PCMLikeNoiseModel)
    drift_compensation: DriftCompensation | None = field(default_factory=GlobalDriftCompensation)
    clip: WeightClipParameter = field(default_factory=WeightClipParameter)
    remap: WeightRemapParameter = field(default_factory=WeightRemapParameter)
    modifier: WeightModifierParameter = field(default_factory=WeightModifierParameter)
    input_range: InputRangeParameter = field(default_factory=InputRangeParameter)

    def __post_init__(self) -> None:
        super().__post_init__()
        kinds: dict[str, type] = {
            "noise_model": NoiseModel, "drift_compensation": DriftCompensation, "clip": WeightClipParameter,
            "remap": WeightRemapParameter, "modifier": WeightModifierParameter, "input_range": InputRangeParameter,
        }  # fmt: skip
        for name, kind in kinds.items():
            given = getattr(self, name)
            if not isinstance(given, kind) and not (name == "drift_compensation" and given is None):
                raise ConfigError(
                    f"InferenceRPUConfig: {name} is a {kind.__name__}", repr(given)[:80], f"pass e.g. analog.{_EXAMPLES[name]}"
                )
        if isinstance(self.device, (PulsedDevice, UnitCell)):
            raise ConfigError(
                "InferenceRPUConfig: a device that is updated by arithmetic", type(self.device).__name__,
                "leave device out, or train by pulses with an RPUConfig",
            )  # fmt: skip
        exact = NoiseManagementType.NONE, NoiseManagementType.CONSTANT
        if self.input_range.enable and not self.forward.is_perfect and self.forward.noise_management not in exact:
            raise ConfigError(
                "InferenceRPUConfig: inputs with a range have noise management NONE or CONSTANT",
                self.forward.noise_management.name,
                "pass forward=analog.IOParameters(noise_management=analog.NoiseManagementType.NONE)",
            )  # fmt: skip


_EXAMPLES = {
    "noise_model": "PCMLikeNoiseModel()", "drift_compensation": "PerColumnDriftCompensation(), or None",
    "clip": "WeightClipParameter()", "remap": "WeightRemapParameter()", "modifier": "WeightModifierParameter()",
    "input_range": "InputRangeParameter(enable=True)",
}  # fmt: skip
