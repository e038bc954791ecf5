"""Transformer blocks: encoder and decoder layers and their stacks, with caches that make decoding incremental."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firebrick.core.errors import ConfigError
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.functions.activation import gelu, silu
from firebrick.functions.elementwise import relu, tanh
from firebrick.functions.movement import split
from firebrick.nn.attention import MultiheadAttention
from firebrick.nn.checks import check_choice, check_probability, check_shape, check_sizes
from firebrick.nn.dropout import Dropout
from firebrick.nn.key_value_cache import KeyValueCache
from firebrick.nn.linear import Linear
from firebrick.nn.module import Module
from firebrick.nn.normalisation import LayerNorm
from firebrick.nn.positions import RotaryPositions
from firebrick.random import Generator

PLAIN: dict[str, Callable[[Tensor], Tensor]] = {"relu": relu, "gelu": gelu, "silu": silu, "tanh": tanh}
# one half of the features, activated, times the other
GATED: dict[str, Callable[[Tensor], Tensor]] = {"swiglu": silu, "geglu": gelu, "reglu": relu}


def _activate(activation: str, x: Tensor) -> Tensor:
    """x activated; by a gated activation [..., 2 · hidden] becomes [..., hidden]."""
    if activation in PLAIN:
        return PLAIN[activation](x)
    gate, value = split(x, (x.shape[-1] // 2,) * 2, axis=-1)
    return GATED[activation](gate) * value


class SwiGLU(Module):
    """(silu(x W_gate) · (x W_value)) W_out: the feed-forward layer of most language models.

    Args:
        in_features: Size of the last axis of x.
        hidden: Features in between.
        out_features: Size of the last axis of y; ``in_features`` by default.
        bias: Whether the linear layers have biases.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        linear1: Linear from ``in_features`` to 2 · ``hidden``: the gate's, then the value's.
        linear2: Linear from ``hidden`` to ``out_features``.

    Source: Shazeer, "GLU Variants Improve Transformer", arXiv:2002.05202.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.SwiGLU(8, 16)(fb.ones((2, 8))).shape
        (2, 8)
    """

    def __init__(
        self, in_features: int, hidden: int, out_features: int | None = None, *, bias: bool = False,
        generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        self.in_features, self.hidden = in_features, hidden
        self.out_features = in_features if out_features is None else out_features
        check_sizes("SwiGLU", in_features=in_features, hidden=hidden, out_features=self.out_features)
        how: dict[str, Any] = {"bias": bias, "generator": generator, "dtype": dtype, "device": device}
        self.linear1 = Linear(in_features, 2 * hidden, **how)
        self.linear2 = Linear(hidden, self.out_features, **how)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., in_features] to [..., out_features].

        Args:
            x: Floating tensor [..., in_features].
        """
        check_shape("SwiGLU", "x", x, f"..., {self.in_features}", self.in_features)
        y: Tensor = self.linear2(_activate("swiglu", self.linear1(x)))
        return y

    def describe(self) -> str:
        return f"{self.in_features}, {self.hidden}, {self.out_features}"


def _dropout(p: float, generator: Generator | None) -> Dropout | None:
    return Dropout(p, generator=None if generator is None else generator.fork()) if p else None


def _drop(dropout: Dropout | None, x: Tensor) -> Tensor:
    dropped: Tensor = x if dropout is None else dropout(x)
    return dropped


