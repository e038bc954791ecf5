"""One call of every public function that takes tensors: NumPy arrays stand for tensors, to be made on a device.

``calls`` reads the signatures, so a function that is added to Firebrick without a row here fails the tests.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import firebrick as fb

F = np.asarray([[0.5, 1.5, -0.5], [2.0, -1.0, 0.25]], np.float32)
P = np.abs(F)
B = F > 0
I = np.asarray([[0, 1, 1], [1, 0, 0]])  # noqa: E741 - indices
V = np.asarray([1.0, 2.0, 3.0], np.float32)
IMAGE = np.arange(2 * 2 * 4 * 4, dtype=np.float32).reshape(2, 2, 4, 4)
KERNEL = np.ones((3, 2, 2, 2), np.float32)

_FLOAT_UNARY = [
    "abs",
    "ceil",
    "cos",
    "erf",
    "exp",
    "expm1",
    "floor",
    "gelu",
    "isfinite",
    "isinf",
    "isnan",
    "log_softmax",
    "logsumexp",
    "matrix_transpose",
    "max",
    "mean",
    "min",
    "negative",
    "positive",
    "prod",
    "relu",
    "round",
    "sigmoid",
    "sign",
    "silu",
    "sin",
    "softmax",
    "sort",
    "argsort",
    "square",
    "std",
    "sum",
    "tanh",
    "var",
    "argmax",
    "argmin",
    "flip",
    "tril",
    "triu",
    "zeros_like",
    "ones_like",
    "empty_like",
    "attach",
    "argwhere",
    "corrcoef",
    "count_nonzero",
    "cov",
    "flatnonzero",
    "median",
    "nanargmax",
    "nanargmin",
    "nanmax",
    "nanmean",
    "nanmedian",
    "nanmin",
    "nanprod",
    "nanstd",
    "nansum",
    "nanvar",
    "nonzero",
    "ptp",
    "unique",
    "unique_all",
    "unique_counts",
    "unique_inverse",
    "unique_values",
]
_ACTIVATIONS = [
    "celu",
    "elu",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "leaky_relu",
    "log_sigmoid",
    "mish",
    "relu6",
    "selu",
    "softplus",
    "softshrink",
    "softsign",
    "tanhshrink",
]
_FLOAT_UNARY += [
    *_ACTIVATIONS,
    "angle",
    "asinh",
    "atan",
    "conj",
    "cosh",
    "exp2",
    "imag",
    "real",
    "reciprocal",
    "signbit",
    "sinh",
    "tan",
    "trunc",
]
_FLOAT_BINARY = [
    "atan2",
    "complex",
    "copysign",
    "hypot",
    "logaddexp",
    "nextafter",
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "remainder",
    "maximum",
    "minimum",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "vecdot",
    "mse_loss",
    "l1_loss",
    "huber_loss",
    "smooth_l1_loss",
    "kl_div",
    "poisson_nll_loss",
    "cosine_similarity",
]

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(_FLOAT_UNARY, (F,)),
    **dict.fromkeys(("log", "log1p", "log2", "log10", "sqrt", "rsqrt"), (P,)),
    **dict.fromkeys(("lgamma", "digamma", "i0", "i1"), (P,)),
    "polygamma": (1, P),
    "cdist": (F, F + 1),
    "dropout": (F, 0.25),
    "affine_grid": (np.ones((2, 2, 3), np.float32), (2, 1, 3, 3)),
    "grid_sample": (IMAGE, np.full((2, 3, 2, 2), 0.25, np.float32)),
    **dict.fromkeys(("acos", "asin", "atanh", "erfinv"), (F / 4,)),
    "acosh": (P + 1,),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"), (I, I)),
    "bitwise_invert": (I,),
    "threshold": (F, 0.5, 0.0),
    "prelu": (F, V),
    **dict.fromkeys(("glu", "swiglu"), (IMAGE,)),
    **dict.fromkeys(_FLOAT_BINARY, (F, F)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), (B, B)),
    **dict.fromkeys(("logical_not", "all", "any"), (B,)),
    "pow": (P, F),
    "where": (B, F, F),
    "clip": (F, np.asarray(-1.0, np.float32), np.asarray(1.0, np.float32)),
    "astype": (F, fb.float64),
    "full_like": (F, 2.0),
    "one_hot": (I, 2),
    **dict.fromkeys(("cumulative_sum", "cumulative_prod", "cumulative_logsumexp", "cummax", "cummin"), (V,)),
    **dict.fromkeys(("quantile", "nanquantile", "percentile"), (F, np.asarray([0.25, 0.5], np.float32))),
    **dict.fromkeys(("bucketize", "digitize", "isin"), (F, V)),
    "average": (F, None, P),
    "bincount": (I[0], V),
    "diff": (F, 1, -1, F, F),
    "histogram": (F, V, None, P),
    "searchsorted": (V, F, "left", I[0]),
    "top_k": (F, 2),
    "trapezoid": (F, F),
    **dict.fromkeys(("isclose", "allclose"), (F, F)),
    "nan_to_num": (F,),
    "meshgrid": (V, V, V),
    "broadcast_arrays": (F, V),
    "broadcast_to": (V, (2, 3)),
    "expand_dims": (F,),
    "squeeze": (F[:1], 0),
    "reshape": (F, (3, 2)),
    "permute_dims": (F, (1, 0)),
    "moveaxis": (F, 0, 1),
    "pad": (F, ((1, 0), (0, 2))),
    "concat": ([F, F, F],),
    "stack": ([F, F],),
    "split": (F, (1, 1)),
    "take": (V, I),
    "take_along_axis": (F, I),
    "scatter_add": (F, I, F),
    "scatter": (F, I, F),
    "put_along_axis": (F, I, F),
    "index_add": (F, np.asarray([1, 0]), F),
    "index_copy": (F, np.asarray([1, 0]), F),
    "masked_fill": (F, B, np.asarray(1.0, np.float32)),
    "masked_select": (F, B),
    "embedding": (I, F),
    "einsum": ("ij,kj->ik", F, F),
    "outer": (V, F),
    "diag": (F,),
    "diag_embed": (F,),
    "diagonal": (F,),
    "swapaxes": (F, 0, 1),
    **dict.fromkeys(("atleast_1d", "atleast_2d", "atleast_3d", "flatten", "ravel", "rot90", "unstack"), (F,)),
    **dict.fromkeys(("hstack", "vstack"), ([F, F],)),
    "array_split": (F, 2),
    "chunk": (F, 2),
    "roll": (F, 1),
    "tile": (F, 2),
    "repeat": (V, np.asarray([1, 0, 2])),
    "unfold": (F, 1, 2),
    "unfold2d": (IMAGE, 2),
    "fold2d": (np.ones((1, 4, 4), np.float32), (3, 3), 2),
    "matmul": (F, F.T.copy()),
    "tensordot": (
        F,
        F.T.copy(),
    ),
    "softmax": (F,),
    "layer_norm": (F, V, V),
    "rms_norm": (F, V),
    "local_response_norm": (IMAGE, 2),
    "batch_norm": (F, V, V, V, V),
    "instance_norm": (IMAGE, V[:2], V[:2]),
    "group_norm": (F, 3, V, V),
    "conv1d": (IMAGE[0], np.ones((3, 4, 2), np.float32), V),
    "conv2d": (IMAGE, KERNEL, V),
    "conv3d": (IMAGE[None], np.ones((3, 2, 2, 2, 2), np.float32), V),
    "conv_transpose1d": (IMAGE[0], np.ones((4, 3, 2), np.float32), V),
    "conv_transpose2d": (IMAGE, KERNEL[:2], V[:2]),
    "conv_transpose3d": (IMAGE[None], np.ones((2, 3, 2, 2, 2), np.float32), V),
    **dict.fromkeys(("max_pool1d", "avg_pool1d", "adaptive_avg_pool1d", "adaptive_max_pool1d"), (IMAGE[0], 2)),
    **dict.fromkeys(("max_pool2d", "avg_pool2d", "adaptive_avg_pool2d", "adaptive_max_pool2d"), (IMAGE, 2)),
    **dict.fromkeys(("max_pool3d", "avg_pool3d", "adaptive_avg_pool3d", "adaptive_max_pool3d"), (IMAGE[None], 2)),
    "max_unpool": (IMAGE, np.arange(64).reshape(2, 2, 4, 4) % 16, (4, 4)),
    "interpolate": (IMAGE, 3),
    "pixel_shuffle": (IMAGE.reshape(2, 8, 2, 2), 2),
    "pixel_unshuffle": (IMAGE, 2),
    "scaled_dot_product_attention": (F[None], F[None], F[None], np.ones((1, 2, 2), np.bool_), F[None, :, :2]),
    "cross_entropy": (F, np.asarray([0, 2]), V),
    "nll_loss": (F, np.asarray([0, 2]), V),
    "binary_cross_entropy": (P / 4, P / 4, P),
    "binary_cross_entropy_with_logits": (F, P / 4, P, V),
    "gaussian_nll_loss": (F, F, P),
    "hinge_embedding_loss": (F, np.sign(F)),
    "soft_margin_loss": (F, np.sign(F)),
    "margin_ranking_loss": (F, F, np.sign(F)),
    "cosine_embedding_loss": (F, F, np.asarray([1, -1])),
    "triplet_margin_loss": (F, F, F),
    "ctc_loss": (F[:, None], np.asarray([[1]]), np.asarray([2]), np.asarray([1])),
}

KEYWORDS: dict[str, dict[str, Any]] = {
    "tensordot": {"axes": 1}, "linalg.tensordot": {"axes": 1}, "linalg.solve_triangular": {"upper": False},
}  # fmt: skip
# functions of random numbers: each call has a generator of its own, so that every call gives the same
RANDOM = {"dropout"}
# arguments given by keyword only
BY_NAME = {
    "scaled_dot_product_attention": ("mask", "bias"),
    "unfold": ("axis", "size"),
    "layer_norm": ("weight", "bias"),
    "rms_norm": ("weight",),
    "batch_norm": ("weight", "bias", "mean", "variance"),
    "instance_norm": ("weight", "bias"),
    "binary_cross_entropy_with_logits": ("pos_weight",),
    "average": ("axis", "weights"),
    "diff": ("n", "axis", "prepend", "append"),
    "histogram": ("range", "weights"),
    "searchsorted": ("side", "sorter"),
}

EXEMPT = {
    "read": "it reads tensors of any devices",
    "vjp": "its function may move a primal",
    "gradcheck": "its function may move an input",
    "register_hook": "it takes one tensor; what the hook returns is tested with autodiff",
    "backward": "tested with a tracked result",
}


def public_functions() -> dict[str, Callable[..., Any]]:
    """The functions in Firebrick's namespace that take tensors, by their annotations."""
    found = {}
    for name in dir(fb):
        value = getattr(fb, name)
        if name.startswith("_") or not inspect.isfunction(value) or not value.__module__.startswith("firebrick"):
            continue
        if any("Tensor" in str(p.annotation) for p in inspect.signature(value).parameters.values()):
            found[name] = value
    return found


