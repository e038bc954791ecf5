"""Rules that reduce axes, or work along one: sums and extremes, softmax, cumulative results, normalisations, losses."""

from __future__ import annotations

from math import prod
from random import Random

from differential.rule import Params, Shape, one_axis, reduced, reduced_along_one, rule, same_but_one

_AXIS, _DIM = "({0}, axis={axis}, keepdims={keepdims})", "({0}, dim={dim}, keepdim={keepdims})"


def _reduction(name: str, fb: str, numpy: str = "", torch: str = "", **more: object) -> None:
    rule("reduction", name, "f", "=", fb, numpy, torch, **{"draw": reduced, **more})


def _corrected(d: Random, shapes: list[Shape]) -> Params | None:
    """A reduction along one axis with a correction that its size allows."""
    found = reduced_along_one(d, shapes)
    if found is not None:
        found["correction"] = d.choice([0, 1]) if shapes[0][found["axis"]] > 1 else 0
    return found


for name, torch_name, weight in (("sum", "sum", 3), ("mean", "mean", 2), ("max", "amax", 2), ("min", "amin", 1)):
    _reduction(name, f"fb.{name}{_AXIS}", "", f"torch.{torch_name}{_DIM}", weight=weight)
_reduction(
    "complex_sum",
    "fb.astype(fb.real(fb.sum(fb.complex({0}, fb.sin({0})), axis={axis}, keepdims={keepdims})), {0}.dtype)",
    "np.sum({0}, axis={axis}, keepdims={keepdims})",
    "torch.sum({0}, dim={dim}, keepdim={keepdims})",
    weight=0.7,
)
_reduction("prod", f"fb.prod{_AXIS}", "", "torch.prod({0}, dim={axis}, keepdim={keepdims})", weight=0.5, draw=reduced_along_one)
_reduction("var", f"fb.var{_AXIS}", "", "torch.var({0}, dim={dim}, keepdim={keepdims}, correction=0)")
_reduction(
    "std",
    "fb.std({0} * 2.0, axis={axis}, keepdims={keepdims}, correction={correction})",
    "np.std({0} * 2.0, axis={axis}, keepdims={keepdims}, ddof={correction})",
    "torch.std({0} * 2.0, dim={dim}, keepdim={keepdims}, correction={correction})",
    draw=_corrected,
)
_reduction(
    "logsumexp",
    f"fb.logsumexp{_AXIS}",
    "np.max({0}) + np.log(np.sum(np.exp({0} - np.max({0})), axis={axis}, keepdims={keepdims}))",
    f"torch.logsumexp{_DIM}",
    slack="np.mean(e(1.0 + np.abs({0})), axis={dim}, keepdims={keepdims})",
)
_reduction(
    "norm",
    f"fb.linalg.vector_norm{_AXIS}",
    "np.sqrt(np.sum(np.square({0}), axis={axis}, keepdims={keepdims}))",
    f"torch.linalg.vector_norm{_DIM}",
)
_reduction(
    "norm1",
    "fb.linalg.vector_norm({0}, axis={axis}, keepdims={keepdims}, ord=1)",
    "np.sum(np.abs({0}), axis={axis}, keepdims={keepdims})",
    "torch.sum(torch.abs({0}), dim={dim}, keepdim={keepdims})",
    weight=0.5,
)
_reduction("ptp", f"fb.ptp{_AXIS}", "", f"torch.amax{_DIM} - torch.amin{_DIM}", weight=0.4)
_reduction(
    "sum_of_squares",
    "fb.sum({0} * {0}, axis={axis}, keepdims={keepdims})",
    "",
    "torch.sum({0} * {0}, dim={dim}, keepdim={keepdims})",
)

for name in ("any", "all"):
    rule("test", name, "b", "b", f"fb.{name}{_AXIS}", "", f"torch.{name}{_DIM}", draw=reduced)
rule(
    "test",
    "any_greater",
    "f",
    "b",
    "fb.any({0} > 1.0, axis={axis}, keepdims={keepdims})",
    "",
    "torch.any({0} > 1.0, dim={dim}, keepdim={keepdims})",
    draw=reduced,
)
rule("test", "count_nonzero", "b", "i", f"fb.count_nonzero{_AXIS}", "", f"torch.sum{_DIM}", draw=reduced)
for name in ("argmax", "argmin"):
    text = f"torch.{name}({{0}}, dim={{axis}}, keepdim={{keepdims}})"
    rule("test", name, "f", "i", f"fb.{name}{_AXIS}", "", text, draw=reduced_along_one)


# along an axis


def _along(name: str, fb: str, numpy: str = "", torch: str = "", **more: object) -> None:
    rule("along", name, "f", "=", fb, numpy, torch, **{"draw": one_axis, **more})


_along(
    "softmax",
    "fb.softmax({0}, axis={axis})",
    "np.exp({0}) / np.sum(np.exp({0}), axis={axis}, keepdims=True)",
    "torch.softmax({0}, dim={axis})",
    weight=2.0,
    slack="d({0})",
)
_along(
    "log_softmax",
    "fb.log_softmax({0}, axis={axis})",
    "({0} - np.max({0})) - np.log(np.sum(np.exp({0} - np.max({0})), axis={axis}, keepdims=True))",
    "torch.log_softmax({0}, dim={axis})",
    slack="e(1.0 + np.abs({0}))",
)
for name, numpy_name, torch_name, weight in (
    ("cumulative_sum", "cumsum", "cumsum", 1.0),
    ("cumulative_prod", "cumprod", "cumprod", 0.4),
):
    _along(
        name,
        f"fb.{name}({{0}}, axis={{axis}})",
        f"np.{numpy_name}({{0}}, axis={{axis}})",
        f"torch.{torch_name}({{0}}, dim={{axis}})",
        weight=weight,
    )
