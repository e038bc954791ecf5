"""What random programs are made of: each rule is one operation written three times, for Firebrick, NumPy and torch.

The texts are Python expressions with ``{0}``, ``{1}`` … for operands and ``{name}`` for parameters. NumPy's and torch's say what
the operation means without Firebrick: they are the ground truth. A rule without a torch text of its own has NumPy's with
``torch`` in place of ``np``. ``draw`` chooses the parameters for given operands, or returns None where none fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Any

import numpy as np

Shape = tuple[int, ...]
Params = dict[str, Any]
Draw = Callable[[Random, list[Shape]], "Params | None"]


@dataclass(frozen=True)
class Rule:
    """One operation.

    Attributes:
        name: Its key in ``RULES``.
        kinds: Kinds of its operands: ``f`` float, ``i`` int, ``b`` bool, ``a`` any.
        result: Kind of its result; ``=`` for the dtype of the first operand, or a dtype for a cast.
        fb, np, torch: The texts.
        draw: Chooses parameters.
        joined: How operands must fit: ``broadcast`` together, ``equal`` shapes, or ``""`` where ``draw`` decides.
        weight: How often it is chosen among its family.
        slack: NumPy's text of what rounding inside the operation may add, in ``e(x)``, a tiny multiple of x of random sign: where
            a part of the value cancels, as in log_softmax, or a part of the derivative, as in the 1 - y² of tanh; ``stop(x)`` is x without its derivative.
    """

    name: str
    kinds: str
    result: str
    fb: str
    np: str
    torch: str
    draw: Draw
    joined: str = ""
    weight: float = 1.0
    slack: str = ""


RULES: dict[str, Rule] = {}
FAMILIES: dict[str, list[Rule]] = {}


def _nothing(d: Random, shapes: list[Shape]) -> Params | None:
    return {}


def rule(
    family: str, name: str, kinds: str, result: str, fb: str, numpy: str = "", torch: str = "", draw: Draw = _nothing,
    joined: str = "", weight: float = 1.0, slack: str = "",
) -> None:  # fmt: skip
    """Add a rule; ``numpy`` and ``torch`` are made from the text before them where they are not given."""
    numpy = numpy or fb.replace("fb.", "np.")
    torch = torch or numpy.replace("np.", "torch.")
    assert name not in RULES, name
    RULES[name] = Rule(name, kinds, result, fb, numpy, torch, draw, joined, weight, slack)
    FAMILIES.setdefault(family, []).append(RULES[name])


# draws


def number(d: Random, shapes: list[Shape]) -> Params | None:
    return {"c": d.choice([0.5, 2.0, -1.5, 0.1, 3.0, 1.0, 0.25])}


def one_axis(d: Random, shapes: list[Shape]) -> Params | None:
    n = len(shapes[0])
    return {"axis": d.randrange(-n, n)} if n else None


def _axes(d: Random, ndim: int) -> int | tuple[int, ...] | None:
    """Axes to reduce: often one, at times several or all."""
    if ndim == 0 or d.random() < 0.12:
        return None
    if ndim == 1 or d.random() < 0.65:
        return d.randrange(-ndim, ndim)
    return tuple(sorted(d.sample(range(ndim), d.randint(2, ndim))))


def reduced(d: Random, shapes: list[Shape]) -> Params | None:
    return reduction(len(shapes[0]), _axes(d, len(shapes[0])), d.random() < 0.35)


def reduction(ndim: int, axis: int | tuple[int, ...] | None, keepdims: bool = False) -> Params:
    """Parameters of a reduction: ``dim`` is what torch takes for ``axis``."""
    dims = tuple(range(ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis % ndim,)
    return {"axis": axis, "dim": dims, "keepdims": keepdims}


def reduced_along_one(d: Random, shapes: list[Shape]) -> Params | None:
    n = len(shapes[0])
    return reduction(n, d.randrange(-n, n), d.random() < 0.35) if n else None


def spread_along_one(d: Random, shapes: list[Shape]) -> Params | None:
    """A reduction along one axis with a correction that its size allows."""
    found = reduced_along_one(d, shapes)
    if found is not None:
        found["correction"] = d.choice([0, 1]) if shapes[0][found["axis"]] > 1 else 0
    return found


# elementwise

for name in ("square", "sin", "cos", "tanh", "floor", "sign", "round", "ceil", "trunc", "expm1", "abs", "exp"):
    rule("unary", name, "f", "=", f"fb.{name}({{0}})", weight=0.4 if name in ("floor", "sign", "round", "ceil", "trunc") else 1.0,
         slack="e({0})" if name in ("tanh", "expm1") else "")  # fmt: skip
rule("unary", "negative", "f", "=", "-{0}")
rule("unary", "exp_abs", "f", "=", "fb.exp(-fb.abs({0}))")
rule("unary", "sqrt", "f", "=", "fb.sqrt(fb.abs({0}) + 0.5)")
rule("unary", "rsqrt", "f", "=", "fb.rsqrt(fb.square({0}) + 0.5)", "1 / np.sqrt(np.square({0}) + 0.5)")
rule("unary", "log", "f", "=", "fb.log(fb.abs({0}) + 0.5)")
rule("unary", "log1p", "f", "=", "fb.log1p(fb.abs({0}))")
rule("unary", "atan", "f", "=", "fb.atan({0})", "np.arctan({0})", "torch.atan({0})")
rule("unary", "sigmoid", "f", "=", "fb.sigmoid({0})", "1 / (1 + np.exp(-{0}))", slack="e({0})")
rule("unary", "silu", "f", "=", "fb.silu({0})", "{0} / (1 + np.exp(-{0}))", slack="e({0})")
rule("unary", "relu", "f", "=", "fb.relu({0})", "np.maximum({0}, 0)", "torch.relu({0})")
rule("unary", "leaky_relu", "f", "=", "fb.leaky_relu({0})", "np.where({0} > 0, {0}, 0.01 * {0})")
rule("unary", "softplus", "f", "=", "fb.softplus({0})", "np.logaddexp({0}, 0)", "torch.nn.functional.softplus({0}, threshold=100)", slack="e({0})")
rule("unary", "elu", "f", "=", "fb.elu({0})", "np.where({0} > 0, {0}, np.expm1(np.minimum({0}, 0)))", "torch.nn.functional.elu({0})", slack="e({0})")
rule("unary", "gelu", "f", "=", "fb.gelu({0}, approximate='tanh')",
     "0.5 * {0} * (1 + np.tanh(np.sqrt(2 / np.pi) * ({0} + 0.044715 * {0} ** 3)))",
     "torch.nn.functional.gelu({0}, approximate='tanh')", slack="e({0})")  # fmt: skip
rule("unary", "erf", "f", "=", "fb.erf({0})", "np.vectorize(math.erf, otypes=[float])({0})", "torch.erf({0})", weight=0.3, slack="e({0})")
rule("unary", "clip", "f", "=", "fb.clip({0}, -0.75, 1.25)", "np.clip({0}, -0.75, 1.25)")
rule("unary", "cube", "f", "=", "{0} ** 3")
rule("unary", "power", "f", "=", "(fb.abs({0}) + 0.5) ** {c}", draw=number)
rule("unary", "reciprocal", "f", "=", "1.0 / (fb.abs({0}) + 0.5)")

rule("number", "times", "f", "=", "{0} * {c}", draw=number)
rule("number", "plus", "f", "=", "{0} + {c}", draw=number)
rule("number", "from_number", "f", "=", "{c} - {0}", draw=number)
rule("number", "over", "f", "=", "{0} / {c}", draw=number)
rule("number", "at_least", "f", "=", "fb.maximum({0}, {c})", "np.maximum({0}, {c})", "torch.clamp({0}, min={c})", draw=number)

for name, text in (("add", "{0} + {1}"), ("subtract", "{0} - {1}"), ("multiply", "{0} * {1}")):
    rule("binary", name, "ff", "f", text, joined="broadcast", weight=2.5)
rule("binary", "divide", "ff", "f", "{0} / {1}", joined="broadcast", weight=1.5)
rule("binary", "divide_safely", "ff", "f", "{0} / (fb.abs({1}) + 1.0)", joined="broadcast", weight=1.5)
rule("binary", "maximum", "ff", "f", "fb.maximum({0}, {1})", joined="broadcast")
rule("binary", "minimum", "ff", "f", "fb.minimum({0}, {1})", joined="broadcast")
rule("binary", "logaddexp", "ff", "f", "fb.logaddexp({0}, {1})", joined="broadcast", weight=0.5)
rule("binary", "hypot", "ff", "f", "fb.hypot({0}, fb.abs({1}) + 0.5)", joined="broadcast", weight=0.5)
rule("binary", "atan2", "ff", "f", "fb.atan2({0}, fb.abs({1}) + 0.5)", "np.arctan2({0}, np.abs({1}) + 0.5)",
     "torch.atan2({0}, torch.abs({1}) + 0.5)", joined="broadcast", weight=0.5)  # fmt: skip
rule("binary", "pow", "ff", "f", "(fb.abs({0}) + 0.5) ** {1}", joined="broadcast", weight=0.5)
rule("binary", "gated", "ff", "f", "{0} * fb.sigmoid({1})", "{0} / (1 + np.exp(-{1}))", joined="broadcast", weight=0.7, slack="e({0}) + e({1})")
rule("binary", "fused_square", "ff", "f", "fb.square({0} - {1})", joined="broadcast")

rule("choice", "where", "bff", "f", "fb.where({0}, {1}, {2})", joined="broadcast", weight=2.0)
rule("choice", "where_number", "bf", "f", "fb.where({0}, {1}, {c})", draw=number, joined="broadcast")
rule("choice", "masked_fill", "fb", "=", "fb.masked_fill({0}, {1}, {c})", "np.where({1}, {c}, {0})", joined="broadcast",
     draw=lambda d, s: number(d, s) if np.broadcast_shapes(*s) == s[0] else None)  # fmt: skip
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
rule("comparison", "isfinite", "f", "b", "fb.isfinite({0})", weight=0.2)

rule("int", "add_int", "ii", "i", "{0} + {1}", joined="broadcast")
rule("int", "subtract_int", "ii", "i", "{0} - {1}", joined="broadcast")
rule("int", "multiply_int", "ii", "i", "{0} * {1}", joined="broadcast")
rule("int", "remainder_int", "i", "i", "{0} % 3")
rule("int", "floor_divide_int", "i", "i", "{0} // 2")
rule("int", "sum_int", "i", "i", "fb.sum({0}, axis={axis}, keepdims={keepdims})", "",
     "torch.sum({0}, dim={dim}, keepdim={keepdims})", draw=reduced)  # fmt: skip
rule("int", "max_int", "i", "i", "fb.max({0}, axis={axis}, keepdims={keepdims})", "",
     "torch.amax({0}, dim={dim}, keepdim={keepdims})", draw=reduced)  # fmt: skip
rule("int", "cumulative_sum_int", "i", "i", "fb.cumulative_sum({0}, axis={axis})", "np.cumsum({0}, axis={axis})",
     "torch.cumsum({0}, dim={axis})", draw=one_axis)  # fmt: skip

rule("cast", "to_float64", "f", "float64", "fb.astype({0}, fb.float64)", "{0} * 1.0")
rule("cast", "to_float32", "f", "float32", "fb.astype({0}, fb.float32)", "{0} * 1.0")
rule("cast", "to_float16", "f", "float16", "fb.astype({0}, fb.float16)", "{0} * 1.0", weight=0.5)
rule("cast", "to_bfloat16", "f", "bfloat16", "fb.astype({0}, fb.bfloat16)", "{0} * 1.0", weight=0.3)
rule("cast", "bool_to_float", "b", "float32", "fb.astype({0}, fb.float32)", "{0}.astype(np.float64)", "{0}.to(torch.float64)")
rule("cast", "int_to_float", "i", "float32", "fb.astype({0}, fb.float32)", "{0}.astype(np.float64)", "{0}.to(torch.float64)")
rule("cast", "float_to_int", "f", "i", "fb.astype({0}, fb.int64)", "np.trunc({0}).astype(np.int64)",
     "torch.trunc({0}).to(torch.int64)")  # fmt: skip
rule("cast", "bool_to_int", "b", "i", "fb.astype({0}, fb.int64)", "{0}.astype(np.int64)", "{0}.to(torch.int64)")

# reductions

_AXIS, _DIM = "({0}, axis={axis}, keepdims={keepdims})", "({0}, dim={dim}, keepdim={keepdims})"
for name, torch_name, weight in (("sum", "sum", 3), ("mean", "mean", 2), ("max", "amax", 2), ("min", "amin", 1)):
    rule("reduction", name, "f", "=", f"fb.{name}{_AXIS}", "", f"torch.{torch_name}{_DIM}", draw=reduced, weight=weight)
rule("reduction", "prod", "f", "=", f"fb.prod{_AXIS}", "", "torch.prod({0}, dim={axis}, keepdim={keepdims})", weight=0.5,
     draw=reduced_along_one)  # fmt: skip
rule("reduction", "var", "f", "=", f"fb.var{_AXIS}", "", "torch.var({0}, dim={dim}, keepdim={keepdims}, correction=0)", draw=reduced)
rule("reduction", "std", "f", "=", "fb.std({0} * 2.0, axis={axis}, keepdims={keepdims}, correction={correction})",
     "np.std({0} * 2.0, axis={axis}, keepdims={keepdims}, ddof={correction})",
     "torch.std({0} * 2.0, dim={dim}, keepdim={keepdims}, correction={correction})", draw=spread_along_one)  # fmt: skip
rule("reduction", "logsumexp", "f", "=", f"fb.logsumexp{_AXIS}", "np.log(np.sum(np.exp({0}), axis={axis}, keepdims={keepdims}))",
     f"torch.logsumexp{_DIM}", draw=reduced)  # fmt: skip
rule("reduction", "norm", "f", "=", f"fb.linalg.vector_norm{_AXIS}",
     "np.sqrt(np.sum(np.square({0}), axis={axis}, keepdims={keepdims}))", f"torch.linalg.vector_norm{_DIM}", draw=reduced)  # fmt: skip
rule("reduction", "norm1", "f", "=", "fb.linalg.vector_norm({0}, axis={axis}, keepdims={keepdims}, ord=1)",
     "np.sum(np.abs({0}), axis={axis}, keepdims={keepdims})", "torch.sum(torch.abs({0}), dim={dim}, keepdim={keepdims})",
     draw=reduced, weight=0.5)  # fmt: skip
rule("reduction", "ptp", "f", "=", f"fb.ptp{_AXIS}", "", "torch.amax{t} - torch.amin{t}".replace("{t}", _DIM), draw=reduced, weight=0.4)
rule("reduction", "sum_of_squares", "f", "=", "fb.sum({0} * {0}, axis={axis}, keepdims={keepdims})", "",
     "torch.sum({0} * {0}, dim={dim}, keepdim={keepdims})", draw=reduced)  # fmt: skip
rule("test", "any", "b", "b", f"fb.any{_AXIS}", "", f"torch.any{_DIM}", draw=reduced)
rule("test", "all", "b", "b", f"fb.all{_AXIS}", "", f"torch.all{_DIM}", draw=reduced)
rule("test", "any_greater", "f", "b", "fb.any({0} > 1.0, axis={axis}, keepdims={keepdims})", "",
     "torch.any({0} > 1.0, dim={dim}, keepdim={keepdims})", draw=reduced)  # fmt: skip
rule("test", "count_nonzero", "b", "i", f"fb.count_nonzero{_AXIS}", "", f"torch.sum{_DIM}", draw=reduced)
for name in ("argmax", "argmin"):
    rule("test", name, "f", "i", f"fb.{name}{_AXIS}", "", f"torch.{name}({{0}}, dim={{axis}}, keepdim={{keepdims}})",
         draw=reduced_along_one)  # fmt: skip

# along an axis

rule("along", "softmax", "f", "=", "fb.softmax({0}, axis={axis})", "np.exp({0}) / np.sum(np.exp({0}), axis={axis}, keepdims=True)",
     "torch.softmax({0}, dim={axis})", draw=one_axis, weight=2.0, slack="e({0})")  # fmt: skip
rule("along", "log_softmax", "f", "=", "fb.log_softmax({0}, axis={axis})",
     "{0} - np.log(np.sum(np.exp({0}), axis={axis}, keepdims=True))", "torch.log_softmax({0}, dim={axis})", draw=one_axis, slack="e(1.0 + np.abs({0}))")  # fmt: skip
rule("along", "cumulative_sum", "f", "=", "fb.cumulative_sum({0}, axis={axis})", "np.cumsum({0}, axis={axis})",
     "torch.cumsum({0}, dim={axis})", draw=one_axis)  # fmt: skip
rule("along", "cumulative_prod", "f", "=", "fb.cumulative_prod({0}, axis={axis})", "np.cumprod({0}, axis={axis})",
     "torch.cumprod({0}, dim={axis})", draw=one_axis, weight=0.4)  # fmt: skip
rule("along", "cummax", "f", "=", "fb.cummax({0}, axis={axis})[0]", "np.maximum.accumulate({0}, axis={axis})",
     "torch.cummax({0}, dim={axis})[0]", draw=one_axis, weight=0.5)  # fmt: skip
rule("along", "sort", "f", "=", "fb.sort({0}, axis={axis})", "np.sort({0}, axis={axis})", "torch.sort({0}, dim={axis})[0]",
     draw=one_axis, weight=0.5)  # fmt: skip
rule("along", "diff", "f", "=", "fb.diff({0}, axis={axis})", "np.diff({0}, axis={axis})", "torch.diff({0}, dim={axis})",
     draw=lambda d, s: (p := one_axis(d, s)) and (p if s[0][p["axis"]] > 1 else None), weight=0.4)  # fmt: skip
_CENTRED = "({0} - np.mean({0}, axis=-1, keepdims=True))"
rule("along", "layer_norm", "f", "=", "fb.layer_norm({0})",
     f"{_CENTRED} / np.sqrt(np.mean({_CENTRED} ** 2, axis=-1, keepdims=True) + 1e-05)",
     "torch.nn.functional.layer_norm({0}, {0}.shape[-1:])", draw=one_axis, slack="e({0}) / stop(np.sqrt(np.mean(np.square({0} - np.mean({0}, axis=-1, keepdims=True)), axis=-1, keepdims=True) + 1e-05))")  # fmt: skip
rule("along", "rms_norm", "f", "=", "fb.rms_norm({0}, eps=0.001)",
     "{0} / np.sqrt(np.mean(np.square({0}), axis=-1, keepdims=True) + 0.001)",
     "{0} / torch.sqrt(torch.mean(torch.square({0}), dim=-1, keepdim=True) + 0.001)", draw=one_axis, slack="e({0}) / stop(np.sqrt(np.mean(np.square({0}), axis=-1, keepdims=True) + 0.001))")  # fmt: skip


def _channels(d: Random, shapes: list[Shape]) -> Params | None:
    s = shapes[0]
    if len(s) < 2 or prod(s) // s[1] < 2:
        return None
    return {"axis": tuple(k for k in range(len(s)) if k != 1)}


rule("along", "batch_norm", "f", "=", "fb.batch_norm({0})",
     "({0} - np.mean({0}, axis={axis}, keepdims=True)) / np.sqrt(np.var({0}, axis={axis}, keepdims=True) + 1e-05)",
     "torch.nn.functional.batch_norm({0}, None, None, training=True)", draw=_channels, slack="e({0}) / stop(np.sqrt(np.mean(np.square({0} - np.mean({0}, axis={axis}, keepdims=True)), axis={axis}, keepdims=True) + 1e-05))")  # fmt: skip

# movement


def _permutation(d: Random, shapes: list[Shape]) -> Params | None:
    axes = list(range(len(shapes[0])))
    d.shuffle(axes)
    return {"axes": tuple(axes)} if len(axes) > 1 else None


def _two_axes(d: Random, shapes: list[Shape]) -> Params | None:
    n = len(shapes[0])
    return dict(zip(("p", "q"), d.sample(range(n), 2), strict=True)) if n > 1 else None


def _reshape(d: Random, shapes: list[Shape]) -> Params | None:
    """Two axes merged, one split, ones put in or taken out, or all in a row."""
    s = list(shapes[0])
    for _ in range(d.randint(1, 2)):
        way = d.randrange(4)
        if way == 0 and len(s) > 1:
            k = d.randrange(len(s) - 1)
            s[k : k + 2] = [s[k] * s[k + 1]]
        elif way == 1 and s:
            k = d.randrange(len(s))
            parts = [p for p in (2, 3, 4, 5, 7, 8, 11, 16, 32) if s[k] % p == 0 and s[k] > p]
            if parts:
                p = d.choice(parts)
                s[k : k + 1] = d.choice([[p, s[k] // p], [s[k] // p, p]])
        elif way == 2:
            s.insert(d.randint(0, len(s)), 1)
        elif 1 in s:
            s.remove(1)
    return {"shape": tuple(s)} if tuple(s) != shapes[0] and len(s) <= 5 else None


def _broadcast(d: Random, shapes: list[Shape]) -> Params | None:
    """Ones become another axis' size, or axes come in front."""
    s = list(shapes[0])
    sizes = [n for n in s if n > 1] or [d.choice([1, 2, 5])]
    for k, n in enumerate(s):
        if n == 1 and d.random() < 0.7:
            s[k] = d.choice(sizes)
    if len(s) < 4 and d.random() < 0.5:
        s.insert(0, d.choice([*sizes, 1]))
    return {"shape": tuple(s)}


