"""One call of every public function that takes tensors: NumPy arrays stand for tensors, to be made on a device.

``calls`` reads the signatures, so a function that is added to Firebrick without a row here fails the tests.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
]
_FLOAT_BINARY = [
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
]

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(_FLOAT_UNARY, (F,)),
    **dict.fromkeys(("log", "log1p", "sqrt"), (P,)),
    **dict.fromkeys(_FLOAT_BINARY, (F, F)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), (B, B)),
    **dict.fromkeys(("logical_not", "all", "any"), (B,)),
    "pow": (P, F),
    "where": (B, F, F),
    "clip": (F, np.asarray(-1.0, np.float32), np.asarray(1.0, np.float32)),
    "astype": (F, fb.float64),
    "full_like": (F, 2.0),
    "one_hot": (I, 2),
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
    "take": (V, I),
    "take_along_axis": (F, I),
    "scatter_add": (F, I, F),
    "matmul": (F, F.T.copy()),
    "tensordot": (
        F,
        F.T.copy(),
    ),
    "softmax": (F,),
    "layer_norm": (F, V, V),
    "conv2d": (IMAGE, KERNEL, V),
    "max_pool2d": (IMAGE, 2),
    "avg_pool2d": (IMAGE, 2),
    "scaled_dot_product_attention": (F[None], F[None], F[None], np.ones((1, 2, 2), np.bool_)),
    "cross_entropy": (F, np.asarray([0, 2])),
}

KEYWORDS: dict[str, dict[str, Any]] = {"tensordot": {"axes": 1}}
# arguments given by keyword only
BY_NAME = {"scaled_dot_product_attention": ("mask",)}

EXEMPT = {
    "read": "it reads tensors of any devices",
    "vjp": "its function may move a primal",
    "gradcheck": "its function may move an input",
    "register_hook": "it takes one tensor; what the hook returns is tested with autodiff",
    "backward": "tested with a tracked result",
    "jvp": "tested with a function",
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
        by_name = {k: arguments[k] for k in BY_NAME.get(self.name, ())}
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
        if self.name in ("meshgrid", "broadcast_arrays"):
            positional = positional[0]
        return self.function(*positional, **by_name, **KEYWORDS.get(self.name, {}), **keywords)

    @property
    def tensors(self) -> list[str]:
        """Names of the tensor arguments."""
        return [k for k, v in self.arrays.items() if isinstance(v, np.ndarray)]


def _named(function: Callable[..., Any], name: str, args: tuple[Any, ...]) -> Iterator[tuple[str, Any]]:
    names = list(inspect.signature(function).parameters)
    if name in ("meshgrid", "broadcast_arrays"):
        yield from ((f"arrays[{i}]", a) for i, a in enumerate(args))
        return
    for key, value in zip(names, args, strict=False):
        if isinstance(value, list):
            yield from ((f"{key}[{i}]", a) for i, a in enumerate(value))
        else:
            yield key, value


def calls() -> list[Call]:
    """A call of every public function that has a row."""
    functions = public_functions()
    return [Call(n, functions[n], dict(_named(functions[n], n, a))) for n, a in ARGUMENTS.items() if n in functions]
