"""Attention and the encoder block around it."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

from firebrick.core.bind import check_devices, describe
from firebrick.core.errors import ConfigError, ShapeError
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import gelu, where
from firebrick.functions.linear import matmul
from firebrick.functions.movement import expand_dims, matrix_transpose, permute_dims, reshape
from firebrick.functions.neural import scaled_dot_product_attention, softmax
from firebrick.nn.linear import Linear
from firebrick.nn.module import Module
from firebrick.nn.normalisation import Dropout, LayerNorm
from firebrick.random import Generator


class MultiheadAttention(Module):
    """softmax(Q Kᵀ / √d) V in several heads of size d, between learned projections.

    Args:
        embed: Features of query, key, value and result; divisible by ``heads``.
        heads: Number of heads.
        dropout: Probability of dropping an attention weight in training.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        qkv: Linear from ``embed`` to 3 · ``embed``: queries, keys, values.
        out: Linear from ``embed`` to ``embed``.

    Source: Vaswani et al., "Attention Is All You Need", arXiv:1706.03762.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.MultiheadAttention(8, 2)(fb.ones((1, 5, 8))).shape
        (1, 5, 8)
    """

    def __init__(
        self, embed: int, heads: int, dropout: float = 0.0, *, generator: Generator | None = None, dtype: Any = None,
        device: Any = None,
    ) -> None:  # fmt: skip
        if heads < 1 or embed % heads:
            raise ConfigError(
                "MultiheadAttention: heads divides embed", f"embed = {embed}, heads = {heads}", "change one of them"
            )
        self.embed, self.heads = embed, heads
        how: dict[str, Any] = {"generator": generator, "dtype": dtype, "device": device}
        self.qkv = Linear(embed, 3 * embed, **how)
        self.out = Linear(embed, embed, **how)
        self.dropout = Dropout(dropout, generator=None if generator is None else generator.fork()) if dropout else None

    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, *, mask: Tensor | None = None
    ) -> Tensor:
        """Attend from query [batch, n, embed] to key and value [batch, m, embed].

        Args:
            query: What looks.
            key: What is looked at; the query by default.
            value: What is taken from there; the key by default.
            mask: Bool [n, m], [batch, n, m] or [batch, heads, n, m] (axes of size 1 broadcast); True where a query may look.
        """
        key = query if key is None else key
        value = key if value is None else value
        check_devices("MultiheadAttention", query=query, key=key, value=value, mask=mask, weight=self.qkv.weight)
        for name, t in (("query", query), ("key", key), ("value", value)):
            if t.ndim != 3 or t.shape[-1] != self.embed:
                raise ShapeError(
                    f"MultiheadAttention: {name} is [batch, length, {self.embed}]",
                    describe(name, t),
                    "add a batch axis, or build the layer with its number of features",
                )
        if key is query and value is query:
            q, k, v = self._split(self.qkv(query), 3)
        else:
            (q,), (k,), (v,) = (self._split(self._part(i, t), 1) for i, t in enumerate((query, key, value)))
        if mask is not None and mask.ndim == 3:
            mask = expand_dims(mask, axis=1)
        y = self._attend(q, k, v, mask)
        batch, _, n, _ = y.shape
        joined: Tensor = self.out(reshape(permute_dims(y, (0, 2, 1, 3)), (batch, n, self.embed)))
        return joined

    def _part(self, i: int, x: Tensor) -> Tensor:
        """Queries, keys or values (i = 0, 1, 2) of x alone."""
        rows = slice(i * self.embed, (i + 1) * self.embed)
        assert self.qkv.bias is not None
        return matmul(x, matrix_transpose(self.qkv.weight[rows])) + self.qkv.bias[rows]

    def _split(self, x: Tensor, parts: int) -> list[Tensor]:
        """[batch, n, parts · embed] as ``parts`` tensors [batch, heads, n, embed / heads]."""
        batch, n, _ = x.shape
        heads = permute_dims(reshape(x, (batch, n, parts, self.heads, self.embed // self.heads)), (2, 0, 3, 1, 4))
        return [heads[i] for i in range(parts)]

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        if self.dropout is None or not self.training:
            return scaled_dot_product_attention(q, k, v, mask=mask)
        scores = matmul(q, matrix_transpose(k)) * (1.0 / sqrt(q.shape[-1]))
        if mask is not None:
            scores = where(mask, scores, -inf)
        return matmul(self.dropout(softmax(scores)), v)

    def describe(self) -> str:
        return f"{self.embed}, {self.heads}"


class TransformerEncoderLayer(Module):
    """x + attention(norm(x)), then x + dense(norm(x)) with a GELU between two dense layers (pre-norm).

    Args:
        embed: Features.
        heads: Number of heads.
        hidden: Features between the dense layers; 4 · ``embed`` by default.
        dropout: Probability of dropping an element of attention weights and of both branches in training.
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Source: Xiong et al., "On Layer Normalization in the Transformer Architecture", arXiv:2002.04745.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.TransformerEncoderLayer(8, 2)(fb.ones((1, 5, 8))).shape
        (1, 5, 8)
    """

    def __init__(
        self, embed: int, heads: int, hidden: int | None = None, dropout: float = 0.0, *,
        generator: Generator | None = None, dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        where_: dict[str, Any] = {"dtype": dtype, "device": device}
        how = {"generator": generator, **where_}
        self.norm1 = LayerNorm(embed, **where_)
        self.attention = MultiheadAttention(embed, heads, dropout, **how)
        self.norm2 = LayerNorm(embed, **where_)
        self.linear1 = Linear(embed, hidden or 4 * embed, **how)
        self.linear2 = Linear(hidden or 4 * embed, embed, **how)
        self.dropout = Dropout(dropout, generator=None if generator is None else generator.fork()) if dropout else None

    def forward(self, x: Tensor, *, mask: Tensor | None = None) -> Tensor:
        """Map x [batch, n, embed] to the same shape; ``mask`` as for ``MultiheadAttention``."""
        x = x + self._drop(self.attention(self.norm1(x), mask=mask))
        return x + self._drop(self.linear2(self._drop(gelu(self.linear1(self.norm2(x))))))

    def _drop(self, x: Tensor) -> Tensor:
        dropped: Tensor = x if self.dropout is None else self.dropout(x)
        return dropped
