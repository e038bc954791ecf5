"""Scaled dot-product attention, with masks, biases, causal order, dropout and grouped heads."""

from __future__ import annotations

import math
from typing import Any, Protocol

from firebrick.core.autocast import autocast, narrow
from firebrick.core.bind import bind
from firebrick.core.constants import constant
from firebrick.core.dtypes import bool_, result_type
from firebrick.core.errors import ConfigError, DTypeError, ShapeError
from firebrick.core.operands import check_devices, describe, not_a_tensor
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.precision import widened
from firebrick.core.settings import number
from firebrick.core.shapes import broadcast_shapes
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype, less_equal, logical_and, not_equal, where
from firebrick.functions.movement import broadcast_to, expand_dims
from firebrick.functions.normalisation import softmax
from firebrick.functions.ranges import arange
from firebrick.functions.utility import any as any_of
from firebrick.ops import OPS


class Bernoulli(Protocol):
    """What draws dropout's masks: ``firebrick.random.Generator`` does."""

    def bernoulli(self, shape: Any, *, p: float = 0.5, device: Any = None) -> Tensor:
        """True with probability p."""


@answers_arguments
def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, /, *, mask: Tensor | None = None, bias: Tensor | None = None,
    causal: bool = False, dropout: float = 0.0, generator: Bernoulli | None = None, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """dropout(softmax(scale · query keyᵀ + bias)) value, over the keys that a query may look at.

    A query that may look at no key gets 0. Half precision is computed in float32, and the result rounded once.

    Args:
        query: Floating tensor [..., n, d]; with four axes or more, [..., heads, n, d].
        key: Floating tensor [..., m, d]; of its heads there may be fewer, each for as many heads of the query that follow
            each other (grouped-query attention).
        value: Floating tensor [..., m, e], with the key's heads.
        mask: Bool tensor that broadcasts to [..., n, m]; True where a query may look.
        bias: Floating tensor that broadcasts to [..., n, m], added to the scores; -inf is like False in a mask.
        causal: Whether query i looks at keys 0 to i only, also where there are more or fewer keys than queries.
        dropout: Probability of dropping a weight, in [0, 1).
        generator: Draws what is dropped; needed with dropout.
        scale: Factor of the scores; 1 / √d by default.

    Returns:
        Tensor [..., n, e].

    Raises:
        ShapeError: Shapes do not fit.
        DTypeError: The mask is not bool, or another argument not floating.
        ConfigError: dropout lies outside [0, 1), or has no generator.

    Source: Vaswani et al., "Attention Is All You Need", arXiv:1706.03762; Ainslie et al., "GQA", arXiv:2305.13245.

    Example:
        >>> import firebrick as fb
        >>> q = fb.zeros((1, 2, 4))
        >>> v = fb.asarray([[[1.0], [3.0]]])
        >>> fb.scaled_dot_product_attention(q, q, v).tolist()
        [[[2.0], [2.0]]]
        >>> fb.scaled_dot_product_attention(q, q, v, causal=True).tolist()
        [[[1.0], [2.0]]]
    """
    weights = _check(query, key, value, mask, bias)
    if scale is not None:
        scale = number(_NAME, "scale", scale)
    if not 0.0 <= number(_NAME, "dropout", dropout) < 1.0:
        raise ConfigError(f"{_NAME}: dropout lies in [0, 1)", f"dropout = {dropout!r}", "pass a probability, e.g. 0.1")
    if dropout and not hasattr(generator, "bernoulli"):
        shown = f"generator={generator!r:.60}"
        raise ConfigError(f"{_NAME}: dropout needs a generator", shown, "pass generator=fb.random.Generator(seed)")
    query, key, value = map(narrow, (query, key, value))
    goal = result_type(*(t for t in (query, key, value, None if bias is None else narrow(bias)) if t is not None))
    with autocast(None):
        found = _computed(query, key, value, mask, bias, causal, dropout, generator, scale, weights)
    return astype(found, goal, copy=False)