@dataclass
class Call:
    """A function with arguments, as ``arrays`` by the names a user knows them by."""

    name: str
    function: Callable[..., Any]
    arrays: dict[str, Any]

    @property
    def takes_out(self) -> bool:
        return "out" in inspect.signature(self.function).parameters

    def on(self, device: str, moved: dict[str, str] | None = None) -> dict[str, Any]:
        """The arguments on a device, but those of ``moved`` on another."""
        return {
            key: fb.asarray(v, device=(moved or {}).get(key, device)) if isinstance(v, np.ndarray) else v
            for key, v in self.arrays.items()
        }

    def __call__(self, arguments: dict[str, Any], **keywords: Any) -> Any:
        positional: list[Any] = []
        grouped: dict[str, list[Any]] = {}
        by_name = {k: arguments[k] for k in BY_NAME.get(self.name, ()) if k in arguments}
        for key, value in arguments.items():
            if key in by_name:
                continue
            if "[" in key:
                base = key.split("[")[0]
                if base not in grouped:
                    grouped[base] = []
                    positional.append(grouped[base])
                grouped[base].append(value)
            else:
                positional.append(value)
        if any(p.kind is p.VAR_POSITIONAL for p in _parameters(self.function)):
            positional = [*positional[:-1], *positional[-1]]
        if self.name in RANDOM:
            keywords = {"generator": fb.random.Generator(0), **keywords}
        return self.function(*positional, **by_name, **{**KEYWORDS.get(self.name, {}), **keywords})

    @property
    def tensors(self) -> list[str]:
        """Names of the tensor arguments."""
        return [k for k, v in self.arrays.items() if isinstance(v, np.ndarray)]