def _index(d: Random, shapes: list[Shape]) -> Params | None:
    """A basic index: ints, slices with steps of either sign, new axes and an ellipsis."""
    if not shapes[0]:
        return {"index": d.choice(["None", "..., None"])}
    parts = []
    for n in shapes[0][: d.randint(1, len(shapes[0]))]:
        parts.append(
            d.choice([":", ":", "::-1", "::2", "1:" if n > 1 else ":", ":-1" if n > 1 else ":", f"{d.randrange(-n, n)}", "::-2"])
        )
    if d.random() < 0.3:
        parts.insert(d.randint(0, len(parts)), "None")
    if d.random() < 0.2:
        parts.append("...")
    return {"index": ", ".join(parts)}


def _pad(d: Random, shapes: list[Shape]) -> Params | None:
    widths = tuple((d.randint(0, 1), d.randint(0, 2)) for _ in shapes[0])
    return {"widths": widths, "reversed": tuple(w for pair in reversed(widths) for w in pair)} if widths else None


def _squeeze(d: Random, shapes: list[Shape]) -> Params | None:
    ones = [k for k, n in enumerate(shapes[0]) if n == 1]
    return {"axis": d.choice(ones)} if ones else None


def _part(d: Random, shapes: list[Shape]) -> Params | None:
    """One of the parts that an axis is cut into."""
    found = one_axis(d, shapes)
    if found is None:
        return None
    n = shapes[0][found["axis"]]
    k = d.randint(1, min(3, n))
    return {**found, "sections": k, "part": d.randrange(k)}


