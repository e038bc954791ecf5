"""A language model that predicts the next token: transformer blocks, with the variants of GPT-2 and Llama as settings."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from firebrick.core.errors import ConfigError, DTypeError, ShapeError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_operand, describe
from firebrick.core.settings import number
from firebrick.core.tensor import Tensor
from firebrick.functions.activation import gelu
from firebrick.functions.attention import scaled_dot_product_attention
from firebrick.functions.creation import zeros
from firebrick.functions.elementwise import astype, clip, greater_equal, less_equal, logical_and
from firebrick.functions.indexing import index_copy, take
from firebrick.functions.linear import matmul
from firebrick.functions.movement import concat, expand_dims, matrix_transpose, permute_dims, reshape, split
from firebrick.functions.ranges import arange
from firebrick.models.checks import check_counts, check_flag, check_heads
from firebrick.nn import Dropout, Embedding, LayerNorm, Linear, Module, RMSNorm, SwiGLU, initial
from firebrick.random import Generator

_CHOICES = {"norm": ("rms", "layer"), "feed_forward": ("swiglu", "gelu", "gelu_tanh"), "positions": ("rotary", "learned")}
_STD = 0.02


class GPTCache(NamedTuple):
    """Keys and values of all blocks, of a fixed length; positions that are not filled yet are 0.

    Attributes:
        keys: One tensor [batch, key heads, length, features] for each block.
        values: Likewise.

    Example:
        >>> import firebrick as fb
        >>> model = fb.models.GPT(10, length=8, dim=8, heads=2, layers=3)
        >>> cache = model.new_cache(batch=2, length=6)
        >>> len(cache.keys), cache.keys[0].shape
        (3, (2, 2, 6, 4))
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]


class _Mlp(Module):
    """gelu(x W₁) W₂."""

    def __init__(self, dim: int, hidden: int, approximate: str, **how: Any) -> None:
        self.linear1, self.linear2, self.approximate = Linear(dim, hidden, **how), Linear(hidden, dim, **how), approximate

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear2(gelu(self.linear1(x), approximate=self.approximate))
        return y