_along(
    "cumulative_logsumexp",
    "fb.cumulative_logsumexp({0}, axis={axis})",
    "np.logaddexp.accumulate({0}, axis={axis})",
    "torch.logcumsumexp({0}, dim={axis})",
    slack="e(1.0 + np.abs({0}))",
)
_along(
    "cummax",
    "fb.cummax({0}, axis={axis})[0]",
    "np.maximum.accumulate({0}, axis={axis})",
    "torch.cummax({0}, dim={axis})[0]",
    weight=0.5,
)
_along("sort", "fb.sort({0}, axis={axis})", "", "torch.sort({0}, dim={axis})[0]", weight=0.5)


def _differences(d: Random, shapes: list[Shape]) -> Params | None:
    found = one_axis(d, shapes)
    return found if found and shapes[0][found["axis"]] > 1 else None


_along("diff", "fb.diff({0}, axis={axis})", "", "torch.diff({0}, dim={axis})", draw=_differences, weight=0.4)
_CENTRED = "({0} - np.mean({0}, axis={axis}, keepdims=True))"
_DEVIATION = f"np.sqrt(np.mean(np.square({_CENTRED}), axis={{axis}}, keepdims=True) + 1e-05)"
_along(
    "layer_norm",
    "fb.layer_norm({0})",
    f"{_CENTRED} / {_DEVIATION}",
    "torch.nn.functional.layer_norm({0}, {0}.shape[-1:])",
    draw=lambda d, s: {"axis": -1} if s[0] else None,
    slack=f"e({{0}}) / stop({_DEVIATION})",
)
_SIZE = "np.sqrt(np.mean(np.square({0}), axis=-1, keepdims=True) + 0.001)"
_along("rms_norm", "fb.rms_norm({0}, eps=0.001)", f"{{0}} / {_SIZE}", slack=f"e({{0}}) / stop({_SIZE})")


def _channels(d: Random, shapes: list[Shape]) -> Params | None:
    """All axes but the one of channels, with more than one value a channel."""
    s = shapes[0]
    return {"axis": tuple(k for k in range(len(s)) if k != 1)} if prod(s) > s[1] else None


_along(
    "batch_norm",
    "fb.batch_norm({0})",
    f"{_CENTRED} / {_DEVIATION}",
    "torch.nn.functional.batch_norm({0}, None, None, training=True)",
    ranks=(2, 3, 4),
    draw=_channels,
    slack=f"e({{0}}) / stop({_DEVIATION})",
)


# losses and distances


def _loss(name: str, fb: str, numpy: str, torch: str = "", kinds: str = "ff", **more: object) -> None:
    rule("loss", name, kinds, "f", fb, numpy, torch, **{"joined": "equal", **more})


_loss("mse_loss", "fb.mse_loss({0}, {1})", "np.mean(np.square({0} - {1}))")
_loss(
    "huber_loss",
    "fb.huber_loss({0}, {1})",
    "np.mean(np.where(np.abs({0} - {1}) < 1, 0.5 * ({0} - {1}) ** 2, np.abs({0} - {1}) - 0.5))",
)
_loss(
    "bce_with_logits",
    "fb.binary_cross_entropy_with_logits({0}, fb.sigmoid({1}))",
    "np.mean(np.logaddexp({0}, 0) - {0} / (1 + np.exp(-{1})))",
    "torch.nn.functional.binary_cross_entropy_with_logits({0}, torch.sigmoid({1}))",
    slack="np.mean(e({0}) + e({0} * {1}))",
)
_loss(
    "cross_entropy",
    "fb.cross_entropy({0}, {1} % {n})",
    "np.mean(np.log(np.sum(np.exp({0}), axis=1)) - {0}[np.arange({0}.shape[0]), {1} % {n}])",
    "torch.nn.functional.cross_entropy({0}, {1} % {n})",
    kinds="fi",
    joined="",
    ranks=(2,),
    draw=lambda d, s: {"n": s[0][1]} if s[1] == s[0][:1] else None,
    others=lambda d, s, sizes: [s[:1]],
    slack="np.sum(e(1.0 + np.abs({0}))) / {0}.shape[0]",
    weight=1.5,
)
_LENGTHS = [f"np.sqrt(np.sum({x} ** 2, axis={{axis}}, keepdims=True))" for x in ("{0}", "{1}")]
_loss(
    "cosine_similarity",
    "fb.cosine_similarity({0}, {1}, axis={axis})",
    "np.sum({0} * {1}, axis={axis}) / np.sqrt(np.sum({0} ** 2, axis={axis}) * np.sum({1} ** 2, axis={axis}))",
    "torch.nn.functional.cosine_similarity({0}, {1}, dim={axis})",
    draw=same_but_one,
    slack=f"np.sum(e({{0}}) / stop({_LENGTHS[0]}) + e({{1}}) / stop({_LENGTHS[1]}), axis={{axis}})",
)
_DISTANCES = [f"np.sqrt(np.sum(({{0}} - {x} + 1e-06) ** 2, axis=-1))" for x in ("{1}", "{2}")]
_loss(
    "triplet",
    "fb.triplet_margin_loss({0}, {1}, {2})",
    f"np.mean(np.maximum({_DISTANCES[0]} - {_DISTANCES[1]} + 1, 0))",
    "torch.nn.functional.triplet_margin_loss({0}, {1}, {2})",
    kinds="fff",
    ranks=(2,),
    draw=lambda d, s: {} if len(set(s)) == 1 else None,
    weight=0.7,
)
