"""Rules of functions, arithmetic, choices, comparisons, integers and casts: each element by itself, operands broadcast."""

from __future__ import annotations

from random import Random

import numpy as np

from differential.rule import Params, Shape, one_axis, reduced, rule


def number(d: Random, shapes: list[Shape]) -> Params | None:
    return {"c": d.choice([0.5, 2.0, -1.5, 0.125, 3.0, 1.0, 0.25])}  # exact in 16 bits


def _unary(name: str, fb: str, numpy: str = "", torch: str = "", **more: object) -> None:
    rule("unary", name, "f", "=", fb, numpy, torch, **more)


for name in ("square", "sin", "cos", "abs", "exp"):
    _unary(name, f"fb.{name}({{0}})")
for name in ("floor", "sign", "round", "ceil", "trunc"):
    _unary(name, f"fb.{name}({{0}})", weight=0.4)
for name in ("tanh", "expm1"):
    _unary(name, f"fb.{name}({{0}})", slack="d({0})")
_unary("negative", "-{0}")
_unary("exp_abs", "fb.exp(-fb.abs({0}))")
_unary("sqrt", "fb.sqrt(fb.abs({0}) + 0.5)")
_unary("rsqrt", "fb.rsqrt(fb.abs({0}) + 0.5)", "1 / np.sqrt(np.abs({0}) + 0.5)")
_unary("log", "fb.log(fb.abs({0}) + 2.0)")
_unary("log1p", "fb.log1p(fb.abs({0}))")
_unary("atan", "fb.atan({0})", "np.arctan({0})")
_unary("sigmoid", "fb.sigmoid({0})", "1 / (1 + np.exp(-{0}))", slack="d({0})")
_unary("silu", "fb.silu({0})", "{0} / (1 + np.exp(-{0}))", slack="d({0})")
_unary("relu", "fb.relu({0})", "np.maximum({0}, 0)", "torch.relu({0})")
_unary("leaky_relu", "fb.leaky_relu({0})", "np.where({0} > 0, {0}, 0.01 * {0})")
_unary(
    "softplus",
    "fb.softplus({0})",
    "np.logaddexp({0}, 0)",
    "torch.nn.functional.softplus({0}, threshold=100)",
    slack="d({0})",
)
_unary(
    "elu",
    "fb.elu({0})",
    "np.where({0} > 0, {0}, np.expm1(np.minimum({0}, 0)))",
    "torch.nn.functional.elu({0})",
    slack="d({0})",
)
_unary(
    "gelu",
    "fb.gelu({0}, approximate='tanh')",
    "0.5 * {0} * (1 + np.tanh(np.sqrt(2 / np.pi) * ({0} + 0.044715 * {0} ** 3)))",
    "torch.nn.functional.gelu({0}, approximate='tanh')",
    slack="e({0})",
)
_unary("erf", "fb.erf({0})", "np.vectorize(math.erf, otypes=[float])({0})", "torch.erf({0})", weight=0.3, slack="d({0})")
_unary("clip", "fb.clip({0}, -0.75, 1.25)", "np.clip({0}, -0.75, 1.25)")
_unary("cube", "{0} ** 3")
_unary("power", "(fb.abs({0}) + 0.5) ** {c}", draw=number)
_unary("reciprocal", "1.0 / (fb.abs({0}) + 0.5)")

# through complex numbers, and back to the operand's dtype
_unary(
    "complex_size",
    "fb.astype(fb.abs(fb.complex({0} + 0.5, fb.sin({0}))), {0}.dtype)",
    "np.abs({0} + 0.5 + 1j * np.sin({0}))",
    "torch.abs(torch.complex({0} + 0.5, torch.sin({0})))",
    weight=0.5,
)
_unary(
    "complex_square",
    "fb.astype(fb.imag(fb.square(fb.complex({0}, fb.cos({0})))), {0}.dtype)",
    "2 * {0} * np.cos({0})",
    "2 * {0} * torch.cos({0})",
    weight=0.5,
)
_unary(
    "complex_turn",
    "fb.astype(fb.real(fb.exp(fb.complex(-fb.abs({0}), {0}))), {0}.dtype)",
    "np.exp(-np.abs({0})) * np.cos({0})",
    weight=0.5,
)
_unary(
    "complex_quotient",
    "fb.astype(fb.real(fb.conj(fb.complex({0}, {0} * 0.0 + 1.0)) / (fb.complex(fb.abs({0}), {0} * 0.5) + 1.0)), {0}.dtype)",
    "np.real(({0} - 1j) / (np.abs({0}) + 1 + 0.5j * {0}))",
    "torch.real(({0} - 1j) / (torch.abs({0}) + 1 + 0.5j * {0}))",
    weight=0.5,
)

rule("number", "times", "f", "=", "{0} * {c}", draw=number)
rule("number", "plus", "f", "=", "{0} + {c}", draw=number)
rule("number", "from_number", "f", "=", "{c} - {0}", draw=number)
rule("number", "over", "f", "=", "{0} / {c}", draw=number)
rule("number", "at_least", "f", "=", "fb.maximum({0}, {c})", "np.maximum({0}, {c})", "torch.clamp({0}, min={c})", draw=number)