class _Block(Module):
    """x + attention(norm(x)), and x + feed(norm(x)) of that."""

    def __init__(self, dim: int, heads: int, key_heads: int, hidden: int, settings: dict[str, Any], **how: Any) -> None:
        size: dict[str, Any] = {"dtype": how.get("dtype"), "device": how.get("device")}

        def norm() -> Module:
            kind = RMSNorm if settings["norm"] == "rms" else LayerNorm
            return kind(dim, settings["eps"], **size)

        self.heads, self.key_heads, self.features = heads, key_heads, dim // heads
        bias = settings["bias"]
        self.norm1, self.norm2 = norm(), norm()
        self.query = Linear(dim, dim, bias=bias, **how)
        self.key = Linear(dim, key_heads * self.features, bias=bias, **how)
        self.value = Linear(dim, key_heads * self.features, bias=bias, **how)
        self.out = Linear(dim, dim, bias=bias, **how)
        kind = settings["feed_forward"]
        self.feed: Module = (
            SwiGLU(dim, hidden, bias=bias, **how)
            if kind == "swiglu"
            else _Mlp(dim, hidden, "tanh" if kind == "gelu_tanh" else "none", bias=bias, **how)
        )
        self.dropout = Dropout(settings["dropout"], generator=how.get("generator")) if settings["dropout"] else None

    def _heads(self, x: Tensor, count: int) -> Tensor:
        batch, n, _ = x.shape
        return permute_dims(reshape(x, (batch, n, count, self.features)), (0, 2, 1, 3))

    def _dropped(self, x: Tensor) -> Tensor:
        if self.dropout is None:
            return x
        y: Tensor = self.dropout(x)
        return y

    def forward(
        self, x: Tensor, turn: tuple[Tensor, Tensor] | None, mask: Tensor | None, cache: tuple[Tensor, Tensor] | None,
        at: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        """The block's result, and the keys and values that its queries saw."""
        y = self.norm1(x)
        query, key = self._heads(self.query(y), self.heads), self._heads(self.key(y), self.key_heads)
        value = self._heads(self.value(y), self.key_heads)
        if turn is not None:
            query, key = _turned(query, *turn), _turned(key, *turn)
        if cache is not None and at is not None:
            key, value = (index_copy(old, at, new, axis=2) for old, new in zip(cache, (key, value), strict=True))
        found = scaled_dot_product_attention(query, key, value, mask=mask, causal=mask is None)
        batch, n, dim = x.shape
        x = x + self._dropped(self.out(reshape(permute_dims(found, (0, 2, 1, 3)), (batch, n, dim))))
        return x + self._dropped(self.feed(self.norm2(x))), key, value


def _turned(x: Tensor, sines: Tensor, cosines: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    a, b = split(x, (half, half), axis=-1)
    return concat([a * cosines - b * sines, a * sines + b * cosines], axis=-1)


class GPT(Module):
    """A language model: token embeddings, transformer blocks with causal attention, and the logits of the next token.

    The defaults are those of Llama (rotary positions, RMSNorm, SwiGLU, no biases); those of GPT-2 are ``norm="layer"``,
    ``feed_forward="gelu_tanh"``, ``positions="learned"`` and ``bias=True``. Weights start from N(0, 0.02²).

    Args:
        vocabulary: Number of tokens.
        length: Most positions of a sequence.
        dim: Features of a token.
        heads: Heads of the queries; divides ``dim``.
        layers: Blocks.
        key_heads: Heads of keys and values; divides ``heads``, its default (grouped-query attention).
        hidden: Features inside of the feed-forward layers; by default 4 · dim, or for "swiglu" 8/3 of dim.
        norm: "rms" or "layer".
        feed_forward: "swiglu", "gelu" or "gelu_tanh".
        positions: "rotary" or "learned".
        base: Of rotary positions.
        bias: Whether the linear layers have biases.
        tied: Whether the logits are products with the token embeddings.
        eps: Of the norms.
        dropout: Probability of dropping a feature after attention and feed-forward layers in training.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Raises:
        ConfigError: A setting is unknown or does not fit.

    Source: Radford et al., "Language Models are Unsupervised Multitask Learners", 2019; Touvron et al., "LLaMA",
        arXiv:2302.13971; Ainslie et al., "GQA", arXiv:2305.13245.

    Example:
        >>> import firebrick as fb
        >>> model = fb.models.GPT(65, length=32, dim=16, heads=4, layers=2, key_heads=2)
        >>> model(fb.zeros((2, 10), dtype=fb.int64)).shape
        (2, 10, 65)
    """

    def __init__(
        self, vocabulary: int, *, length: int = 256, dim: int = 128, heads: int = 4, layers: int = 4,
        key_heads: int | None = None, hidden: int | None = None, norm: str = "rms", feed_forward: str = "swiglu",
        positions: str = "rotary", base: float = 10000.0, bias: bool = False, tied: bool = True, eps: float = 1e-5,
        dropout: float = 0.0, generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        check_counts("GPT", vocabulary=vocabulary, length=length, dim=dim, heads=heads)
        check_counts("GPT", 0, layers=layers)
        check_heads("GPT", dim, heads)
        key_heads = heads if key_heads is None else key_heads
        check_counts("GPT", key_heads=key_heads)
        if heads % key_heads:
            raise ConfigError("GPT: key_heads divides heads", f"heads = {heads}, key_heads = {key_heads}", "change one of them")
        for key, value in (("norm", norm), ("feed_forward", feed_forward), ("positions", positions)):
            if value not in _CHOICES[key]:
                known = ", ".join(f'"{c}"' for c in _CHOICES[key])
                raise ConfigError(f"GPT: {key} is one of {known}", f"{key} = {value!r}", "choose one")
        if positions == "rotary" and dim // heads % 2:
            raise ConfigError("GPT: rotary positions need an even number of features a head", f"{dim // heads}", "change heads")
        for key, given in (("base", base), ("eps", eps)):
            size = number("GPT", key, given)
            if not 0.0 <= size < float("inf") or (key == "base" and not size):
                least = "> 0" if key == "base" else "≥ 0"
                raise ConfigError(
                    f"GPT: {key} is a finite number {least}", f"{key} = {given!r}", "leave it out for the default"
                )
        check_flag("GPT", "bias", bias)
        check_flag("GPT", "tied", tied)
        hidden = (4 * dim if feed_forward != "swiglu" else -(-8 * dim // 3)) if hidden is None else hidden
        check_counts("GPT", hidden=hidden)
        how: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
        settings = {"norm": norm, "feed_forward": feed_forward, "bias": bias, "eps": eps, "dropout": dropout}
        self.vocabulary, self.length, self.dim, self.heads, self.key_heads = vocabulary, length, dim, heads, key_heads
        self.base = base if positions == "rotary" else None
        self.embed = Embedding(vocabulary, dim, **how)
        self.embed.weight = initial.normal((vocabulary, dim), std=_STD, **how)
        self.position = None if positions == "rotary" else initial.normal((length, dim), std=_STD, **how)
        self.blocks = [_Block(dim, heads, key_heads, hidden, settings, **how) for _ in range(layers)]
        self.norm = (RMSNorm if norm == "rms" else LayerNorm)(dim, eps, dtype=dtype, device=device)
        self.head = None if tied else Linear(dim, vocabulary, bias=False, **how)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the token after each of a sequence.

        Args:
            tokens: Integer tensor [batch, n] in [0, vocabulary), with n up to ``length``.

        Returns:
            Tensor [batch, n, vocabulary].
        """
        self._check(tokens)
        n = tokens.shape[1]
        if n > self.length:
            raise ShapeError(
                f"GPT: a sequence has at most {self.length} tokens",
                describe("tokens", tokens),
                "cut it, or build a longer model",
            )
        x, turn = self._embedded(tokens, arange(n, device=tokens.device))
        for block in self.blocks:
            x = block(x, turn, None, None, None)[0]
        return self._logits(x)

    def new_cache(self, batch: int, length: int) -> GPTCache:
        """An empty cache.

        Args:
            batch: Sequences.
            length: Positions of each, up to the model's.

        Raises:
            ConfigError: The cache is longer than the model.

        Example:
            >>> import firebrick as fb
            >>> len(fb.models.GPT(10, dim=8, layers=2).new_cache(1, 16).values)
            2
        """
        check_counts("GPT.new_cache", batch=batch, length=length)
        if length > self.length:
            raise ConfigError(f"GPT: a cache has at most the {self.length} positions of the model", f"{length}", "shorten it")
        weight = self.embed.weight
        shape = (batch, self.key_heads, length, self.dim // self.heads)
        keys, values = (tuple(zeros(shape, dtype=weight.dtype, device=weight.device) for _ in self.blocks) for _ in range(2))
        return GPTCache(keys, values)

    def extend(self, tokens: Tensor, cache: GPTCache, start: Tensor | int, pads: Tensor) -> tuple[Tensor, GPTCache]:
        """Logits of the token after the last one, and the cache with these tokens added.

        Args:
            tokens: Integer tensor [batch, n].
            cache: Keys and values of the tokens before.
            start: Number of positions of the cache that are filled; an int or an integer tensor of shape ().
            pads: Integer tensor [batch]: how many positions at the start of each sequence count for nothing.

        Returns:
            Logits [batch, vocabulary], and the new cache.

        Example:
            >>> import firebrick as fb
            >>> model = fb.models.GPT(10, dim=8, layers=1)
            >>> none = fb.zeros(1, dtype=fb.int64)
            >>> logits, cache = model.extend(fb.asarray([[1, 2]]), model.new_cache(1, 4), 0, none)
            >>> logits, cache = model.extend(fb.asarray([[3]]), cache, 2, none)
            >>> logits.shape
            (1, 10)
        """
        self._check(tokens)
        n, slots = tokens.shape[1], cache.keys[0].shape[2] if cache.keys else 0
        at = arange(n, device=tokens.device) + start
        order = arange(slots, device=tokens.device)
        seen = logical_and(
            less_equal(order, reshape(at, (n, 1))), greater_equal(order, reshape(pads, (-1, 1, 1, 1)))
        )  # [batch, 1, n, slots]
        x, turn = self._embedded(tokens, clip(at - expand_dims(pads, axis=-1), 0, self.length - 1))
        keys, values = [], []
        for block, key, value in zip(self.blocks, *cache, strict=True):
            x, k, v = block(x, turn, seen, (key, value), at)
            keys.append(k)
            values.append(v)
        return self._logits(x[:, n - 1 :])[:, 0], GPTCache(tuple(keys), tuple(values))

    def _check(self, tokens: Any) -> None:
        check_operand("GPT", tokens, "any", "tokens")
        if not tokens.dtype.is_integer:
            raise DTypeError("GPT: tokens need an integer dtype", describe("tokens", tokens), "cast them to fb.int64")
        if tokens.ndim != 2 or not tokens.shape[1]:
            raise ShapeError("GPT: tokens are [batch, n], with n ≥ 1", describe("tokens", tokens), "add an axis")

    def _embedded(self, tokens: Tensor, places: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Tokens as vectors, and the sines and cosines of rotary positions: places are [n] or [batch, n]."""
        x: Tensor = self.embed(tokens)
        if self.base is None:
            assert self.position is not None
            return x + take(self.position, places, axis=0), None
        half = self.dim // self.heads // 2
        angles = np.outer(np.arange(self.length), self.base ** (-np.arange(half) / half))
        turn = []
        for table in (np.sin(angles), np.cos(angles)):
            rows = take(hooks.from_host(table.astype(x.dtype.np), x.device), places, axis=0)
            turn.append(rows if places.ndim == 1 else expand_dims(rows, axis=1))
        return x, (turn[0], turn[1])

    def _logits(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(x)
        if self.head is None:
            rows = reshape(y, (-1, self.dim))  # one product of matrices, as of ``nn.Linear``
            found = matmul(rows, astype(matrix_transpose(self.embed.weight), y.dtype, copy=False))
            return reshape(found, (*y.shape[:-1], self.vocabulary))
        logits: Tensor = self.head(y)
        return logits

    def describe(self) -> str:
        return f"{self.vocabulary}, length={self.length}, dim={self.dim}, heads={self.heads}"


__all__ = ["GPT", "GPTCache"]