def _same_but_one(d: Random, shapes: list[Shape]) -> Params | None:
    found = one_axis(d, shapes)
    return found if shapes[0] == shapes[1] else None


rule("movement", "permute", "a", "=", "fb.permute_dims({0}, {axes})", "np.transpose({0}, {axes})", "torch.permute({0}, {axes})",
     draw=_permutation, weight=2.0)  # fmt: skip
rule("movement", "swapaxes", "a", "=", "fb.swapaxes({0}, {p}, {q})", draw=_two_axes)
rule("movement", "transpose", "a", "=", "{0}.T", draw=lambda d, s: {} if len(s[0]) == 2 else None, weight=2.0)
rule("movement", "reshape", "a", "=", "fb.reshape({0}, {shape})", draw=_reshape, weight=2.0)
rule("movement", "broadcast_to", "a", "=", "fb.broadcast_to({0}, {shape})", draw=_broadcast, weight=1.5)
rule("movement", "expand_dims", "a", "=", "fb.expand_dims({0}, axis={axis})", "np.expand_dims({0}, axis={axis})",
     "torch.unsqueeze({0}, {axis})", draw=lambda d, s: {"axis": d.randint(0, len(s[0]))} if len(s[0]) < 4 else None)  # fmt: skip
rule("movement", "squeeze", "a", "=", "fb.squeeze({0}, axis={axis})", "np.squeeze({0}, axis={axis})", "torch.squeeze({0}, {axis})",
     draw=_squeeze)  # fmt: skip