@cache
def _parameters(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """The parameters of a function, without those that only take what is refused."""
    return tuple(p for p in inspect.signature(function).parameters.values() if not p.name.startswith("_"))


def _named(function: Callable[..., Any], name: str, args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    parameters = _parameters(function)
    several = next((i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL), len(args))
    if several < len(args):
        args = (*args[:several], list(args[several:]))
    for key, value in zip((p.name for p in parameters), args, strict=False):
        if isinstance(value, list):
            yield from ((f"{key}[{i}]", a) for i, a in enumerate(value))
        else:
            yield key, value


def calls() -> list[Call]:
    """A call of every public function that has a row."""
    functions = public_functions()
    return [Call(n, functions[n], dict(_named(functions[n], n, a))) for n, a in ARGUMENTS.items() if n in functions]


SIGNAL = np.sin(np.arange(16, dtype=np.float32)).reshape(2, 8)
SQUARE = np.asarray([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]], np.float32)
TALL = np.asarray([[1.0, 2.0], [0.5, -1.0], [3.0, 0.25]], np.float32)
CHAPTERS: dict[str, dict[str, tuple[np.ndarray[Any, Any] | int, ...]]] = {
    "fft": {
        **dict.fromkeys(("fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftshift", "ifftshift"), (SIGNAL,)),
        **dict.fromkeys(("fft2", "ifft2", "fftn", "ifftn", "rfftn", "irfftn"), (SIGNAL,)),
        "fftfreq": (6,), "rfftfreq": (6,), "stft": (SIGNAL, 4),
    },
    "linalg": {
        **dict.fromkeys(("cholesky", "det", "inv", "slogdet", "expm", "trace", "diagonal", "eigvalsh", "cond"), (SQUARE,)),
        **dict.fromkeys(("svdvals", "pinv", "matrix_rank", "matrix_norm", "vector_norm", "norm", "matrix_transpose"), (TALL,)),
        "matrix_power": (SQUARE, 2), "solve": (SQUARE, TALL), "solve_triangular": (SQUARE, TALL),
        "lstsq": (TALL, SQUARE[:, :2]),
        "cross": (SQUARE, SQUARE[::-1].copy()), "kron": (TALL, TALL), "outer": (TALL[:, 0], TALL[0]), "vecdot": (TALL, TALL),
        "matmul": (SQUARE, TALL), "tensordot": (TALL, TALL.T),
    },
}  # fmt: skip


def chapters() -> list[Call]:
    """A call of every function of ``fb.fft`` and ``fb.linalg`` that has a row."""
    return [
        Call(f"{chapter}.{name}", function, dict(_named(function, name, values)))
        for chapter, functions in CHAPTERS.items()
        for name, values in functions.items()
        for function in [getattr(getattr(fb, chapter), name)]
    ]