def _computed(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None, causal: bool, dropout: float,
    generator: Bernoulli | None, scale: float | None, weights: tuple[int, ...],
) -> Tensor:  # fmt: skip
    """Attention of checked operands, half precision widened."""
    # scores overflow float16, and rounding large ones costs their softmax all its digits
    query, key, value = map(widened, (query, key, value))
    if query.ndim > 3 and key.shape[-3] not in (1, query.shape[-3]):
        times = query.shape[-3] // key.shape[-3]
        key, value = _repeated(key, times), _repeated(value, times)
    factor = scale if scale is not None else 1.0 / math.sqrt(max(1, query.shape[-1]))
    if bias is None and not dropout and key.shape[:-2] == query.shape[:-2] == value.shape[:-2]:
        seen = constant(True, bool_, query.device) if mask is None else mask
        return bind(  # type: ignore[no-any-return]
            OPS["attention"], (query, key, value, seen), {"scale": float(factor), "causal": causal}
        )
    scores = (query * factor) @ key.mT
    allowed = mask
    if bias is not None:
        scores = scores + bias
        allowed = _both(allowed, not_equal(bias, -math.inf))
    if causal:
        n, m = weights[-2:]
        rows, columns = (arange(size, device=query.device) for size in (n, m))
        allowed = _both(allowed, less_equal(columns, expand_dims(rows, axis=1)))
    attention = softmax(scores) if allowed is None else masked_softmax(scores, allowed)
    if dropout and generator is not None:
        kept = generator.bernoulli(attention.shape, p=1.0 - dropout, device=query.device)
        attention = where(kept, attention * (1.0 / (1.0 - dropout)), 0.0)
    return attention @ value


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """softmax over the places of the last axis where the mask is True; 0 elsewhere, also where it is True nowhere."""
    some = any_of(mask, axis=-1, keepdims=True) if mask.ndim else mask
    # finite in a row without any place, so that its gradients are 0 and not NaN
    hidden = where(some, constant(-math.inf, scores.dtype, scores.device), 0.0)
    return where(mask, softmax(where(mask, scores, hidden)), 0.0)


_NAME = "scaled_dot_product_attention"


def _both(a: Tensor | None, b: Tensor) -> Tensor:
    return b if a is None else logical_and(a, b)


def _repeated(x: Tensor, times: int) -> Tensor:
    """Each head as often as heads of the query use it."""
    shape = (*x.shape[:-2], times, *x.shape[-2:])
    return broadcast_to(expand_dims(x, axis=-3), shape).reshape(*x.shape[:-3], x.shape[-3] * times, *x.shape[-2:])


def _check(query: Any, key: Any, value: Any, mask: Any, bias: Any) -> tuple[int, ...]:
    """Check the operands; returns the shape of the weights."""
    given = {"query": query, "key": key, "value": value, "mask": mask, "bias": bias}
    for name, t in given.items():
        if not isinstance(t, Tensor) and (t is not None or name in ("query", "key", "value")):
            raise not_a_tensor(_NAME, name, t, None)
    check_devices(_NAME, **given)
    for name, t in given.items():
        if t is not None and name != "mask" and t.dtype.kind != "float":
            raise DTypeError(
                f"{_NAME}: {name} needs a floating dtype", describe(name, t), f"cast it: fb.astype({name}, fb.float32)"
            )
    if mask is not None and mask.dtype.kind != "bool":
        raise DTypeError(
            f"{_NAME}: mask needs the bool dtype",
            describe("mask", mask),
            "compare it, for example mask > 0, or pass it as bias",
        )
    shown = f"{describe('query', query)}, {describe('key', key)} and {describe('value', value)}"
    if min(query.ndim, key.ndim, value.ndim) < 2 or query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise ShapeError(f"{_NAME}: query [..., n, d], key [..., m, d], value [..., m, e]", shown, "check the last two axes")
    lead = [list(t.shape[:-2]) for t in (query, key, value)]
    if query.ndim > 3 and key.ndim == value.ndim == query.ndim:
        heads, kv = query.shape[-3], key.shape[-3]
        if kv > 1 and kv != heads and value.shape[-3] == kv and heads % kv == 0:
            lead[1][-1] = lead[2][-1] = heads
    try:
        shape = broadcast_shapes(*map(tuple, lead))
    except ShapeError:
        raise ShapeError(
            f"{_NAME}: the leading axes of query, key and value are equal or 1, and the key's heads divide the query's", shown,
            "reshape them",
        ) from None  # fmt: skip
    weights = (*shape, query.shape[-2], key.shape[-2])
    for name, t in (("mask", mask), ("bias", bias)):
        if t is not None and not _fits(t.shape, weights):
            raise ShapeError(f"{_NAME}: {name} broadcasts to the weights, {weights}", describe(name, t), "reshape it")
    return weights


def _fits(shape: tuple[int, ...], goal: tuple[int, ...]) -> bool:
    return len(shape) <= len(goal) and all(a in (1, b) for a, b in zip(shape[::-1], goal[::-1], strict=False))