rule("movement", "flip", "a", "=", "fb.flip({0}, axis={axis})", "np.flip({0}, axis={axis})", "torch.flip({0}, ({axis},))",
     draw=one_axis)  # fmt: skip
# torch has no steps below 0: NumPy says which elements are taken
rule("movement", "index", "a", "=", "{0}[{index}]", "{0}[{index}]",
     "{0}.reshape(-1)[torch.asarray(np.array(np.arange({0}.numel()).reshape({0}.shape)[{index}]))]", draw=_index, weight=3.0)  # fmt: skip
rule("movement", "pad", "f", "=", "fb.pad({0}, {widths})", "np.pad({0}, {widths})", "torch.nn.functional.pad({0}, {reversed})",
     draw=_pad, weight=0.7)  # fmt: skip
rule("movement", "roll", "a", "=", "fb.roll({0}, 1, axis={axis})", "np.roll({0}, 1, axis={axis})", "torch.roll({0}, 1, {axis})",
     draw=one_axis, weight=0.7)  # fmt: skip
rule("movement", "tile", "a", "=", "fb.tile({0}, {repetitions})",
     draw=lambda d, s: {"repetitions": tuple(d.randint(1, 2) for _ in s[0])} if s[0] else None, weight=0.5)  # fmt: skip
rule("movement", "repeat", "a", "=", "fb.repeat({0}, 2, axis={axis})", "np.repeat({0}, 2, axis={axis})",
     "torch.repeat_interleave({0}, 2, dim={axis})", draw=one_axis, weight=0.5)  # fmt: skip
