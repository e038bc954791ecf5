"""Multi-head attention; ``key_value_cache`` lets it decode one token at a time.

``split_heads``, ``join_heads`` and ``causal_mask`` are the pieces that other attention layers are built from.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, Any, Literal, overload

from firebrick.core.autocast import autocast, narrow
from firebrick.core.device import Device
from firebrick.core.dtypes import result_type
from firebrick.core.errors import ConfigError, DTypeError, ShapeError, UnsupportedError
from firebrick.core.hooks import hooks
from firebrick.core.operands import check_devices, describe, not_a_tensor
from firebrick.core.precision import widened
from firebrick.core.tensor import Tensor
from firebrick.functions.attention import masked_softmax, scaled_dot_product_attention
from firebrick.functions.elementwise import astype, less_equal, logical_and, not_equal
from firebrick.functions.linear import matmul
from firebrick.functions.movement import expand_dims, matrix_transpose, permute_dims, reshape, split
from firebrick.functions.normalisation import softmax
from firebrick.functions.ranges import arange
from firebrick.nn.checks import check_probability, check_shape, check_sizes
from firebrick.nn.dropout import Dropout
from firebrick.nn.key_value_cache import KeyValueCache, written
from firebrick.nn.linear import Linear
from firebrick.nn.module import Module
from firebrick.nn.positions import RotaryPositions
from firebrick.random import Generator


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[batch, n, heads · d] as [batch, heads, n, d]."""
    batch, n, features = x.shape
    return permute_dims(reshape(x, (batch, n, heads, features // heads)), (0, 2, 1, 3))


def join_heads(x: Tensor) -> Tensor:
    """[batch, heads, n, d] as [batch, n, heads · d]."""
    batch, heads, n, size = x.shape
    return reshape(permute_dims(x, (0, 2, 1, 3)), (batch, n, heads * size))


def causal_mask(n: int, m: int, device: Device | str) -> Tensor:
    """Bool [n, m]: the last n of m places in a row look at themselves and what came before."""
    places = arange(m, device=device)
    return less_equal(expand_dims(places, axis=0), expand_dims(places[m - n :], axis=1))


def _filled_mask(before: Tensor, n: int, m: int, causal: bool, device: Device) -> Tensor:
    """Bool [n, m], or [1, m]: which positions of a cache n queries see that follow ``before`` filled ones."""
    order = expand_dims(arange(m, device=device), axis=0)
    last = expand_dims(arange(n, device=device) if causal else arange(n - 1, n, device=device), axis=1)
    return less_equal(order, last + before)


class MultiheadAttention(Module):
    """softmax(Q Kᵀ / √d) V in several heads of size d, between learned projections.

    Args:
        embed: Features of query and result; divisible by ``heads``.
        heads: Number of heads.
        dropout: Probability of dropping an attention weight in training.
        bias: Whether the projections have biases.
        key_features: Features of the key; ``embed`` by default.
        value_features: Features of the value; ``key_features`` by default.
        rotary: Rotates queries and keys by their positions (``nn.RotaryPositions`` of ``embed // heads`` features).
        generator: Source of initial values; ``fb.random.initial_generator()`` by default.
        dtype: Dtype of the parameters; the device's default float by default.
        device: Device of the parameters.

    Attributes:
        qkv: Linear from ``embed`` to 3 · ``embed``: queries, keys, values. Absent where key or value have other features;
            then ``q``, ``k`` and ``v`` are Linears to ``embed``.
        out: Linear from ``embed`` to ``embed``.

    Source: Vaswani et al., "Attention Is All You Need", arXiv:1706.03762.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.MultiheadAttention(8, 2)(fb.ones((1, 5, 8))).shape
        (1, 5, 8)
    """

    def __init__(
        self, embed: int, heads: int, dropout: float = 0.0, *, bias: bool = True, key_features: int | None = None,
        value_features: int | None = None, rotary: RotaryPositions | None = None, generator: Generator | None = None,
        dtype: Any = None, device: Any = None,
    ) -> None:  # fmt: skip
        check_sizes("MultiheadAttention", embed=embed, heads=heads)
        if embed % heads:
            raise ConfigError(
                "MultiheadAttention: heads divides embed", f"embed = {embed}, heads = {heads}", "change one of them"
            )
        if rotary is not None and not isinstance(rotary, RotaryPositions):
            raise ConfigError(
                "MultiheadAttention: rotary is an nn.RotaryPositions", f"rotary={rotary!r:.60}", "pass one, or None"
            )
        if rotary is not None and rotary.features != embed // heads:
            raise ConfigError(
                f"MultiheadAttention: rotary turns the {embed // heads} features of a head",
                f"RotaryPositions({rotary.features})",
                f"use nn.RotaryPositions({embed // heads})",
            )
        check_probability("MultiheadAttention", dropout=dropout)
        self.embed, self.heads = embed, heads
        self.key_features = embed if key_features is None else key_features
        self.value_features = self.key_features if value_features is None else value_features
        check_sizes("MultiheadAttention", key_features=self.key_features, value_features=self.value_features)
        how: dict[str, Any] = {"bias": bias, "generator": generator, "dtype": dtype, "device": device}
        if self.key_features == self.value_features == embed:
            self.qkv: Linear | None = Linear(embed, 3 * embed, **how)
        else:
            self.qkv = None
            self.q = Linear(embed, embed, **how)
            self.k = Linear(self.key_features, embed, **how)
            self.v = Linear(self.value_features, embed, **how)
        self.out = Linear(embed, embed, **how)
        self.rotary = rotary
        self.dropout = Dropout(dropout, generator=None if generator is None else generator.fork()) if dropout else None

    if TYPE_CHECKING:  # a call's result depends on an argument, which ``Module.__call__`` cannot express

        @overload
        def __call__(
            self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, *, mask: Tensor | None = None,
            bias: Tensor | None = None, key_mask: Tensor | None = None, causal: bool = False,
            need_weights: Literal[False] = False, cache: KeyValueCache | None = None,
        ) -> Tensor: ...  # fmt: skip
        @overload
        def __call__(
            self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, *, mask: Tensor | None = None,
            bias: Tensor | None = None, key_mask: Tensor | None = None, causal: bool = False, need_weights: bool = False,
            cache: KeyValueCache | None = None,
        ) -> Any: ...  # fmt: skip
        def __call__(self, *args: Any, **kwargs: Any) -> Any: ...

    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, *, mask: Tensor | None = None,
        bias: Tensor | None = None, key_mask: Tensor | None = None, causal: bool = False, need_weights: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Any:  # fmt: skip
        """Attend from query [batch, n, embed] to key [batch, m, key_features] and value [batch, m, value_features].

        A query without any key gets zeros from the heads (hence the bias of ``out``).

        Args:
            query: Queries.
            key: Keys; the query by default (self-attention).
            value: Values; the key by default.
            mask: Bool [n, m], [batch, n, m] or [batch, heads, n, m] (axes of size 1 broadcast); True where a query may look.
            bias: Floating tensor of the same shapes, added to the scores Q Kᵀ / √d.
            key_mask: Bool [batch, m], True for keys that are no padding.
            causal: Whether a query attends only to its own position and earlier ones; the last query and the last key are
                at one position.
            need_weights: Whether to return the attention weights, before dropout, as well.
            cache: In self-attention: keys and values of earlier calls, which this call looks at and adds its own to; ``m``
                counts them all; with a cache of a fixed length, ``m`` is that length. With ``key`` given: keeps the projected
                key and value, which later calls do not project again.

        Returns:
            Tensor [batch, n, embed]; with ``need_weights`` a pair with the weights [batch, heads, n, m].

        Raises:
            ShapeError: A shape does not fit.
            DTypeError: A mask is not bool.
            ConfigError: A cache of one memory was given with another, or the cache of another layer.
            OutOfRangeError: Fewer positions than n are left in a cache of a fixed length.
        """
        own = key is None or key is query
        source = query if key is None else key
        taken = source if value is None else value
        check_devices(
            "MultiheadAttention", query=query, key=source, value=taken, mask=mask, bias=bias, key_mask=key_mask,
            cache=None if cache is None else cache.keys, weight=self._weight,
        )  # fmt: skip
        for name, t, size in (
            ("query", query, self.embed), ("key", source, self.key_features), ("value", taken, self.value_features),
        ):  # fmt: skip
            check_shape("MultiheadAttention", name, t, f"batch, length, {size}", size, ndim=3)
        if source.shape[0] != query.shape[0] or taken.shape[:2] != source.shape[:2]:
            raise ShapeError(
                "MultiheadAttention: query [batch, n, …], key [batch, m, …] and value [batch, m, …] have one batch",
                ", ".join(describe(n, t) for n, t in (("query", query), ("key", source), ("value", taken))),
                "give them the same number of rows, and key and value the same length",
            )
        before: Tensor | None = None  # of a cache of a fixed length, how many positions are filled
        if own and taken is query and self.qkv is not None:
            q, k, v = (split_heads(t, self.heads) for t in split(self.qkv(query), (self.embed,) * 3, axis=2))
            q, k, v, before = self._extend(q, k, v, cache)
        elif own:
            parts = [split_heads(self._part(i, t), self.heads) for i, t in enumerate((query, source, taken))]
            q, k, v, before = self._extend(parts[0], parts[1], parts[2], cache)
        else:
            q = split_heads(self._part(0, query), self.heads)
            k, v = self._remember(source, taken, cache)
            if self.rotary is not None:
                q = self.rotary(q)
        if before is None:
            seen = self._mask(mask, key_mask, causal, q, k)
        else:
            there = _filled_mask(before, q.shape[2], k.shape[2], causal, q.device)
            seen = self._mask(mask, key_mask, False, q, k)
            seen = there if seen is None else logical_and(seen, there)
        y, weights = self._attend(q, k, v, seen, self._bias(bias, q, k), need_weights)
        joined: Tensor = self.out(join_heads(y))
        if own and cache is not None:  # only now: a call that is refused adds nothing
            cache._keep(k, v, None if before is None else before + query.shape[1], self)
        return (joined, weights) if need_weights else joined

    @property
    def _weight(self) -> Tensor:
        """A parameter, by whose device those of arguments are checked."""
        return self.out.weight

    @property
    def _key_weight(self) -> Tensor | None:
        """The parameter that keys are computed with; None where it is computed itself, as by ``weight_norm``."""
        return vars(self.k if self.qkv is None else self.qkv).get("weight")

    def _part(self, i: int, x: Tensor) -> Tensor:
        """Queries, keys or values (i = 0, 1, 2) of x alone."""
        if self.qkv is None:
            y: Tensor = (self.q, self.k, self.v)[i](x)
            return y
        rows = slice(i * self.embed, (i + 1) * self.embed)
        y = matmul(x, matrix_transpose(self.qkv.weight[rows]))
        return y if self.qkv.bias is None else y + narrow(self.qkv.bias[rows])

    def _extend(
        self, q: Tensor, k: Tensor, v: Tensor, cache: KeyValueCache | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:  # fmt: skip
        """Self-attention's queries, all its keys and values, and how many positions of a fixed length were filled before."""
        if cache is not None and cache.capacity is not None:
            state = cache._begun(k, v, self)
            if self.rotary is not None:
                q, k = (self.rotary(t, offset=state.filled, length=cache.capacity) for t in (q, k))
            return (q, *written(state, k, v)[:2], state.filled)
        if self.rotary is not None:
            offset = 0 if cache is None else cache.length
            q, k = self.rotary(q, offset=offset), self.rotary(k, offset=offset)
        return (q, k, v, None) if cache is None else (q, *cache._joined(k, v, self), None)

    def _remember(self, key: Tensor, value: Tensor, cache: KeyValueCache | None) -> tuple[Tensor, Tensor]:
        """Keys and values of a memory, from the cache if it has them."""
        if cache is not None and cache.capacity is not None:
            raise ConfigError(
                "MultiheadAttention: a cache of a fixed length is for self-attention; that of a memory has the memory's length",
                f"{cache!r}, and a key",
                "pass nn.KeyValueCache()",
            )
        if cache is not None and self.rotary is not None:
            raise ConfigError(
                "MultiheadAttention: with rotary, a query has a place, which the cache of a memory does not count",
                "a cache, a key, and rotary",
                "leave out the cache, or build the attention to the memory without rotary",
            )
        if cache is not None and hooks.trace() is not None:
            raise UnsupportedError(
                "MultiheadAttention: the cache of a memory is not used under jit, where no memory can be told from another",
                "a cache and a key",
                "leave out the cache, or call the layer outside jit",
            )
        if cache is not None:
            cache._check_use(self)
        if cache is not None and cache.keys is not None and cache.values is not None:
            cache._belong(self)
            if cache._memory == () and key.shape[:2] == (cache.keys.shape[0], cache.keys.shape[2]):
                cache._memory = (key.storage, value.storage)
            if not cache._memory or cache._memory[0] is not key.storage or cache._memory[1] is not value.storage:
                raise ConfigError(
                    "MultiheadAttention: a cache holds the keys and values of the memory it was first used with",
                    f"another {describe('key', key)}",
                    "use a new cache for a new memory",
                )
            return cache.keys, cache.values
        k, v = split_heads(self._part(1, key), self.heads), split_heads(self._part(2, value), self.heads)
        if self.rotary is not None:
            k = self.rotary(k)
        if cache is not None:
            cache.keys, cache.values, cache._memory = k, v, (key.storage, value.storage)
            cache._belong(self)
        return k, v

    def _mask(self, mask: Tensor | None, key_mask: Tensor | None, causal: bool, q: Tensor, k: Tensor) -> Tensor | None:
        """All masks in one, as a bool tensor that broadcasts to [batch, heads, n, m]."""
        batch, _, n, _ = q.shape
        m = k.shape[2]
        whole: Tensor | None = None
        if mask is not None:
            whole = self._four(mask, "mask", (batch, self.heads, n, m))
        if key_mask is not None:
            self._check_kind(key_mask, "key_mask")
            if key_mask.shape != (batch, m):
                raise ShapeError(
                    f"MultiheadAttention: key_mask is [batch, keys], here [{batch}, {m}]",
                    describe("key_mask", key_mask),
                    "pass True for each key that is no padding, those in the cache too",
                )
            real = self._four(reshape(key_mask, (batch, 1, 1, m)), "key_mask", (batch, self.heads, n, m))
            whole = real if whole is None else logical_and(whole, real)
        if causal and n > 1:
            if n > m:
                raise ShapeError(
                    "MultiheadAttention: causal attention needs at least as many keys as queries",
                    f"{n} queries and {m} keys",
                    "leave causal=False where queries and keys are not of one sequence",
                )
            past = causal_mask(n, m, q.device)
            whole = past if whole is None else logical_and(whole, past)
        return whole

    def _bias(self, bias: Tensor | None, q: Tensor, k: Tensor) -> Tensor | None:
        return None if bias is None else self._four(bias, "bias", (q.shape[0], self.heads, q.shape[2], k.shape[2]))

    def _check_kind(self, t: Any, name: str) -> None:
        """See that a mask is a tensor of bools, and a bias one of floats."""
        if not isinstance(t, Tensor):
            raise not_a_tensor("MultiheadAttention", name, t, self._weight.device.name)
        wanted = "float" if name == "bias" else "bool"
        if t.dtype.kind != wanted:
            remedy = "compare it, for example mask > 0; True is where a query may look" if wanted == "bool" else "cast it"
            raise DTypeError(f"MultiheadAttention: {name} needs a {wanted} dtype", describe(name, t), remedy)

    def _four(self, t: Any, name: str, goal: tuple[int, ...]) -> Tensor:
        """A mask or bias with four axes, or two."""
        self._check_kind(t, name)
        four = expand_dims(t, axis=1) if t.ndim == 3 else t
        if four.ndim not in (2, 4) or any(a not in (1, b) for a, b in zip(four.shape, goal[-four.ndim :], strict=True)):
            batch, heads, n, m = goal
            raise ShapeError(
                f"MultiheadAttention: {name} is [{n}, {m}], [{batch}, {n}, {m}] or [{batch}, {heads}, {n}, {m}]",
                describe(name, t),
                "axes of size 1 broadcast; reshape it",
            )
        return four

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, bias: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        dropping = self.dropout if self.training else None
        if not need_weights:
            p, generator = (0.0, None) if dropping is None else (dropping.p, dropping.generator)
            return scaled_dot_product_attention(q, k, v, mask=mask, bias=bias, dropout=p, generator=generator), None
        goal, (q, k, v) = result_type(q, k, v), map(widened, (q, k, v))  # as scaled_dot_product_attention does
        with autocast(None):
            scores = matmul(q * (1.0 / sqrt(q.shape[-1])), matrix_transpose(k))
            if bias is not None:
                scores = scores + bias
                seen = not_equal(bias, float("-inf"))  # a bias of -inf is a mask
                mask = seen if mask is None else logical_and(mask, seen)
            weights = softmax(scores) if mask is None else masked_softmax(scores, mask)
            joined = matmul(weights if dropping is None else dropping(weights), v)
        return astype(joined, goal, copy=False), astype(weights, goal, copy=False)

    def describe(self) -> str:
        more = [f"key_features={self.key_features}"] if self.key_features != self.embed else []
        more += [f"value_features={self.value_features}"] if self.value_features != self.key_features else []
        return ", ".join([f"{self.embed}, {self.heads}", *more])
