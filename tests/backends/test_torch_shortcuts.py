"""Kernels of the torch engine that take a shorter way: draws in pieces, choices against 0 by bits, and what a program settles
when it is compiled. Same bits always."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch, whose engine this is")

from firebrick.backends.torch import calls, reduction  # noqa: E402 - needs torch
from firebrick.backends.torch import random as kernels  # noqa: E402
from firebrick.backends.torch.elementwise import where  # noqa: E402
from firebrick.backends.torch.kernels import KERNELS  # noqa: E402
from firebrick.core.aval import Aval  # noqa: E402
from firebrick.core.dtypes import bool_, float16, float32, float64, int32, int64, uint32  # noqa: E402
from firebrick.ops import OPS  # noqa: E402
from firebrick.ops.bits import random_bits, random_uniform  # noqa: E402

KEY = np.array([1, 2**31 + 5, 2**32 - 1, 4], np.uint32)


@pytest.mark.parametrize("offset", [0, 1, 3, 2**34 + 3])
@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 1001])
def test_a_draw_in_pieces_is_the_stream_of_the_reference(monkeypatch: pytest.MonkeyPatch, count: int, offset: int) -> None:
    monkeypatch.setattr(kernels, "_PIECE", 16)
    key, shape = torch.from_numpy(KEY), (count,)
    with torch.device("meta"):  # not where it draws
        bits = kernels.random_bits(key, shape=shape, offset=offset).numpy()
    assert np.array_equal(bits, random_bits.reference(KEY, shape=shape, offset=offset))
    for dtype in (float32, float64):
        drawn = kernels.random_uniform(key, shape=shape, offset=offset, dtype=dtype).numpy()
        assert np.array_equal(drawn, random_uniform.reference(KEY, shape=shape, offset=offset, dtype=dtype))


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int32])
def test_a_choice_against_zero_keeps_every_bit(dtype: object, zero: float) -> None:
    special = [1.0, -0.0, 0.0, float("nan"), float("inf"), -float("inf"), -2.0, 3.0]
    values = torch.tensor([1, -2, 0, 7, 5, -1, 2, 3] if dtype is torch.int32 else special, dtype=dtype)
    keep = torch.tensor([1, 0, 1, 0, 0, 1, 1, 0], dtype=torch.bool)
    nothing = torch.tensor(zero, dtype=dtype)
    rows = (slice(None), slice(None, None, 2), slice(0, 0))
    for part in rows:
        for x1, x2 in ((values[part], nothing), (nothing, values[part])):
            assert where(keep[part], x1, x2).numpy().tobytes() == torch.where(keep[part], x1, x2).numpy().tobytes()
    turned = torch.arange(12).to(dtype).reshape(3, 4).T
    mask = torch.arange(12).reshape(4, 3) % 2 == 0
    assert torch.equal(where(mask, turned, nothing), torch.where(mask, turned, nothing))
    assert torch.equal(where(mask, turned[:1], nothing), torch.where(mask, turned[:1], nothing))


def settled(name: str, *operands: Any, platform: str = "cpu", known: Any = None, **params: Any) -> Any:
    avals = tuple(Aval(shape, dtype) for shape, dtype in operands)
    return calls.settle(OPS[name], avals, params, platform, known or (None,) * len(avals))


@pytest.mark.parametrize(
    ("shapes", "dtype", "zero", "platform", "chosen"),
    [
        (((3,), (3,), (3,)), float32, None, "cpu", "torch.where"),
        (((3,), (3,), ()), float16, 0.0, "cpu", "torch.where"),
        (((3,), (3,), ()), int32, 0, "cpu", "torch.where"),
        (((3,), (1,), ()), float32, 0.0, "cpu", "torch.where"),  # the kept values are broadcast
        (((3,), (3,), ()), float32, None, "cpu", "when it runs"),
        (((), (), ()), float32, 0.0, "cpu", "when it runs"),
        (((3,), (3,), ()), float32, 2.0, "cpu", "torch.where"),
        (((3,), (3,), ()), float32, -0.0, "cpu", "torch.where"),
        (((3,), (3,), ()), float32, 0.0, "cuda", "the kernel"),
        (((3,), (3,), ()), float32, 0.0, "cpu", "{0}.to({int}).neg_().bitwise_and_({1}.view({int})).view({own})"),
        (((3,), (), (3,)), float64, 0.0, "cpu", "{0}.logical_not().to({int}).neg_().bitwise_and_({2}.view({int})).view({own})"),
    ],
)
def test_a_program_settles_how_it_chooses_when_it_is_compiled(
    shapes: Any, dtype: Any, zero: float | None, platform: str, chosen: str
) -> None:
    constant = None if zero is None else np.asarray(zero, dtype.np)
    known = tuple(None if i == 0 or shape else constant for i, shape in enumerate(shapes))
    dtypes = (bool_, dtype, dtype)
    kernel = settled("where", *zip(shapes, dtypes, strict=True), platform=platform, known=known)
    assert kernel.layout == calls.KEPT
    if chosen in ("torch.where", "when it runs", "the kernel"):
        assert kernel.expr == "{f}({0}, {1}, {2})"
        assert kernel.names["f"] is {"torch.where": torch.where, "when it runs": where, "the kernel": KERNELS["where"]}[chosen]
    else:
        bits = torch.int32 if dtype is float32 else torch.int64
        assert (kernel.expr, kernel.names) == (chosen, {"int": bits, "own": calls.TORCH[dtype]})


ROW, LONG = (2, 3), (reduction.LONG + 1, 2)


@pytest.mark.parametrize(
    ("name", "operands", "params", "expr", "layout"),
    [
        ("sum", [(ROW, float32)], {"axes": (0,), "keepdims": True}, "{f}({0}, {axes}, {keepdims}, dtype={dtype})", "kept"),
        ("sum", [(ROW, float32)], {"axes": (), "keepdims": True}, None, "any"),
        ("mean", [(ROW, float32)], {"axes": (0,), "keepdims": True}, "{f}({0}, {axes}, {keepdims})", "kept"),
        ("mean", [(ROW, float32)], {"axes": (), "keepdims": True}, None, "any"),
        ("mean", [(ROW, float16)], {"axes": (0,), "keepdims": True}, None, "any"),
        ("permute", [(ROW, float32)], {"axes": (0, 1)}, "{0}.permute({axes})", "kept"),
        ("permute", [(ROW, float32)], {"axes": (1, 0)}, "{0}.permute({axes})", "any"),
        ("slice", [(ROW, float32)], {"starts": (1, 2), "stops": (2, 0), "steps": (1, -1)}, None, "any"),
        ("slice", [(ROW, float32)], {"starts": (0, 0), "stops": (2, 3), "steps": (1, 2)}, "{0}[{key}]", "kept"),
        ("cast", [(ROW, float32)], {"dtype": float32}, "{0}.clone()", "kept"),
        ("cast", [(ROW, float32)], {"dtype": float64}, "{0}.to({dtype})", "kept"),
        ("cast", [(ROW, float32)], {"dtype": int32}, None, "any"),  # it saturates
        ("cast", [(ROW, float64)], {"dtype": float16}, None, "any"),  # it rounds once
        ("cast", [(ROW, float32)], {"dtype": float16}, "{0}.to({dtype})", "kept"),
        ("cast", [(ROW, int64)], {"dtype": int32}, "{0}.to({dtype})", "kept"),
        ("concat", [(ROW, float32)], {"axis": 0}, None, "any"),
        ("concat", [(ROW, float32)] * 2, {"axis": 1}, "{f}(({0}, {1}), {axis})", "kept"),
        ("softmax", [(LONG, float32)], {"axis": 1}, "{f}({0}, {axis})", "kept"),
        ("softmax", [(LONG, float32)], {"axis": 0}, None, "any"),
        ("softmax", [((reduction.LONG, 2), float32)], {"axis": 0}, "{f}({0}, {axis})", "kept"),
        ("softmax", [(ROW, float16)], {"axis": 1}, "{f}({0}, {axis})", "kept"),
        ("log_softmax", [(ROW, float32)], {"axis": 1}, "{f}({0}, {axis})", "kept"),
        ("log_softmax", [(ROW, float16)], {"axis": 1}, None, "any"),
        ("matmul", [(ROW, float32), ((3, 4), float32)], {}, "{f}({0}, {1})", "rows"),
        ("matmul", [(ROW, int32), ((3, 4), int32)], {}, "{f}({0}, {1})", "rows"),
        ("matmul", [(ROW, float16), ((3, 4), float16)], {}, None, "any"),
        ("split", [(ROW, float32)], {"sizes": (1, 1), "axis": 0}, None, "kept"),
        ("add", [(ROW, uint32)] * 2, {}, None, "any"),  # PyTorch adds it as signed bits
    ],
)
def test_what_a_program_settles_is_one_call_and_the_rest_asks_the_kernel(
    name: str, operands: Any, params: Any, expr: str | None, layout: str
) -> None:
    kernel = settled(name, *operands, **params)
    called = [f"{{{i}}}" for i in range(len(operands))]
    detour = operands[0][1] is uint32
    rest = f"{{f}}({', '.join([*called, *([] if detour else (f'{p}={{p_{p}}}' for p in params))])})"
    assert (kernel.expr, kernel.layout) == (expr or rest, layout)