rule("movement", "concat", "ff", "f", "fb.concat([{0}, {1}], axis={axis})", "np.concatenate([{0}, {1}], axis={axis})",
     "torch.cat([{0}, {1}], dim={axis})", draw=_same_but_one, joined="equal")  # fmt: skip
rule("movement", "stack", "ff", "f", "fb.stack([{0}, {1}], axis={axis})", "", "torch.stack([{0}, {1}], dim={axis})", joined="equal",
     draw=lambda d, s: {"axis": d.randint(0, len(s[0]))} if s[0] == s[1] and len(s[0]) < 4 else None)  # fmt: skip
rule("movement", "split", "a", "=", "fb.array_split({0}, {sections}, axis={axis})[{part}]", "",
     "torch.tensor_split({0}, {sections}, dim={axis})[{part}]", draw=_part)  # fmt: skip
rule("movement", "unstack", "a", "=", "fb.unstack({0}, axis={axis})[{part}]", "np.take({0}, {part}, axis={axis})",
     "torch.unbind({0}, dim={axis})[{part}]", weight=0.7,
     draw=lambda d, s: (p := one_axis(d, s)) and {**p, "part": d.randrange(s[0][p["axis"]])})  # fmt: skip
for name in ("tril", "triu"):
    rule("movement", name, "f", "=", f"fb.{name}({{0}}, k={{k}})", "", f"torch.{name}({{0}}, diagonal={{k}})", weight=0.5,
         draw=lambda d, s: {"k": d.randint(-1, 1)} if len(s[0]) > 1 else None)  # fmt: skip
