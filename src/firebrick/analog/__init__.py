"""Analog in-memory computing: tiles of resistive cross-points, their devices and periphery."""

import firebrick.nn as _nn  # noqa: F401  before its parts
import firebrick.optim as _optim  # noqa: F401  before its parts
from firebrick.analog.attention import MultiheadAttention
from firebrick.analog.conductance_converters import (
    ConductanceConverter,
    CustomPairConductanceConverter,
    DualPairConductanceConverter,
    NPairConductanceConverter,
    SingleDeviceConductanceConverter,
    SinglePairConductanceConverter,
)
from firebrick.analog.config import RPUConfig
from firebrick.analog.conversion import MappedLayer, UnmappedLayer, convert, digital_layers, mapping_report
from firebrick.analog.convolutions import Conv1d, Conv2d, Conv3d
from firebrick.analog.drift_accuracy import AccuracyOverTime, accuracy_over_time
from firebrick.analog.drift_compensation import (
    DriftCompensation,
    GlobalDriftCompensation,
    GlobalDriftCompensationWithExactReference,
    PerColumnDriftCompensation,
)
from firebrick.analog.fitting import Fit, fit, read_response
from firebrick.analog.ideal_devices import ArithmeticDevice, FloatingPointDevice, IdealDevice
from firebrick.analog.inference import (
    InputRangeCalibrationType,
    calibrate_input_ranges,
    drift_weights,
    program_weights,
    tile_statistics,
)
from firebrick.analog.inference_config import InferenceRPUConfig
from firebrick.analog.inference_conversion import convert_for_inference
from firebrick.analog.inference_tile import InferenceTile, TileStatistics
from firebrick.analog.input_ranges import InputRangeParameter
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
from firebrick.analog.noise_models import (
    CustomDriftPCMLikeNoiseModel,
    HermesNoiseModel,
    NoiseModel,
    PCMLikeNoiseModel,
    ReRamCMONoiseModel,
    ReRamWan2022NoiseModel,
    StateIndependentNoiseModel,
)
from firebrick.analog.nonlinear_devices import ExpStepDevice, PiecewiseStepDevice, PowStepDevice
from firebrick.analog.one_sided import OneSidedUnitCell
from firebrick.analog.operation_costs import CostEstimate, LayerCosts, OperationCosts, estimate
from firebrick.analog.presets import preset, preset_names
from firebrick.analog.programming_optimization import ProgrammingLimit, optimize_programming
from firebrick.analog.pulsed_device import DriftParameter, PulsedDevice
from firebrick.analog.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from firebrick.analog.reference_devices import PowStepReferenceDevice, SoftBoundsReferenceDevice
from firebrick.analog.response_curves import Response, response
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
from firebrick.analog.weight_limits import WeightClipParameter, WeightClipType, WeightRemapParameter, WeightRemapType
from firebrick.analog.weight_modifiers import WeightModifierParameter, WeightModifierType
from firebrick.analog.weight_pictures import plot_weights

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "SGD",
    "AccuracyOverTime",
    "AnalogMVType",
    "AnalogOptimizer",
    "ArithmeticDevice",
    "BoundManagementType",
    "BufferedTransferCompound",
    "ChoppedTransferCompound",
    "ConductanceConverter",
    "ConstantStepDevice",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "CostEstimate",
    "CustomDriftPCMLikeNoiseModel",
    "CustomPairConductanceConverter",
    "DriftCompensation",
    "DriftParameter",
    "DualPairConductanceConverter",
    "DynamicTransferCompound",
    "ExpStepDevice",
    "Fit",
    "FloatingPointDevice",
    "GRUCell",
    "GlobalDriftCompensation",
    "GlobalDriftCompensationWithExactReference",
    "HermesNoiseModel",
    "IOParameters",
    "IdealDevice",
    "InferenceRPUConfig",
    "InferenceTile",
    "InputRangeCalibrationType",
    "InputRangeParameter",
    "LSTMCell",
    "LayerCosts",
    "Linear",
    "LinearStepDevice",
    "MappedLayer",
    "MappingParameter",
    "MixedPrecisionCompound",
    "MultiheadAttention",
    "NPairConductanceConverter",
    "NoiseManagementType",
    "NoiseModel",
    "OneSidedUnitCell",
    "OperationCosts",
    "PCMLikeNoiseModel",
    "PerColumnDriftCompensation",
    "PiecewiseStepDevice",
    "PowStepDevice",
    "PowStepReferenceDevice",
    "ProgrammingLimit",
    "PulseType",
    "PulsedDevice",
    "RNNCell",
    "RPUConfig",
    "ReRamCMONoiseModel",
    "ReRamWan2022NoiseModel",
    "ReferenceUnitCell",
    "Response",
    "SingleDeviceConductanceConverter",
    "SinglePairConductanceConverter",
    "SoftBoundsDevice",
    "SoftBoundsPmaxDevice",
    "SoftBoundsReferenceDevice",
    "StateIndependentNoiseModel",
    "Tile",
    "TileArray",
    "TileStatistics",
    "TransferCompound",
    "UnitCell",
    "UnmappedLayer",
    "UpdateParameters",
    "VectorUnitCell",
    "VectorUnitCellUpdatePolicy",
    "WeightClipParameter",
    "WeightClipType",
    "WeightModifierParameter",
    "WeightModifierType",
    "WeightNoiseType",
    "WeightRemapParameter",
    "WeightRemapType",
    "accuracy_over_time",
    "calibrate_input_ranges",
    "convert",
    "convert_for_inference",
    "digital_layers",
    "drift_weights",
    "estimate",
    "fit",
    "mapping_report",
    "optimize_programming",
    "plot_weights",
    "preset",
    "preset_names",
    "program_weights",
    "read_response",
    "response",
    "tile_statistics",
]  # fmt: skip
