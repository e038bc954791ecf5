"""Devices that are updated by arithmetic, without pulses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from firebrick.analog.checks import check_numbers, keep_python_numbers
from firebrick.analog.pulsed_device import Array, Draw
from firebrick.core.docstrings import documented_like


@dataclass(frozen=True)
class ArithmeticDevice:
    """Base of devices whose update is W ← W - lr · d xᵀ, whatever the pulse type.

    Args:
        diffusion: Standard deviation of a weight's diffusion in a mini-batch.
        lifetime: Mini-batches in which a weight decays to 1/e; 0 for no decay.

    Raises:
        ConfigError: A setting is negative or no finite number.

    Example:
        >>> import firebrick as fb
        >>> isinstance(fb.analog.IdealDevice(), fb.analog.ArithmeticDevice)
        True
    """

    diffusion: float = 0.0
    lifetime: float = 0.0

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        check_numbers(type(self).__name__, self, "diffusion", "lifetime", least=0.0)

    def populate(self, shape: tuple[int, int], normal: Draw, uniform: Draw) -> dict[str, Array]:
        """The parameters of an array of devices, which are all alike; see ``PulsedDevice.populate``.

        Args:
            shape: Rows and columns.
            normal: Draws a normal number for each device.
            uniform: Draws a number in [0, 1) for each device.
        """
        decay = 1.0 if self.lifetime == 0.0 else max(0.0, 1.0 - 1.0 / self.lifetime)
        return {
            "decay_scales": np.full(shape, decay), "diffusion_rates": np.full(shape, self.diffusion),
            "reset_bias": np.zeros(shape),
        }  # fmt: skip

    def limits(self, parameters: dict[str, Any]) -> tuple[Any, Any] | None:
        """None: the weights have no bounds.

        Args:
            parameters: What ``populate`` gave.
        """
        return None


@documented_like(ArithmeticDevice)
@dataclass(frozen=True)
class FloatingPointDevice(ArithmeticDevice):
    """A weight of floating point, updated by arithmetic.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.FloatingPointDevice(lifetime=100.0).diffusion
        0.0
    """


@documented_like(ArithmeticDevice)
@dataclass(frozen=True)
class IdealDevice(ArithmeticDevice):
    """A device without bounds whose update is exact.

    Args:
        reset_std: Standard deviation of each reset.

    Raises:
        ConfigError: A setting is negative or no finite number.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.IdealDevice().reset_std
        0.01
    """

    reset_std: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        check_numbers("IdealDevice", self, "reset_std", least=0.0)