rule("movement", "diagonal", "f", "=", "fb.diagonal({0}, axis1={p}, axis2={q})", "",
     "torch.diagonal({0}, dim1={p}, dim2={q})", draw=_two_axes, weight=0.7)  # fmt: skip


def _taken(d: Random, shapes: list[Shape]) -> Params | None:
    found = one_axis(d, shapes)
    return found and {**found, "n": shapes[0][found["axis"]]} if len(shapes[1]) == 1 else None


rule("gather", "take", "fi", "=", "fb.take({0}, {1} % {n}, axis={axis})", "np.take({0}, {1} % {n}, axis={axis})",
     "torch.index_select({0}, {axis}, {1} % {n})", draw=_taken)  # fmt: skip
rule("gather", "take_rows", "fi", "=", "{0}[{1} % {n}]", draw=lambda d, s: {"n": s[0][0]} if s[0] and len(s[1]) < 3 else None)
rule("gather", "take_along_axis", "ff", "=", "fb.take_along_axis({0}, fb.argsort({1}, axis={axis}), axis={axis})", "",
     "torch.take_along_dim({0}, torch.argsort({1}, dim={axis}, stable=True), dim={axis})", draw=_same_but_one, joined="equal")  # fmt: skip
rule("gather", "rows_and_columns", "fi", "=", "{0}[fb.arange({k}), {1} % {n}]", "{0}[np.arange({k}), {1} % {n}]",
     draw=lambda d, s: {"n": s[0][1], "k": s[1][0]} if len(s[0]) > 1 and len(s[1]) == 1 and s[1][0] <= s[0][0] else None)  # fmt: skip
