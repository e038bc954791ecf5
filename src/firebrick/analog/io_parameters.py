"""``IOParameters``: converters, noise and bounds of a tile's products with vectors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from firebrick.analog.checks import check_flags, check_numbers, keep_python_numbers
from firebrick.core.errors import ConfigError


class NoiseManagementType(Enum):
    """What inputs are divided by before the converter, and outputs multiplied by.

    Attributes:
        NONE: 1.
        ABS_MAX: The largest absolute input of the vector; at most ``nm_thres`` if that is above 0.
        ABS_MAX_NP_SUM: The larger of that and the sums of positive and of negative inputs, times ``nm_assumed_wmax`` /
            ``out_bound``; at most the largest absolute input times ``max_bm_res`` / ``inp_res``.
        MAX: The largest input; 1 where none is positive.
        CONSTANT: ``nm_thres``; 1 if that is 0.
        AVERAGE_ABS_MAX: A running mean of the largest absolute inputs, by ``nm_decay``.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.NoiseManagementType.ABS_MAX.name
        'ABS_MAX'
    """

    NONE = "none"
    ABS_MAX = "abs max"
    ABS_MAX_NP_SUM = "abs max np sum"
    MAX = "max"
    CONSTANT = "constant"
    AVERAGE_ABS_MAX = "average abs max"


class BoundManagementType(Enum):
    """What happens where an output is clipped.

    Attributes:
        NONE: Nothing.
        ITERATIVE: The product is repeated with inputs divided by 2, 4, 8, …
        ITERATIVE_WORST_CASE: Likewise, but the first repetition has the inputs of ABS_MAX_NP_SUM.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.BoundManagementType.ITERATIVE.name
        'ITERATIVE'
    """

    NONE = "none"
    ITERATIVE = "iterative"
    ITERATIVE_WORST_CASE = "iterative worst case"


class WeightNoiseType(Enum):
    """Noise of the weights in each product, drawn as the noise of the outputs that it causes.

    Attributes:
        NONE: No noise.
        ADDITIVE_CONSTANT: Independent noise of standard deviation ``w_noise`` of each weight.
        PCM_READ: Noise whose variance is in proportion to the absolute weight.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.WeightNoiseType.PCM_READ.name
        'PCM_READ'
    """

    NONE = "none"
    ADDITIVE_CONSTANT = "additive constant"
    PCM_READ = "pcm read"


class AnalogMVType(Enum):
    """How a product with signed inputs is made.

    Attributes:
        ONE_PASS: At once.
        POS_NEG_SEPARATE: Positive inputs first, then negative ones; the sum is converted.
        POS_NEG_SEPARATE_DIGITAL_SUM: Likewise, but both are converted.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.AnalogMVType.ONE_PASS.name
        'ONE_PASS'
    """

    ONE_PASS = "one pass"
    POS_NEG_SEPARATE = "positive and negative separately"
    POS_NEG_SEPARATE_DIGITAL_SUM = "positive and negative separately, digital sum"


@dataclass(frozen=True)
class IOParameters:
    """Settings of a product of a tile with vectors, with the names of the field.

    Inputs x are scaled, converted from digital (DAC), and drive the lines; currents y = W x are converted to digital (ADC):

    1. x ← x / (α r), with α by ``noise_management`` and r by ``bound_management``;
    2. DAC: rounded to multiples of 2 · ``inp_res`` · ``inp_bound``, clipped to ± ``inp_bound``; plus ``inp_noise`` · ξ;
    3. y = W x, with weight noise, IR drop, offset and non-linearity;
    4. y + ``out_noise`` · ξ; ADC: rounded to multiples of 2 · ``out_res`` · ``out_bound``, clipped to ± ``out_bound``;
    5. the result is ``out_scale`` · α r y.

    Args:
        is_perfect: Whether the product is exact: only ``out_scale`` counts.
        mv_type: See ``AnalogMVType``.
        inp_bound: Largest input; 1 with noise management.
        inp_noise: Standard deviation of the noise of inputs.
        inp_res: Resolution of the DAC: a step as a share of the range, or if > 1 a number of steps; 0 for none.
        inp_sto_round: Whether the DAC rounds stochastically.
        inp_asymmetry: Share by which negative inputs are too small.
        out_bound: Largest output; 0 for none.
        out_noise: Standard deviation of the noise of outputs.
        out_noise_std: Its relative spread from output to output.
        out_res: Resolution of the ADC, as of the DAC.
        out_sto_round: Whether the ADC rounds stochastically.
        out_scale: Factor of the result.
        out_asymmetry: Share by which negative outputs are too small.
        noise_management: See ``NoiseManagementType``.
        nm_thres: See there.
        nm_assumed_wmax: See there.
        nm_decay: See there.
        bound_management: See ``BoundManagementType``. Products of the backward pass have none.
        max_bm_factor: Largest r after which a product is still repeated.
        max_bm_res: Largest r · ``inp_res`` likewise.
        bm_test_negative_bound: Whether a negative output that is clipped is a reason to repeat.
        w_noise: Standard deviation of weights in each product.
        w_noise_type: See ``WeightNoiseType``.
        ir_drop: Factor of the voltage drop along the lines; 0 for none.
        ir_drop_g_ratio: Conductance of a line between two cells over the largest conductance of a cell.
        out_nonlinearity: Compression of outputs: y / (1 + abs(n y)), with n this over ``out_bound``.
        out_nonlinearity_std: Its relative spread from output to output.
        slope_calibration: Share of ``out_bound`` for which the compression is corrected on average.
        v_offset_std: Standard deviation of the offset voltage of outputs.
        v_offset_w_min: Weight of the lowest conductance; 0 if offsets act on the difference of currents.
        r_series: Series resistance of outputs.
        w_read_asymmetry_dtod: Relative spread of weights when they are read with negative inputs, where positive and negative
            inputs are separate.

    Raises:
        ConfigError: A setting has no meaning.

    Example:
        >>> import firebrick as fb
        >>> fb.analog.IOParameters(inp_res=2**8 - 2, out_noise=0.0).out_bound
        12.0
    """

    is_perfect: bool = False
    mv_type: AnalogMVType = AnalogMVType.ONE_PASS
    inp_bound: float = 1.0
    inp_noise: float = 0.0
    inp_res: float = 1.0 / 126.0
    inp_sto_round: bool = False
    inp_asymmetry: float = 0.0
    out_bound: float = 12.0
    out_noise: float = 0.06
    out_noise_std: float = 0.0
    out_res: float = 1.0 / 510.0
    out_sto_round: bool = False
    out_scale: float = 1.0
    out_asymmetry: float = 0.0
    noise_management: NoiseManagementType = NoiseManagementType.ABS_MAX
    nm_thres: float = 0.0
    nm_assumed_wmax: float = 0.6
    nm_decay: float = 1e-3
    bound_management: BoundManagementType = BoundManagementType.ITERATIVE
    max_bm_factor: float = 1000.0
    max_bm_res: float = 0.25
    bm_test_negative_bound: bool = True
    w_noise: float = 0.0
    w_noise_type: WeightNoiseType = WeightNoiseType.NONE
    ir_drop: float = 0.0
    ir_drop_g_ratio: float = 1.0 / 0.35 / 5e-6
    out_nonlinearity: float = 0.0
    out_nonlinearity_std: float = 0.0
    slope_calibration: float = 0.0
    v_offset_std: float = 0.0
    v_offset_w_min: float = -1.0
    r_series: float = 0.0
    w_read_asymmetry_dtod: float = 0.0

    def __post_init__(self) -> None:
        keep_python_numbers(self)
        name = type(self).__name__
        check_flags(name, self, "is_perfect", "inp_sto_round", "out_sto_round", "bm_test_negative_bound")
        check_numbers(name, self, "inp_bound", "ir_drop_g_ratio", "max_bm_factor", "max_bm_res", "nm_assumed_wmax", above=0.0)
        check_numbers(
            name, self, "inp_noise", "out_noise", "out_noise_std", "w_noise", "out_bound", "ir_drop", "out_nonlinearity",
            "out_nonlinearity_std", "v_offset_std", "r_series", "w_read_asymmetry_dtod", "nm_thres", least=0.0,
        )  # fmt: skip
        check_numbers(
            name, self, "inp_res", "out_res", "inp_asymmetry", "out_asymmetry", "out_scale", "v_offset_w_min",
            "slope_calibration", "nm_decay",
        )  # fmt: skip
        kinds = {
            "mv_type": AnalogMVType, "noise_management": NoiseManagementType, "bound_management": BoundManagementType,
            "w_noise_type": WeightNoiseType,
        }  # fmt: skip
        for field, kind in kinds.items():
            if not isinstance(getattr(self, field), kind):
                raise ConfigError(
                    f"{name}: {field} is a {kind.__name__}: {', '.join(k.name for k in kind)}", repr(getattr(self, field))[:60],
                    f"pass e.g. analog.{kind.__name__}.{next(iter(kind)).name}",
                )  # fmt: skip
        if not 0.0 <= self.nm_decay <= 1.0:
            raise ConfigError(f"{name}: nm_decay is in [0, 1]", repr(self.nm_decay), "pass e.g. 0.001")
        if self.noise_management is not NoiseManagementType.NONE and self.inp_bound != 1.0 and not self.is_perfect:
            raise ConfigError(
                f"{name}: inp_bound is 1 with noise management", repr(self.inp_bound),
                "pass noise_management=analog.NoiseManagementType.NONE, or leave inp_bound out",
            )  # fmt: skip

    @property
    def inp_step(self) -> float:
        """Step of the DAC; 0 for none."""
        return step_of(self.inp_res, self.inp_bound)

    @property
    def out_step(self) -> float:
        """Step of the ADC; 0 for none."""
        return step_of(self.out_res, self.out_bound)


def step_of(resolution: float, bound: float) -> float:
    """Step of a converter; 0 for none."""
    share = 1.0 / resolution if resolution > 1.0 else max(resolution, 0.0)
    return 2.0 * share * bound
