"""``RPUConfig``: everything that a tile is configured by."""

from __future__ import annotations

from dataclasses import dataclass, field

from firebrick.analog.ideal_devices import ArithmeticDevice
from firebrick.analog.io_parameters import IOParameters
from firebrick.analog.mapping_parameter import MappingParameter
from firebrick.analog.pulsed_device import PulsedDevice
from firebrick.analog.step_devices import ConstantStepDevice
from firebrick.analog.unit_cells import UnitCell
from firebrick.analog.update_parameters import UpdateParameters
from firebrick.core.errors import ConfigError

AnyDevice = PulsedDevice | ArithmeticDevice | UnitCell


@dataclass(frozen=True)
class RPUConfig:
    """Configuration of a resistive processing unit: its devices, and the periphery of its three operations.

    Args:
        device: Model of the cross-points: a device, or a cell of several.
        forward: Periphery of products W x.
        backward: Periphery of products Wᵀ d. It has no bound management.
        update: The pulsed update.
        mapping: How layers are mapped to tiles.

    Raises:
        ConfigError: One of them has the wrong type.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.RPUConfig(fb.analog.SoftBoundsDevice(dw_min=0.01)).update.desired_bl
        31
    """

    device: AnyDevice = field(default_factory=ConstantStepDevice)
    forward: IOParameters = field(default_factory=IOParameters)
    backward: IOParameters = field(default_factory=IOParameters)
    update: UpdateParameters = field(default_factory=UpdateParameters)
    mapping: MappingParameter = field(default_factory=MappingParameter)

    def __post_init__(self) -> None:
        kinds: dict[str, tuple[type, ...]] = {
            "device": (PulsedDevice, ArithmeticDevice, UnitCell), "forward": (IOParameters,), "backward": (IOParameters,),
            "update": (UpdateParameters,), "mapping": (MappingParameter,),
        }  # fmt: skip
        for name, kind in kinds.items():
            if not isinstance(getattr(self, name), kind):
                wanted = " or ".join(k.__name__ for k in kind)
                raise ConfigError(
                    f"RPUConfig: {name} is a {wanted}", repr(getattr(self, name))[:80], f"pass e.g. analog.{_EXAMPLES[name]}"
                )


_EXAMPLES = {
    "device": "ConstantStepDevice()", "forward": "IOParameters(out_noise=0.0)", "backward": "IOParameters(out_noise=0.0)",
    "update": "UpdateParameters(desired_bl=10)", "mapping": "MappingParameter(max_input_size=256)",
}  # fmt: skip
