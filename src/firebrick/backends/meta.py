"""The ``meta`` engine: shapes and dtypes without data, for sizing a model or checking a program before it runs."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from firebrick.backends.contract import Backend
from firebrick.compiler import Kernel
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.core.errors import UnsupportedError
from firebrick.core.op import Op


class MetaBackend(Backend):
    """Runs every op's shape rule and nothing else."""

    engine = "meta"
    platforms = ("meta",)

    def device_count(self, platform: str) -> int:
        return int(config.logical_devices)

    def properties(self, device: Device) -> dict[str, Any]:
        return {"name": "shapes and dtypes only"}

    def from_host(self, array: np.ndarray[Any, Any], device: Device) -> Aval:
        return Aval(array.shape, as_dtype(array.dtype))

    def to_host(self, native: Aval) -> NoReturn:
        raise UnsupportedError(
            "a tensor on meta has a shape and a dtype but no values",
            str(native),
            "run the program on another device",
        )

    def describe(self, native: Aval) -> Aval:
        return native

    def same_elements(self, view: Aval, other: Aval) -> bool:
        return view == other

    def supports(self, op: Op, dtypes: tuple[DType, ...]) -> bool:
        return True

    def copy(self, native: Aval, device: Device | None = None) -> Aval:
        return native

    def kernel(
        self,
        op: Op,
        operands: tuple[Aval, ...],
        params: dict[str, Any],
        results: tuple[Aval, ...],
        device: Device | None,
        known: tuple[Any, ...],
    ) -> Kernel:
        packed = len(results) != 1 or type(op.infer(*operands, **params)) is not Aval
        return Kernel("{result}", {"result": results if packed else results[0]})

    def execute(self, op: Op, inputs: tuple[Aval, ...], params: dict[str, Any], out: Aval | None = None) -> Any:
        return _inferred(op, inputs, params)


def _inferred(op: Op, inputs: tuple[Aval, ...], params: dict[str, Any]) -> Any:
    found = op.infer(*inputs, **params)
    return found if type(found) is Aval else tuple(found)
