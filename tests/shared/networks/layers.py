"""The layers of random networks: for each, how to draw one that takes a given shape, as texts for Firebrick and for torch.

A rule gets the random choices, the shape of x (batch first) and whether the network trains; it returns texts or None where none
fits. Sizes come from ``Choices.size``, which mostly returns the few sizes of the network, so that axes coincide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from random import Random

Shape = tuple[int, ...]
Texts = tuple[str, str]


@dataclass
class Choices:
    """The random choices of a network: the source, and the sizes that its axes have."""

    d: Random
    sizes: list[int]

    def size(self) -> int:
        return self.d.choice(self.sizes)

    def divisor(self, n: int) -> int:
        return self.d.choice([k for k in range(1, n + 1) if n % k == 0])


Rule = Callable[[Choices, Shape, bool], "Texts | str | None"]
LAYERS: dict[str, tuple[tuple[int, ...], float, Rule]] = {}  # name → the ranks it takes, its weight, the rule


def rule(name: str, ranks: tuple[int, ...], weight: float = 1.0) -> Callable[[Rule], Rule]:
    def register(fn: Rule) -> Rule:
        LAYERS[name] = (ranks, weight, fn)
        return fn

    return register


def settings(**values: object) -> str:
    """The texts of settings that differ from None."""
    return "".join(f", {n}={v!r}" for n, v in values.items() if v is not None)


ANY = (2, 3, 4, 5)

# activations

for _name in (
    "CELU", "ELU", "GELU", "Hardshrink", "Hardswish", "Hardtanh", "Identity", "LeakyReLU", "LogSigmoid", "Mish",
    "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
):  # fmt: skip
    LAYERS[_name] = (ANY, 0.35, lambda c, s, t, n=_name: f"nn.{n}()")
LAYERS["Hardsigmoid"] = (ANY, 0.35, lambda c, s, t: ("nn.Hardsigmoid()", "Hardsigmoid()"))  # torch's has a sixth in float32
LAYERS["Threshold"] = (ANY, 0.2, lambda c, s, t: "nn.Threshold(0.1, -1.0)")


@rule("Softmax", ANY, 0.5)
@rule("LogSoftmax", ANY, 0.5)
def _softmax(c: Choices, s: Shape, training: bool) -> Texts:
    name, axis = c.d.choice(["Softmax", "LogSoftmax"]), c.d.randrange(1, len(s))
    return f"nn.{name}({axis})", f"nn.{name}({axis})"


@rule("GLU", ANY, 0.5)
def _glu(c: Choices, s: Shape, training: bool) -> str | None:
    axes = [k for k in range(1, len(s)) if s[k] % 2 == 0]
    return f"nn.GLU({c.d.choice(axes)})" if axes else None


@rule("PReLU", ANY, 0.5)
def _prelu(c: Choices, s: Shape, training: bool) -> str:
    return f"nn.PReLU({c.d.choice([1, s[1]])})"


# products


@rule("Linear", ANY, 5)
def _linear(c: Choices, s: Shape, training: bool) -> str:
    return f"nn.Linear({s[-1]}, {c.size()}{settings(bias=c.d.choice([None, None, False]))})"


@rule("Bilinear", (2, 3))
def _bilinear(c: Choices, s: Shape, training: bool) -> str:
    return f"Squared(nn.Bilinear({s[-1]}, {s[-1]}, {c.size()}))"


@rule("SwiGLU", (2, 3), 0.7)
def _swiglu(c: Choices, s: Shape, training: bool) -> Texts:
    sizes = f"{s[-1]}, {c.size()}, {c.size()}"
    return f"nn.SwiGLU({sizes})", f"SwiGLU({sizes})"


@rule("WeightNorm", (2, 3), 0.7)
def _weight_norm(c: Choices, s: Shape, training: bool) -> Texts:
    inner = f"nn.Linear({s[-1]}, {c.size()})"
    return f"nn.WeightNorm({inner})", f"weight_norm({inner})"


@rule("Conv", (3, 4, 5), 4)
def _conv(c: Choices, s: Shape, training: bool) -> str | None:
    n, out = len(s) - 2, c.size()
    groups = c.d.choice([k for k in range(1, s[1] + 1) if s[1] % k == 0 and out % k == 0] + [1])
    kernel, padding = c.d.choice([1, 2, 3]), c.d.choice([0, 0, 1])
    dilation, stride = c.d.choice([1, 1, 1, 2]), c.d.choice([1, 1, 2])
    if any(k + 2 * padding < dilation * (kernel - 1) + 1 for k in s[2:]):
        return None
    return (
        f"nn.Conv{n}d({s[1]}, {out}, {kernel}, {stride}, {padding}"
        f"{settings(dilation=dilation, groups=groups, bias=c.d.choice([None, False]))})"
    )


@rule("ConvTranspose", (3, 4, 5), 2)
def _conv_transpose(c: Choices, s: Shape, training: bool) -> str | None:
    n, out = len(s) - 2, c.size()
    groups = c.d.choice([k for k in range(1, s[1] + 1) if s[1] % k == 0 and out % k == 0] + [1])
    kernel, stride, padding = c.d.choice([1, 2, 3]), c.d.choice([1, 2]), c.d.choice([0, 0, 1])
    extra = c.d.choice([0, stride - 1])
    if any((k - 1) * stride - 2 * padding + kernel + extra < 1 or k > 12 for k in s[2:]):
        return None
    return f"nn.ConvTranspose{n}d({s[1]}, {out}, {kernel}, {stride}, {padding}, {extra}{settings(groups=groups)})"


@rule("Unfold", (4,), 0.5)
def _unfold(c: Choices, s: Shape, training: bool) -> str | None:
    kernel = c.d.choice([1, 2])
    return f"nn.Unfold({kernel})" if min(s[2:]) >= kernel else None


@rule("Fold", (3,), 0.3)
def _fold(c: Choices, s: Shape, training: bool) -> str | None:
    fits = [(h, w) for h in (2, 3, 4) for w in (2, 3, 4) if (h - 1) * (w - 1) == s[2]]
    return f"nn.Fold({c.d.choice(fits)}, 2)" if s[1] % 4 == 0 and fits else None


# pools and images


@rule("Pool", (3, 4, 5), 2)
def _pool(c: Choices, s: Shape, training: bool) -> str | None:
    n, kind = len(s) - 2, c.d.choice(["Max", "Avg"])
    kernel = c.d.choice([1, 2, 3])
    padding, ceil = c.d.choice([0, 0, kernel // 2]), c.d.choice([None, None, True])
    if any(k + 2 * padding < kernel for k in s[2:]):
        return None
    more = settings(ceil_mode=ceil, count_include_pad=c.d.choice([None, False]) if kind == "Avg" else None)
    return f"nn.{kind}Pool{n}d({kernel}, {c.d.choice([1, 2, kernel])}, {padding}{more})"


@rule("AdaptivePool", (3, 4, 5), 1.5)
def _adaptive(c: Choices, s: Shape, training: bool) -> str:
    return f"nn.Adaptive{c.d.choice(['Max', 'Avg'])}Pool{len(s) - 2}d({c.d.choice([1, 1, 2, 3])})"


@rule("Upsample", (4,), 0.5)
def _upsample(c: Choices, s: Shape, training: bool) -> Texts | None:
    mode = c.d.choice(["nearest", "bilinear", "bicubic"])
    return (f"nn.Upsample(scale_factor=2, mode={mode!r})", f"upsample(2, {mode!r})") if max(s[2:]) <= 8 else None


@rule("PixelShuffle", (4,), 0.4)
def _shuffle(c: Choices, s: Shape, training: bool) -> str | None:
    if s[1] % 4 == 0:
        return "nn.PixelShuffle(2)"
    return "nn.PixelUnshuffle(2)" if s[2] % 2 == s[3] % 2 == 0 else None


# normalisations


@rule("BatchNorm", ANY, 3)
def _batch_norm(c: Choices, s: Shape, training: bool) -> str | None:
    if training and s[0] * prod(s[2:]) < 2:
        return None  # both libraries refuse one value a channel
    momentum = c.d.choice(["0.1", "0.1", "0.7", "None"])
    affine, track = c.d.random() < 0.8, c.d.random() < 0.85
    return f"nn.BatchNorm{max(1, len(s) - 2)}d({s[1]}, 1e-5, {momentum}, {affine}, {track})"


@rule("InstanceNorm", (3, 4, 5), 1)
def _instance_norm(c: Choices, s: Shape, training: bool) -> str | None:
    if prod(s[2:]) < 2:
        return None
    return f"nn.InstanceNorm{len(s) - 2}d({s[1]}, 1e-5, 0.1, {c.d.random() < 0.5}, {c.d.random() < 0.4})"


@rule("GroupNorm", ANY, 1.5)
def _group_norm(c: Choices, s: Shape, training: bool) -> str | None:
    groups = c.divisor(s[1])
    return None if training and prod(s[1:]) == groups else f"nn.GroupNorm({groups}, {s[1]})"


@rule("LayerNorm", ANY, 2)
def _layer_norm(c: Choices, s: Shape, training: bool) -> str:
    shape = s[c.d.randrange(1, len(s)) :]
    return f"nn.LayerNorm({shape[0] if len(shape) == 1 else shape})"


@rule("RMSNorm", ANY, 1.5)
def _rms_norm(c: Choices, s: Shape, training: bool) -> str:
    return f"nn.RMSNorm({s[-1]}, 1e-5)"


@rule("LocalResponseNorm", (3, 4), 0.5)
def _response_norm(c: Choices, s: Shape, training: bool) -> str:
    return f"nn.LocalResponseNorm({c.d.choice([1, 2, 3])}, 0.1)"


# sequences [batch, length, features]


@rule("Recurrent", (3,), 2)
def _recurrent(c: Choices, s: Shape, training: bool) -> Texts | None:
    name, hidden = c.d.choice(["RNN", "GRU", "LSTM"]), c.size()
    more = settings(
        bidirectional=c.d.choice([None, None, True]), bias=c.d.choice([None, None, False]),
        proj_size=c.d.choice([None, hidden - 1]) if name == "LSTM" and hidden > 1 else None,
    )  # fmt: skip
    layers = c.d.choice([1, 1, 2])
    if s[1] > 12:
        return None
    return f"nn.{name}({s[2]}, {hidden}, {layers}{more})", f"nn.{name}({s[2]}, {hidden}, {layers}, batch_first=True{more})"


@rule("Cell", (2,), 1)
def _cell(c: Choices, s: Shape, training: bool) -> str:
    return f"nn.{c.d.choice(['RNN', 'GRU', 'LSTM'])}Cell({s[1]}, {c.size()})"


@rule("Attention", (3,), 1.5)
def _attention(c: Choices, s: Shape, training: bool) -> str:
    return f"Attention({s[2]}, {c.divisor(s[2])}, {c.d.random() < 0.5})"


@rule("Transformer", (3,), 1.5)
def _transformer(c: Choices, s: Shape, training: bool) -> Texts:
    heads, hidden, first = c.divisor(s[2]), c.size(), c.d.random() < 0.5
    activation = c.d.choice(["relu", "gelu"])
    same = f"({s[2]}, {heads}, {hidden}, 0.0, activation={activation!r}, norm_first={first}"
    if c.d.random() < 0.4:
        return f"Decoder{same})", f"Decoder{same}, batch_first=True)"
    return f"nn.TransformerEncoderLayer{same})", f"nn.TransformerEncoderLayer{same}, batch_first=True)"


@rule("Positions", (3,), 0.7)
def _positions(c: Choices, s: Shape, training: bool) -> Texts:
    if s[2] % 2 == 0 and c.d.random() < 0.5:
        return f"nn.SinusoidalPositions({s[2]})", f"SinusoidalPositions({s[2]})"
    length = s[1] + c.d.choice([0, 2])
    return f"nn.LearnedPositions({length}, {s[2]})", f"LearnedPositions({length}, {s[2]})"


# dropout that drops nothing, or is off


@rule("Dropout", ANY, 0.7)
def _dropout(c: Choices, s: Shape, training: bool) -> str:
    p = 0.0 if training else c.d.choice([0.0, 0.5])
    kinds = ["Dropout", "AlphaDropout"]
    kinds += [f"Dropout{len(s) - 2}d"] if len(s) > 2 else []
    return f"nn.{c.d.choice(kinds)}({p})"


# shapes


@rule("Swap", (3, 4, 5), 2)
def _swap(c: Choices, s: Shape, training: bool) -> str:
    a, b = c.d.sample(range(1, len(s)), 2)
    return f"Swap({a}, {b})"


@rule("Flatten", (3, 4, 5), 1)
def _flatten(c: Choices, s: Shape, training: bool) -> str:
    return f"nn.Flatten({c.d.choice([1, len(s) - 2])})"


@rule("Unflatten", (2, 3), 1)
def _unflatten(c: Choices, s: Shape, training: bool) -> str:
    n = c.divisor(s[1])
    return f"nn.Unflatten(1, ({n}, {s[1] // n}))"


@rule("Mean", (3, 4, 5), 1)
def _mean(c: Choices, s: Shape, training: bool) -> str:
    return f"Mean({c.d.randrange(1, len(s))})"
