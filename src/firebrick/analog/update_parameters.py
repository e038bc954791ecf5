"""``UpdateParameters``: how a tile's weights are updated by pulses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from firebrick.analog.checks import check_flags, check_numbers, keep_python_numbers
from firebrick.core.errors import ConfigError


class PulseType(Enum):
    """How an update is made of pulses.

    Attributes:
        NONE: By arithmetic: W ← W - lr · d xᵀ, without bounds.
        NONE_WITH_DEVICE: By arithmetic, within the device's bounds.
        STOCHASTIC_COMPRESSED: Each line fires in each slot of a train with a probability; a device where both lines fire gets
            a pulse.
        STOCHASTIC: Likewise, with trains of their own for positive and for negative inputs, one after the other.
        MEAN_COUNT: The number of pulses is that of coincidences of mean trains, rounded.
        DETERMINISTIC_IMPLICIT: The number of pulses is the expected one, rounded.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.PulseType.MEAN_COUNT.name
        'MEAN_COUNT'
    """

    NONE = "none"
    NONE_WITH_DEVICE = "none with device"
    STOCHASTIC_COMPRESSED = "stochastic compressed"
    STOCHASTIC = "stochastic"
    MEAN_COUNT = "mean count"
    DETERMINISTIC_IMPLICIT = "deterministic implicit"


@dataclass(frozen=True)
class UpdateParameters:
    """Settings of the pulsed update, with the names of the field.

    Args:
        pulse_type: See ``PulseType``.
        desired_bl: Number of slots of a pulse train; the most where ``update_bl_management`` shortens it.
        fixed_bl: Whether trains keep that length where an update needs more pulses. Without, and without
            ``update_bl_management``, they grow, up to 65536 slots.
        update_management: Whether the probabilities of x and d are balanced, so that the largest of both are equal.
        update_bl_management: Whether trains are as short as each sample's largest element allows; it implies
            ``update_management``.
        um_grad_scale: Factor of the largest d in both: below 1, larger gradients are clipped.
        res: Resolution of the probabilities, as a step, or if > 1 as a number of steps; 0 for none.
        sto_round: Whether probabilities are rounded stochastically.
        x_res_implicit: Resolution of x for DETERMINISTIC_IMPLICIT; 0 for none.
        d_res_implicit: Resolution of d for DETERMINISTIC_IMPLICIT; 0 for none.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.UpdateParameters(desired_bl=100).desired_bl
        100
    """

    pulse_type: PulseType = PulseType.STOCHASTIC_COMPRESSED
    desired_bl: int = 31
    fixed_bl: bool = True
    update_management: bool = True
    update_bl_management: bool = True
    um_grad_scale: float = 1.0
    res: float = 0.0
    sto_round: bool = False
    x_res_implicit: float = 0.0
    d_res_implicit: float = 0.0

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        name = type(self).__name__
        if not isinstance(self.pulse_type, PulseType):
            raise ConfigError(
                f"{name}: pulse_type is a PulseType: {', '.join(p.name for p in PulseType)}", repr(self.pulse_type),
                "pass e.g. analog.PulseType.STOCHASTIC_COMPRESSED",
            )  # fmt: skip
        check_flags(name, self, "fixed_bl", "update_management", "update_bl_management", "sto_round")
        check_numbers(name, self, "res", "x_res_implicit", "d_res_implicit")
        check_numbers(name, self, "um_grad_scale", above=0.0)
        if type(self.desired_bl) is not int or not 1 <= self.desired_bl <= 65535:
            raise ConfigError(f"{name}: desired_bl is an int from 1 to 65535", repr(self.desired_bl), "pass e.g. 31")