class TransformerEncoderLayer(Module):
    """x + attention(norm(x)), then x + dense(norm(x)) with an activation between two dense layers (pre-norm).

    With ``norm_first=False``, norm(x + attention(x)), then norm(x + dense(x)), as in the first paper.

    Args:
        embed: Features.
        heads: Number of heads.
        hidden: Features between the dense layers; 4 · ``embed`` by default.
        dropout: Probability of dropping an element of attention weights and of both branches in training.
        activation: "relu", "gelu", "silu" or "tanh"; or "swiglu", "geglu" or "reglu", by which one half of ``linear1``'s
            2 · ``hidden`` outputs, activated, is multiplied by the other.
        norm_first: Whether each branch starts with its norm; else the sum ends with it.
        bias: Whether the linear layers have biases.
        eps: Of the norms.
        rotary: Rotates queries and keys by their positions.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Source: Xiong et al., "On Layer Normalization in the Transformer Architecture", arXiv:2002.04745; Vaswani et al.,
    "Attention Is All You Need", arXiv:1706.03762.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.TransformerEncoderLayer(8, 2)(fb.ones((1, 5, 8))).shape
        (1, 5, 8)
    """

    def __init__(
        self, embed: int, heads: int, hidden: int | None = None, dropout: float = 0.0, *, activation: str = "gelu",
        norm_first: bool = True, bias: bool = True, eps: float = 1e-5, rotary: RotaryPositions | None = None,
        generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        where_: dict[str, Any] = {"dtype": dtype, "device": device}
        how = {"bias": bias, "generator": generator, **where_}
        _check_block("TransformerEncoderLayer", embed, heads, hidden, dropout, activation)
        self.embed, self.activation, self.norm_first = embed, activation, norm_first
        inner = 4 * embed if hidden is None else hidden
        self.norm1 = LayerNorm(embed, eps, **where_)
        self.attention = MultiheadAttention(embed, heads, dropout, rotary=rotary, **how)
        self.norm2 = LayerNorm(embed, eps, **where_)
        self.linear1 = Linear(embed, inner * (2 if activation in GATED else 1), **how)
        self.linear2 = Linear(inner, embed, **how)
        self.dropout = _dropout(dropout, generator)

    def forward(
        self, x: Tensor, *, mask: Tensor | None = None, key_mask: Tensor | None = None, causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:  # fmt: skip
        """Map x [batch, n, embed] to the same shape; ``mask``, ``key_mask``, ``causal`` and ``cache`` as for
        ``MultiheadAttention``.

        Args:
            x: Floating tensor [batch, n, embed].
            mask: As for ``MultiheadAttention``.
            key_mask: As for ``MultiheadAttention``.
            causal: As for ``MultiheadAttention``.
            cache: As for ``MultiheadAttention``.
        """
        check_shape("TransformerEncoderLayer", "x", x, f"batch, length, {self.embed}", self.embed, ndim=3)

        def attend(x: Tensor) -> Tensor:
            y: Tensor = self.attention(x, mask=mask, key_mask=key_mask, causal=causal, cache=cache)
            return y

        x = _branch(self, self.norm1, attend, x)
        return _branch(self, self.norm2, lambda x: _dense(self, x), x)


class TransformerDecoderLayer(Module):
    """Self-attention, then attention to a memory, then dense layers: each x + f(norm(x)) (pre-norm).

    With ``norm_first=False``, each norm(x + f(x)), as in the paper.

    Args:
        embed: Features.
        heads: Number of heads.
        hidden: Features between the dense layers; 4 · ``embed`` by default.
        dropout: Probability of dropping an element of attention weights and of all branches in training.
        activation: As for ``TransformerEncoderLayer``.
        norm_first: Whether each branch starts with its norm; else the sum ends with it.
        bias: Whether the linear layers have biases.
        eps: Of the norms.
        memory_features: Features of the memory; ``embed`` by default.
        rotary: Rotates queries and keys of self-attention by their positions.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Source: Vaswani et al., "Attention Is All You Need", arXiv:1706.03762.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.TransformerDecoderLayer(8, 2)(fb.ones((1, 5, 8)), fb.ones((1, 3, 8))).shape
        (1, 5, 8)
    """

    def __init__(
        self, embed: int, heads: int, hidden: int | None = None, dropout: float = 0.0, *, activation: str = "gelu",
        norm_first: bool = True, bias: bool = True, eps: float = 1e-5, memory_features: int | None = None,
        rotary: RotaryPositions | None = None, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        where_: dict[str, Any] = {"dtype": dtype, "device": device}
        how = {"bias": bias, "generator": generator, **where_}
        _check_block("TransformerDecoderLayer", embed, heads, hidden, dropout, activation)
        self.embed, self.activation, self.norm_first = embed, activation, norm_first
        self.memory_features = embed if memory_features is None else memory_features
        inner = 4 * embed if hidden is None else hidden
        self.norm1 = LayerNorm(embed, eps, **where_)
        self.attention = MultiheadAttention(embed, heads, dropout, rotary=rotary, **how)
        self.norm2 = LayerNorm(embed, eps, **where_)
        self.memory_attention = MultiheadAttention(embed, heads, dropout, key_features=memory_features, **how)
        self.norm3 = LayerNorm(embed, eps, **where_)
        self.linear1 = Linear(embed, inner * (2 if activation in GATED else 1), **how)
        self.linear2 = Linear(inner, embed, **how)
        self.dropout = _dropout(dropout, generator)

    def forward(
        self, x: Tensor, memory: Tensor, *, mask: Tensor | None = None, key_mask: Tensor | None = None, causal: bool = True,
        memory_mask: Tensor | None = None, memory_key_mask: Tensor | None = None,
        cache: tuple[KeyValueCache, KeyValueCache | None] | None = None,
    ) -> Tensor:  # fmt: skip
        """Map x [batch, n, embed], looking at memory [batch, m, memory_features], to x's shape.

        Args:
            x: What has been decoded so far (with ``cache``: since the last call).
            memory: What to attend to, usually the output of an encoder.
            mask: Bool, True where x may attend to itself; see ``MultiheadAttention``.
            key_mask: Bool [batch, places of x], True where x is no padding.
            causal: Whether a position of x attends only to itself and earlier ones.
            memory_mask: Bool [n, m] and so on, True where x may attend to the memory.
            memory_key_mask: Bool [batch, m], True where the memory is no padding.
            cache: Two ``KeyValueCache``, for x and for the memory; None for one that is not used.
        """
        where_ = "TransformerDecoderLayer"
        check_shape(where_, "x", x, f"batch, length, {self.embed}", self.embed, ndim=3)
        check_shape(where_, "memory", memory, f"batch, length, {self.memory_features}", self.memory_features, ndim=3)
        own, other = (None, None) if cache is None else cache

        def attend(x: Tensor) -> Tensor:
            y: Tensor = self.attention(x, mask=mask, key_mask=key_mask, causal=causal, cache=own)
            return y

        def look(x: Tensor) -> Tensor:
            y: Tensor = self.memory_attention(x, memory, mask=memory_mask, key_mask=memory_key_mask, cache=other)
            return y

        x = _branch(self, self.norm1, attend, x)
        x = _branch(self, self.norm2, look, x)
        return _branch(self, self.norm3, lambda x: _dense(self, x), x)


def _check_block(kind: str, embed: int, heads: int, hidden: int | None, dropout: float, activation: str) -> None:
    check_sizes(kind, embed=embed, heads=heads, **({} if hidden is None else {"hidden": hidden}))
    if embed % heads:
        raise ConfigError(f"{kind}: heads divides embed", f"embed = {embed}, heads = {heads}", "change one of them")
    check_choice(kind, "activation", activation, [*PLAIN, *GATED])
    check_probability(kind, dropout=dropout)


def _branch(layer: Any, norm: LayerNorm, fn: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """x plus a branch, with the norm where the layer has it."""
    if layer.norm_first:
        return x + _drop(layer.dropout, fn(norm(x)))
    y: Tensor = norm(x + _drop(layer.dropout, fn(x)))
    return y


def _dense(layer: Any, x: Tensor) -> Tensor:
    y: Tensor = layer.linear2(_drop(layer.dropout, _activate(layer.activation, layer.linear1(x))))
    return y


class TransformerEncoder(Module):
    """Encoder layers one after another, and a last norm; called with ``causal=True`` and a cache, a decoder-only model's trunk.

    Args:
        embed: Features.
        heads: Number of heads.
        layers: Number of layers.
        hidden: Features between the dense layers; 4 · ``embed`` by default.
        dropout: Probability of dropping an element in training.
        activation: As for ``TransformerEncoderLayer``.
        norm_first: Whether each branch starts with its norm; else the sum ends with it.
        norm: Whether a last norm follows the layers; by default where ``norm_first``.
        bias: Whether the linear layers have biases.
        eps: Of the norms.
        rotary: Rotates queries and keys by their positions.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        layers: List of ``TransformerEncoderLayer``.
        norm: LayerNorm, or None.

    Example:
        >>> import firebrick as fb
        >>> model = fb.nn.TransformerEncoder(8, 2, 3).eval()
        >>> x, cache = fb.random.Generator(0).normal((1, 4, 8)), model.new_cache()
        >>> steps = [model(x[:, t : t + 1], causal=True, cache=cache) for t in range(4)]
        >>> bool(fb.all(fb.abs(fb.concat(steps, axis=1) - model(x, causal=True)) < 1e-5))
        True
    """

    def __init__(
        self, embed: int, heads: int, layers: int, hidden: int | None = None, dropout: float = 0.0, *,
        activation: str = "gelu", norm_first: bool = True, norm: bool | None = None, bias: bool = True, eps: float = 1e-5,
        rotary: RotaryPositions | None = None, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        check_sizes("TransformerEncoder", layers=layers)
        self.embed = embed
        self.layers = [
            TransformerEncoderLayer(
                embed, heads, hidden, dropout, activation=activation, norm_first=norm_first, bias=bias, eps=eps, rotary=rotary,
                generator=generator, dtype=dtype, device=device,
            )
            for _ in range(layers)
        ]  # fmt: skip
        last = norm_first if norm is None else norm
        self.norm = LayerNorm(embed, eps, dtype=dtype, device=device) if last else None

    def new_cache(self, length: int | None = None) -> list[KeyValueCache]:
        """An empty cache: one ``KeyValueCache`` a layer.

        Args:
            length: Most positions, so that decoding under ``jit`` is one graph; None for caches that grow.
        """
        return [KeyValueCache(length) for _ in self.layers]

    def forward(
        self, x: Tensor, *, mask: Tensor | None = None, key_mask: Tensor | None = None, causal: bool = False,
        cache: list[KeyValueCache] | None = None,
    ) -> Tensor:  # fmt: skip
        """Map x [batch, n, embed] to the same shape.

        Args:
            x: Embedded tokens (with ``cache``: those that follow the ones of earlier calls).
            mask: Bool, True where a position may attend; see ``MultiheadAttention``.
            key_mask: Bool [batch, places], True where there is no padding.
            causal: Whether a position attends only to itself and earlier ones.
            cache: What ``new_cache`` made; calls add to it. Results equal one call's only with ``causal``.
        """
        check_shape("TransformerEncoder", "x", x, f"batch, length, {self.embed}", self.embed, ndim=3)
        for layer, held in zip(self.layers, _caches("TransformerEncoder", cache, len(self.layers)), strict=True):
            x = layer(x, mask=mask, key_mask=key_mask, causal=causal, cache=held)
        return x if self.norm is None else self.norm(x)


class TransformerDecoder(Module):
    """Decoder layers one after another, all attending to one memory, and a last norm.

    Args:
        embed: Features.
        heads: Number of heads.
        layers: Number of layers.
        hidden: Features between the dense layers; 4 · ``embed`` by default.
        dropout: Probability of dropping an element in training.
        activation: As for ``TransformerEncoderLayer``.
        norm_first: Whether each branch starts with its norm; else the sum ends with it.
        norm: Whether a last norm follows the layers; by default where ``norm_first``.
        bias: Whether the linear layers have biases.
        eps: Of the norms.
        memory_features: Features of the memory; ``embed`` by default.
        rotary: Rotates queries and keys of self-attention by their positions.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        layers: List of ``TransformerDecoderLayer``.
        norm: LayerNorm, or None.

    Example:
        >>> import firebrick as fb
        >>> model = fb.nn.TransformerDecoder(8, 2, 3).eval()
        >>> x, memory = fb.random.Generator(0).normal((1, 4, 8)), fb.random.Generator(1).normal((1, 6, 8))
        >>> cache = model.new_cache()
        >>> steps = [model(x[:, t : t + 1], memory, cache=cache) for t in range(4)]
        >>> bool(fb.all(fb.abs(fb.concat(steps, axis=1) - model(x, memory)) < 1e-5))
        True
    """

    def __init__(
        self, embed: int, heads: int, layers: int, hidden: int | None = None, dropout: float = 0.0, *,
        activation: str = "gelu", norm_first: bool = True, norm: bool | None = None, bias: bool = True, eps: float = 1e-5,
        memory_features: int | None = None, rotary: RotaryPositions | None = None, generator: Generator | None = None,
        dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        check_sizes("TransformerDecoder", layers=layers)
        self.embed = embed
        self.layers = [
            TransformerDecoderLayer(
                embed, heads, hidden, dropout, activation=activation, norm_first=norm_first, bias=bias, eps=eps,
                memory_features=memory_features, rotary=rotary, generator=generator, dtype=dtype, device=device,
            )
            for _ in range(layers)
        ]  # fmt: skip
        last = norm_first if norm is None else norm
        self.norm = LayerNorm(embed, eps, dtype=dtype, device=device) if last else None

    def new_cache(self, length: int | None = None) -> list[tuple[KeyValueCache, KeyValueCache | None]]:
        """An empty cache: for each layer two ``KeyValueCache``, for what is decoded and for the memory.

        Args:
            length: Most positions of what is decoded, so that decoding under ``jit`` is one graph; there is no cache of the
                memory then, since ``jit`` cannot tell one memory from another. None for caches that grow.
        """
        return [(KeyValueCache(length), KeyValueCache() if length is None else None) for _ in self.layers]

    def forward(
        self, x: Tensor, memory: Tensor, *, mask: Tensor | None = None, key_mask: Tensor | None = None, causal: bool = True,
        memory_mask: Tensor | None = None, memory_key_mask: Tensor | None = None,
        cache: list[tuple[KeyValueCache, KeyValueCache | None]] | None = None,
    ) -> Tensor:  # fmt: skip
        """Map x [batch, n, embed] and memory [batch, m, memory_features] to x's shape; arguments as for
        ``TransformerDecoderLayer``, with ``cache`` from ``new_cache``.

        Args:
            x: Floating tensor [batch, n, embed].
            memory: Floating tensor [batch, m, memory_features].
            mask: As for ``TransformerDecoderLayer``.
            key_mask: As for ``TransformerDecoderLayer``.
            causal: As for ``TransformerDecoderLayer``.
            memory_mask: As for ``TransformerDecoderLayer``.
            memory_key_mask: As for ``TransformerDecoderLayer``.
            cache: What ``new_cache`` returned, for decoding step by step.
        """
        check_shape("TransformerDecoder", "x", x, f"batch, length, {self.embed}", self.embed, ndim=3)
        for layer, held in zip(self.layers, _caches("TransformerDecoder", cache, len(self.layers)), strict=True):
            x = layer(
                x, memory, mask=mask, key_mask=key_mask, causal=causal, memory_mask=memory_mask,
                memory_key_mask=memory_key_mask, cache=held,
            )  # fmt: skip
        return x if self.norm is None else self.norm(x)


def _caches(kind: str, cache: Any, layers: int) -> list[Any]:
    if cache is None:
        return [None] * layers
    if not isinstance(cache, list) or len(cache) != layers:
        got = f"{len(cache)} entries" if isinstance(cache, list) else type(cache).__name__
        raise ConfigError(f"{kind}: cache is a list with one entry for each of {layers} layers", got, "use model.new_cache()")
    held = [pair[0] if isinstance(pair, tuple) else pair for pair in cache]
    if hooks.trace() is not None and all(c.filled is not None for c in held):
        lengths = [c.capacity for c in held]  # how many of them are filled is not known yet
    else:
        lengths = [c.length for c in held]
    if len(set(lengths)) > 1:
        raise ConfigError(
            f"{kind}: the caches of all layers hold the same number of places",
            f"lengths {', '.join(map(str, lengths))}",
            "begin the sequence again with model.new_cache(): a call may have failed between two layers",
        )
    return cache