rule("gather", "index_add", "fif", "=", "fb.index_add({0}, {1} % {n}, {2}, axis=0)",
     "(lambda y: (np.add.at(y, {1} % {n}, {2}), y)[1])(np.array({0}))", "torch.index_add({0}, 0, {1} % {n}, {2})",
     draw=lambda d, s: {"n": s[0][0]} if len(s[1]) == 1 and s[0] and s[2] == (*s[1], *s[0][1:]) else None)  # fmt: skip
rule("gather", "one_hot", "i", "float32", "fb.one_hot({0} % {n}, {n})", "np.eye({n})[{0} % {n}]",
     draw=lambda d, s: {"n": max([1, *s[0]])} if len(s[0]) < 3 else None)  # fmt: skip

# products


def _multiply(a: Shape, b: Shape) -> Params | None:
    """No parameters, if ``a @ b`` has a meaning."""
    if not a or not b or a[-1] != (b[-2] if len(b) > 1 else b[0]):
        return None
    ones = all(1 in (p, q) or p == q for p, q in zip(a[-3::-1], b[-3::-1], strict=False))
    return {} if ones else None


def _turned(s: Shape) -> Shape:
    return (*s[:-2], s[-1], s[-2])


def _einsum(d: Random, shapes: list[Shape]) -> Params | None:
    """Letters by size, so that axes meet any axis of their size; no letter twice in an operand."""
    if any(len(s) > 3 for s in shapes) or not any(shapes):
        return None
    known: list[tuple[str, int]] = []
    words = []
    for s in shapes:
        word = ""
        for n in s:
            fits = [c for c, size in known if size == n and c not in word]
            if fits and d.random() < 0.75:
                word += d.choice(fits)
            else:
                known.append(("ijklmn"[len(known)], n))
                word += known[-1][0]
        words.append(word)
    letters = [c for c, _ in known]
    d.shuffle(letters)
    kept = [c for c in letters if d.random() < 0.5][:4]
    return {"subscripts": f"{','.join(words)}->{''.join(kept)}"}


rule("product", "matmul", "ff", "f", "{0} @ {1}", draw=lambda d, s: _multiply(*s), weight=3.0)
rule("product", "matmul_right", "ff", "f", "{0} @ fb.matrix_transpose({1})", "{0} @ np.matrix_transpose({1})", "{0} @ {1}.mT",
     draw=lambda d, s: _multiply(s[0], _turned(s[1])) if len(s[1]) > 1 else None, weight=2.0)  # fmt: skip
rule("product", "matmul_left", "ff", "f", "{0}.T @ {1}",
     draw=lambda d, s: _multiply(_turned(s[0]), s[1]) if len(s[0]) == 2 else None)  # fmt: skip
rule("product", "einsum", "ff", "f", "fb.einsum({subscripts!r}, {0}, {1})", draw=_einsum, weight=2.0)
rule("product", "einsum_one", "f", "=", "fb.einsum({subscripts!r}, {0})", draw=_einsum)
rule("product", "vecdot", "ff", "f", "fb.vecdot({0}, {1}, axis=-1)", "np.sum({0} * {1}, axis=-1)", "torch.sum({0} * {1}, dim=-1)",
     draw=lambda d, s: {} if s[0] and s[0] == s[1] else None, joined="equal")  # fmt: skip
