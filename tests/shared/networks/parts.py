"""How layers are put together, once for Firebrick and once for torch: the names that the texts of random networks are made of.

The attributes of both have the same names, so that parameters match by name.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn as theirs

import firebrick as fb
from firebrick import nn


class Chain(nn.Module):
    """Layers one after another; of what gives several tensors, the first goes on."""

    def __init__(self, *layers: nn.Module) -> None:
        self.layers = list(layers)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        for layer in self.layers:
            x = layer(x)
            while isinstance(x, tuple):
                x = x[0]
        return x


class Residual(Chain):
    """x + chain(x)."""

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return x + super().forward(x)


class Twice(Chain):
    """chain(chain(x)): its parameters are used twice."""

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return super().forward(super().forward(x))


class Checkpointed(Chain):
    """A chain whose intermediate values are computed again in the backward pass."""

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return fb.checkpoint(super().forward)(x)


class Parallel(nn.Module):
    """a(x) joined with b(x): their sum, product or concatenation along axis 1."""

    def __init__(self, a: nn.Module, b: nn.Module, how: str) -> None:
        self.a, self.b, self.how = a, b, how

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        a, b = self.a(x), self.b(x)
        return a + b if self.how == "sum" else a * b if self.how == "product" else fb.concat([a, b], axis=1)


class Squared(nn.Module):
    """A layer of two operands, both of them x."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer = layer

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.layer(x, x)


class Attention(nn.Module):
    """Attention of x to itself."""

    def __init__(self, embed: int, heads: int, causal: bool) -> None:
        self.layer, self.causal = nn.MultiheadAttention(embed, heads), causal

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.layer(x, causal=self.causal)


class Swap(nn.Module):
    """x with two axes exchanged."""

    def __init__(self, a: int, b: int) -> None:
        self.a, self.b = a, b

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return fb.swapaxes(x, self.a, self.b)


class Mean(nn.Module):
    """The mean along an axis."""

    def __init__(self, axis: int) -> None:
        self.axis = axis

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return fb.mean(x, axis=self.axis)


def _check_batched(layer: Any, x: Any) -> None:
    """Refuse operands without a batch, which torch takes and Firebrick does not."""
    name = type(layer).__name__
    sequence = isinstance(layer, (theirs.RNNBase, Theirs.Attention, theirs.TransformerEncoderLayer, Theirs.Decoder))
    if sequence and x.dim() != 3:
        raise ValueError("a sequence with a batch")
    of_images = name[-1] == "d" and name[-2:-1].isdigit() and name != "BatchNorm1d"
    if of_images and x.dim() != int(name[-2]) + 2:
        raise ValueError("images with a batch")


