"""Drift compensation: a digital factor of a tile's outputs, from test vectors read at programming and again later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import abs as absolute
from firebrick.functions.statistical import mean


@dataclass(frozen=True)
class DriftCompensation:
    """Base of compensations: the factor is the readout at programming divided by the readout now.

    The test vectors are those of the identity matrix, through the periphery of the forward pass. Hardware cannot tell noise
    from weights: where these are all 0, both readouts are those of noise, and so is the factor. It is 1 where the readout now
    is 0.

    Example:
        >>> import firebrick as fb
        >>> isinstance(fb.analog.GlobalDriftCompensation(), fb.analog.DriftCompensation)
        True
    """

    exact_reference: ClassVar[bool] = False
    """Whether the readout at programming is that of the exact weights."""

    def readout(self, outputs: Tensor) -> Tensor:
        """What is compared, [1] or [rows].

        Args:
            outputs: Of the test vectors, [columns, rows].
        """
        return mean(absolute(outputs), keepdims=True)[0]


@dataclass(frozen=True)
class GlobalDriftCompensation(DriftCompensation):
    """One factor for a tile, from the mean absolute output.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.InferenceRPUConfig().drift_compensation == fb.analog.GlobalDriftCompensation()
        True

    Source: Joshi et al., "Accurate deep neural network inference using computational phase-change memory", Nature
        Communications, 2020.
    """


@dataclass(frozen=True)
class GlobalDriftCompensationWithExactReference(DriftCompensation):
    """One factor for a tile, relative to the readout that the exact weights would have.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.GlobalDriftCompensationWithExactReference().exact_reference
        True
    """

    exact_reference: ClassVar[bool] = True


@dataclass(frozen=True)
class PerColumnDriftCompensation(DriftCompensation):
    """A factor for each output of a tile.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.PerColumnDriftCompensation().readout(fb.asarray([[1.0, -2.0], [3.0, 0.0]])).tolist()
        [2.0, 1.0]
    """

    def readout(self, outputs: Tensor) -> Tensor:
        return mean(absolute(outputs), axis=0)