rule("product", "outer", "ff", "f", "fb.outer({0}, {1})", draw=lambda d, s: {} if len(s[0]) == len(s[1]) == 1 else None)
rule("product", "attention", "fff", "f", "fb.scaled_dot_product_attention({0}, {1}, {2}, causal={causal})",
     "(lambda e: (e / np.sum(e, axis=-1, keepdims=True)) @ {2})(np.exp({0} @ np.matrix_transpose({1}) / np.sqrt({0}.shape[-1]))"
     " * (np.tri({0}.shape[-2], {1}.shape[-2]) if {causal} else 1.0))",
     "torch.softmax(({0} @ {1}.mT / {0}.shape[-1] ** 0.5).masked_fill("
     "(torch.ones({0}.shape[-2], {1}.shape[-2]).tril() == 0) & {causal}, -torch.inf), dim=-1) @ {2}",
     draw=lambda d, s: {"causal": d.random() < 0.4} if len(s[0]) > 1 and s[0] == s[1] == s[2] else None, joined="equal", slack="e({0}) + e({1})")  # fmt: skip


def _convolution(d: Random, shapes: list[Shape], n: int) -> Params | None:
    x, w = shapes
    if len(x) != n + 2 or len(w) != n + 2 or x[1] != w[1] or any(a < b for a, b in zip(x[2:], w[2:], strict=True)):
        return None
    return {"k": w[2:], "s": tuple(a - b + 1 for a, b in zip(x[2:], w[2:], strict=True))}


rule("product", "conv1d", "ff", "f", "fb.conv1d({0}, {1})",
     "sum(np.einsum('bcl,oc->bol', {0}[:, :, p : p + {s[0]}], {1}[:, :, p]) for p in range({k[0]}))",
     "torch.nn.functional.conv1d({0}, {1})", draw=lambda d, s: _convolution(d, s, 1), weight=1.5)  # fmt: skip
rule("product", "conv2d", "ff", "f", "fb.conv2d({0}, {1})",
     "sum(np.einsum('bchw,oc->bohw', {0}[:, :, p : p + {s[0]}, q : q + {s[1]}], {1}[:, :, p, q]) "
     "for p in range({k[0]}) for q in range({k[1]}))",
     "torch.nn.functional.conv2d({0}, {1})", draw=lambda d, s: _convolution(d, s, 2), weight=1.5)  # fmt: skip

# losses and distances

rule("loss", "mse_loss", "ff", "f", "fb.mse_loss({0}, {1})", "np.mean(np.square({0} - {1}))", joined="equal")
rule("loss", "huber_loss", "ff", "f", "fb.huber_loss({0}, {1})",
     "np.mean(np.where(np.abs({0} - {1}) < 1, 0.5 * ({0} - {1}) ** 2, np.abs({0} - {1}) - 0.5))",
     "torch.nn.functional.huber_loss({0}, {1})", joined="equal")  # fmt: skip
rule("loss", "bce_with_logits", "ff", "f", "fb.binary_cross_entropy_with_logits({0}, {1})",
     "np.mean(np.logaddexp({0}, 0) - {0} * {1})", "torch.nn.functional.binary_cross_entropy_with_logits({0}, {1})",
     joined="equal", slack="np.mean(e({0}) + e({0} * {1}))")  # fmt: skip
rule("loss", "cross_entropy", "fi", "f", "fb.cross_entropy({0}, {1} % {n})",
     "np.mean(np.log(np.sum(np.exp({0}), axis=1)) - {0}[np.arange({0}.shape[0]), {1} % {n}])",
     "torch.nn.functional.cross_entropy({0}, {1} % {n})",
     draw=lambda d, s: {"n": s[0][1]} if len(s[0]) == 2 and s[1] == s[0][:1] else None, weight=1.5, slack="np.sum(e(1.0 + np.abs({0}))) / {0}.shape[0]")  # fmt: skip
rule("loss", "cosine_similarity", "ff", "f", "fb.cosine_similarity({0}, {1}, axis={axis})",
     "np.sum({0} * {1}, axis={axis}) / np.sqrt(np.sum({0} ** 2, axis={axis}) * np.sum({1} ** 2, axis={axis}))",
     "torch.nn.functional.cosine_similarity({0}, {1}, dim={axis})", draw=_same_but_one, joined="equal", slack="np.sum(e({0}) / stop(np.sqrt(np.sum({0} ** 2, axis={axis}, keepdims=True)))"
     " + e({1}) / stop(np.sqrt(np.sum({1} ** 2, axis={axis}, keepdims=True))), axis={axis})")  # fmt: skip
rule("loss", "triplet", "fff", "f", "fb.triplet_margin_loss({0}, {1}, {2})",
     "np.mean(np.maximum(np.sqrt(np.sum(({0} - {1} + 1e-06) ** 2, axis=-1)) - np.sqrt(np.sum(({0} - {2} + 1e-06) ** 2, axis=-1)) + 1, 0))",
     "torch.nn.functional.triplet_margin_loss({0}, {1}, {2})", joined="equal", weight=0.7,
     draw=lambda d, s: {} if len(s[0]) == 2 and s[0] == s[1] == s[2] else None)  # fmt: skip