class Contiguous(torch.autograd.Function):
    """x, laid out anew as its cotangent is, since torch's batch norm misreads transposed ones with axes of size 1."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone(memory_format=torch.contiguous_format)

    @staticmethod
    def backward(ctx: Any, cotangent: Any) -> Any:
        return cotangent.clone(memory_format=torch.contiguous_format)


class Theirs:
    """The same names, for torch."""

    class Chain(theirs.Module):
        def __init__(self, *layers: Any) -> None:
            super().__init__()
            self.layers = theirs.ModuleList(layers)

        def forward(self, x: Any) -> Any:
            for layer in self.layers:
                _check_batched(layer, x)
                x = layer(x)
                while isinstance(x, tuple):
                    x = x[0]
                x = Contiguous.apply(x)
            return x

    class Residual(Chain):
        def forward(self, x: Any) -> Any:
            return x + super().forward(x)

    class Twice(Chain):
        def forward(self, x: Any) -> Any:
            return super().forward(super().forward(x))

    Checkpointed = Chain

    class Parallel(theirs.Module):
        def __init__(self, a: Any, b: Any, how: str) -> None:
            super().__init__()
            self.a, self.b, self.how = a, b, how

        def forward(self, x: Any) -> Any:
            a, b = self.a(x), self.b(x)
            return a + b if self.how == "sum" else a * b if self.how == "product" else torch.cat([a, b], 1)

    class Squared(theirs.Module):
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any) -> Any:
            return self.layer(x, x)

    class Attention(theirs.Module):
        def __init__(self, embed: int, heads: int, causal: bool) -> None:
            super().__init__()
            self.layer, self.causal = theirs.MultiheadAttention(embed, heads, batch_first=True), causal

        def forward(self, x: Any) -> Any:
            n = x.shape[1]
            mask = torch.triu(torch.ones(n, n, dtype=torch.bool), 1) if self.causal else None
            return self.layer(x, x, x, attn_mask=mask, need_weights=False)[0]

    class Swap(theirs.Module):
        def __init__(self, a: int, b: int) -> None:
            super().__init__()
            self.a, self.b = a, b

        def forward(self, x: Any) -> Any:
            return x.transpose(self.a, self.b)

    class Mean(theirs.Module):
        def __init__(self, axis: int) -> None:
            super().__init__()
            self.axis = axis

        def forward(self, x: Any) -> Any:
            return x.mean(self.axis)

    class BCELoss(theirs.Module):
        """Without the least variance of 1e-12 that torch's gradient divides by."""

        def __init__(self, reduction: str) -> None:
            super().__init__()
            self.reduction = reduction

        def forward(self, p: Any, target: Any) -> Any:
            value = -(target * p.log().clamp(min=-100) + (1 - target) * (1 - p).log().clamp(min=-100))
            return value.mean() if self.reduction == "mean" else value.sum()

    class Hardsigmoid(theirs.Module):
        def forward(self, x: Any) -> Any:
            return theirs.functional.relu6(x + 3.0) / 6.0

    class SwiGLU(theirs.Module):
        def __init__(self, features: int, hidden: int, out: int) -> None:
            super().__init__()
            self.linear1 = theirs.Linear(features, 2 * hidden, bias=False)
            self.linear2 = theirs.Linear(hidden, out, bias=False)

        def forward(self, x: Any) -> Any:
            gate, value = self.linear1(x).chunk(2, -1)
            return self.linear2(theirs.functional.silu(gate) * value)

    class LearnedPositions(theirs.Module):
        def __init__(self, length: int, features: int) -> None:
            super().__init__()
            self.weight = theirs.Parameter(torch.zeros(length, features))

        def forward(self, x: Any) -> Any:
            return x + self.weight[: x.shape[-2]]

    class SinusoidalPositions(theirs.Module):
        def __init__(self, features: int) -> None:
            super().__init__()
            self.features = features

        def forward(self, x: Any) -> Any:
            n, half = x.shape[-2], torch.arange(0, self.features, 2, dtype=torch.float64)
            angles = torch.arange(n, dtype=torch.float64)[:, None] * 10000.0 ** (-half / self.features)
            return x + torch.stack([angles.sin(), angles.cos()], 2).reshape(n, self.features).to(x.dtype)

    class Decoder(theirs.TransformerDecoderLayer):
        """Of one operand, which is its memory too."""

        def forward(self, x: Any) -> Any:
            n = x.shape[1]
            return super().forward(x, x, tgt_mask=torch.triu(torch.ones(n, n, dtype=torch.bool), 1))

    @staticmethod
    def weight_norm(layer: Any) -> Any:
        return theirs.utils.parametrizations.weight_norm(layer)

    @staticmethod
    def upsample(scale: int, mode: str) -> Any:
        return theirs.Upsample(scale_factor=scale, mode=mode, **({} if mode == "nearest" else {"align_corners": False}))


class Decoder(nn.Module):
    """A decoder layer of one operand, which is its memory too."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self.layer = nn.TransformerDecoderLayer(*args, **settings)

    def forward(self, x: fb.Tensor) -> fb.Tensor:
        return self.layer(x, x)


OURS = {
    "nn": nn, "fb": fb,
    **{c.__name__: c for c in (Chain, Residual, Twice, Checkpointed, Parallel, Squared, Attention, Swap, Mean, Decoder)},
}  # fmt: skip
THEIRS = {"nn": theirs, "torch": torch, **{n: v for n, v in vars(Theirs).items() if not n.startswith("_")}}
THEIRS |= {"weight_norm": Theirs.weight_norm, "upsample": Theirs.upsample}

# parts of names that differ, ours → torch's, tried in order; a name that needs none of them is the same
NAMES = (
    ("memory_attention.qkv.", "multihead_attn.in_proj_"), ("memory_attention.out.", "multihead_attn.out_proj."),
    ("attention.qkv.", "self_attn.in_proj_"), ("attention.out.", "self_attn.out_proj."),
    (".qkv.", ".in_proj_"), (".out.", ".out_proj."),
    ("magnitude", "parametrizations.weight.original0"), ("direction", "parametrizations.weight.original1"),
    (".layer.bias", ".bias"),
)  # fmt: skip


def their_name(name: str, names: set[str]) -> str:
    """torch's name of one of our parameters or buffers."""
    found = name
    for ours, other in NAMES:
        if found in names:
            return found
        found = found.replace(ours, other)
    if found not in names:
        found = found.replace(".layer.", ".", 1) if ".layer." in found else found
    assert found in names, f"{name}: no such name in {sorted(names)}"
    return found