def _binary(name: str, fb: str, numpy: str = "", torch: str = "", **more: object) -> None:
    rule("binary", name, "ff", "f", fb, numpy, torch, joined="broadcast", **more)


for name, text in (("add", "{0} + {1}"), ("subtract", "{0} - {1}"), ("multiply", "{0} * {1}")):
    _binary(name, text, weight=2.5)
_binary("divide", "{0} / {1}", weight=1.5)
_binary("divide_safely", "{0} / (fb.abs({1}) + 1.0)", weight=1.5)
_binary("maximum", "fb.maximum({0}, {1})")
_binary("minimum", "fb.minimum({0}, {1})")
_binary("logaddexp", "fb.logaddexp({0}, {1})", weight=0.5)
_binary("hypot", "fb.hypot({0}, fb.abs({1}) + 0.5)", weight=0.5)
_binary("atan2", "fb.atan2({0}, fb.abs({1}) + 0.5)", "np.arctan2({0}, np.abs({1}) + 0.5)", weight=0.5)
_binary("pow", "(fb.abs({0}) + 0.5) ** {1}", weight=0.5)
_binary("gated", "{0} * fb.sigmoid({1})", "{0} / (1 + np.exp(-{1}))", weight=0.7, slack="d({0}) + d({1})")
_binary("squared_difference", "fb.square({0} - {1})")


def _masked(d: Random, shapes: list[Shape]) -> Params | None:
    """The mask broadcasts to the values."""
    return number(d, shapes) if np.broadcast_shapes(*shapes) == shapes[0] else None


rule("choice", "where", "bff", "f", "fb.where({0}, {1}, {2})", joined="broadcast", weight=2.0)
rule("choice", "where_number", "bf", "f", "fb.where({0}, {1}, {c})", draw=number, joined="broadcast")
rule(
    "choice",
    "masked_fill",
    "fb",
    "=",
    "fb.masked_fill({0}, {1}, {c})",
    "np.where({1}, {c}, {0})",
    draw=_masked,
    joined="broadcast",
)
rule("choice", "where_int", "bii", "i", "fb.where({0}, {1}, {2})", joined="broadcast", weight=0.4)

for name, sign in (("greater", ">"), ("less_equal", "<="), ("less", "<")):
    rule("comparison", name, "ff", "b", f"{{0}} {sign} {{1}}", joined="broadcast")
rule("comparison", "greater_number", "f", "b", "{0} > {c}", draw=number, weight=2.0)
rule("comparison", "less_number", "f", "b", "{0} < {c}", draw=number)
rule("comparison", "equal_int", "ii", "b", "{0} == {1}", joined="broadcast")
rule("comparison", "logical_and", "bb", "b", "fb.logical_and({0}, {1})", joined="broadcast")
rule("comparison", "logical_or", "bb", "b", "{0} | {1}", joined="broadcast")
rule("comparison", "logical_xor", "bb", "b", "fb.logical_xor({0}, {1})", joined="broadcast")
rule("comparison", "logical_not", "b", "b", "fb.logical_not({0})")
rule("comparison", "isfinite", "f", "b", "fb.isfinite({0})", weight=0.6)

_AXIS, _DIM = "({0}, axis={axis}, keepdims={keepdims})", "({0}, dim={dim}, keepdim={keepdims})"
rule("int", "add_int", "ii", "i", "{0} + {1}", joined="broadcast")
rule("int", "subtract_int", "ii", "i", "{0} - {1}", joined="broadcast")
rule("int", "multiply_int", "ii", "i", "{0} * {1}", joined="broadcast")
rule("int", "remainder_int", "i", "i", "{0} % 3")
rule("int", "floor_divide_int", "i", "i", "{0} // 2")
rule("int", "sum_int", "i", "i", f"fb.sum{_AXIS}", "", f"torch.sum{_DIM}", draw=reduced)
rule("int", "max_int", "i", "i", f"fb.max{_AXIS}", "", f"torch.amax{_DIM}", draw=reduced)
rule(
    "int",
    "cumulative_sum_int",
    "i",
    "i",
    "fb.cumulative_sum({0}, axis={axis})",
    "np.cumsum({0}, axis={axis})",
    "torch.cumsum({0}, dim={axis})",
    draw=one_axis,
)

for name in ("float64", "float32", "float16", "bfloat16"):
    rule("cast", f"to_{name}", "f", name, f"fb.astype({{0}}, fb.{name})", "{0} * 1.0")
for kind, source in (("b", "bool"), ("i", "int")):
    text = "{0}.astype(np.float64)", "{0}.to(torch.float64)"
    rule("cast", f"{source}_to_float", kind, "float32", "fb.astype({0}, fb.float32)", *text)
rule(
    "cast",
    "float_to_int",
    "f",
    "i",
    "fb.astype({0}, fb.int64)",
    "np.trunc({0}).astype(np.int64)",
    "torch.trunc({0}).to(torch.int64)",
)
rule("cast", "bool_to_int", "b", "i", "fb.astype({0}, fb.int64)", "{0}.astype(np.int64)", "{0}.to(torch.int64)")
