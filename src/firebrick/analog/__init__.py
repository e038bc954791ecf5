"""Analog in-memory computing: tiles of resistive cross-points, their devices and periphery."""

import firebrick.nn as _nn  # noqa: F401  before its parts
import firebrick.optim as _optim  # noqa: F401  before its parts
from firebrick.analog.attention import MultiheadAttention
from firebrick.analog.config import RPUConfig
from firebrick.analog.conversion import MappedLayer, UnmappedLayer, convert, digital_layers, mapping_report
from firebrick.analog.convolutions import Conv1d, Conv2d, Conv3d
from firebrick.analog.ideal_devices import ArithmeticDevice, FloatingPointDevice, IdealDevice
from firebrick.analog.io_parameters import (
    AnalogMVType,
    BoundManagementType,
    IOParameters,
    NoiseManagementType,
    WeightNoiseType,
)
from firebrick.analog.layers import Linear
from firebrick.analog.mapping import TileArray
from firebrick.analog.mapping_parameter import MappingParameter
from firebrick.analog.mixed_precision import MixedPrecisionCompound
from firebrick.analog.nonlinear_devices import ExpStepDevice, PiecewiseStepDevice, PowStepDevice
from firebrick.analog.one_sided import OneSidedUnitCell
from firebrick.analog.presets import preset
from firebrick.analog.pulsed_device import DriftParameter, PulsedDevice
from firebrick.analog.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from firebrick.analog.reference_devices import PowStepReferenceDevice, SoftBoundsReferenceDevice
from firebrick.analog.step_devices import ConstantStepDevice, LinearStepDevice, SoftBoundsDevice, SoftBoundsPmaxDevice
from firebrick.analog.tile import Tile
from firebrick.analog.training import SGD, AnalogOptimizer
from firebrick.analog.transfers import (
    BufferedTransferCompound,
    ChoppedTransferCompound,
    DynamicTransferCompound,
    TransferCompound,
)
from firebrick.analog.unit_cells import (
    ReferenceUnitCell,
    UnitCell,
    VectorUnitCell,
    VectorUnitCellUpdatePolicy,
)
from firebrick.analog.update_parameters import PulseType, UpdateParameters

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "SGD",
    "AnalogMVType",
    "AnalogOptimizer",
    "ArithmeticDevice",
    "BoundManagementType",
    "BufferedTransferCompound",
    "ChoppedTransferCompound",
    "ConstantStepDevice",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "DriftParameter",
    "DynamicTransferCompound",
    "ExpStepDevice",
    "FloatingPointDevice",
    "GRUCell",
    "IOParameters",
    "IdealDevice",
    "LSTMCell",
    "Linear",
    "LinearStepDevice",
    "MappedLayer",
    "MappingParameter",
    "MixedPrecisionCompound",
    "MultiheadAttention",
    "NoiseManagementType",
    "OneSidedUnitCell",
    "PiecewiseStepDevice",
    "PowStepDevice",
    "PowStepReferenceDevice",
    "PulseType",
    "PulsedDevice",
    "RNNCell",
    "RPUConfig",
    "ReferenceUnitCell",
    "SoftBoundsDevice",
    "SoftBoundsPmaxDevice",
    "SoftBoundsReferenceDevice",
    "Tile",
    "TileArray",
    "TransferCompound",
    "UnitCell",
    "UnmappedLayer",
    "UpdateParameters",
    "VectorUnitCell",
    "VectorUnitCellUpdatePolicy",
    "WeightNoiseType",
    "convert",
    "digital_layers",
    "mapping_report",
    "preset",
]  # fmt: skip
