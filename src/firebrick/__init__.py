"""Firebrick: one tensor program, trained and run on any engine.

>>> import firebrick as fb
>>> x = fb.asarray([1.0, 2.0, 3.0])
>>> fb.grad(lambda x: fb.sum(x * x))(x).tolist()
[2.0, 4.0, 6.0]
"""

from importlib import import_module
from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any

import firebrick.backends
import firebrick.functions
from firebrick.autodiff import (
    Gradients,
    backward,
    checkpoint,
    checkpointing,
    detect_anomaly,
    grad,
    gradcheck,
    jvp,
    no_grad,
    register_hook,
    value_and_grad,
    vjp,
)
from firebrick.backends.dispatch import explain_fallbacks, read
from firebrick.backends.decorators import profile, verify
from firebrick.backends.registry import default_device, devices, set_default_device, unavailable, use_device
from firebrick.backends.registry import find_device as device
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.dtypes import (
    DType,
    bfloat16,
    can_cast,
    complex64,
    complex128,
    dtype,
    finfo,
    float16,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    result_type,
    uint8,
    uint16,
    uint32,
    uint64,
)
from firebrick.core.dtypes import bool_ as bool  # noqa: A004 - the standard's name
from firebrick.core.errors import (
    CollectiveTimeoutError,
    ConfigError,
    DeviceError,
    DeviceLostError,
    DeviceMismatchError,
    DTypeError,
    ExecutionError,
    FallbackWarning,
    FirebrickError,
    GradientError,
    KernelCompileError,
    LaunchError,
    OperandError,
    OutOfMemoryError,
    OutOfRangeError,
    ShapeError,
    UnsupportedError,
)
from firebrick.core.shapes import broadcast_shapes
from firebrick.core.tensor import Tensor
from firebrick.core.trees import tree_map
from firebrick.functions.creation import (
    __array_namespace_info__,
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    one_hot,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from firebrick.functions.elementwise import *  # noqa: F403
from firebrick.functions.linear import matmul, tensordot, vecdot
from firebrick.functions.movement import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    pad,
    permute_dims,
    reshape,
    scatter_add,
    squeeze,
    stack,
    take,
    take_along_axis,
)
from firebrick.functions.neural import (
    avg_pool2d,
    conv2d,
    cross_entropy,
    layer_norm,
    log_softmax,
    max_pool2d,
    mse_loss,
    scaled_dot_product_attention,
    softmax,
)
from firebrick.functions.reductions import (
    all,  # noqa: A004 - the standard's name
    any,  # noqa: A004 - the standard's name
    argmax,
    argmin,
    argsort,
    max,  # noqa: A004 - the standard's name
    mean,
    min,  # noqa: A004 - the standard's name
    prod,
    sort,
    std,
    sum,  # noqa: A004 - the standard's name
    var,
)

__version__ = "0.1.0"
__array_api_version__ = "2024.12"
newaxis = None

# imported when first used, so that `import firebrick` stays quick
_LAZY = ("nn", "optim", "data", "train", "models", "random", "testing", "ops")

if TYPE_CHECKING:
    from firebrick import data, models, nn, ops, optim, random, testing, train


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return import_module(f"firebrick.{name}")
    raise AttributeError(f"module 'firebrick' has no attribute {name!r}")
