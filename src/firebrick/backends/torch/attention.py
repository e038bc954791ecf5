"""Attention and its gradient, by PyTorch's products and softmax."""

from __future__ import annotations

from typing import Any

import torch

from firebrick.backends.torch.contraction import matmul
from firebrick.backends.torch.precision import Kernel


def _hidden(query: Any, key: Any, mask: Any, causal: bool) -> Any:
    """Where a query may not look, or None if nowhere; it broadcasts to the scores."""
    if not causal:
        return ~mask
    n, m = query.shape[-2], key.shape[-2]
    return ~(mask & torch.ones((n, m), dtype=torch.bool, device=query.device).tril())


def attention(query: Any, key: Any, value: Any, mask: Any, *, scale: float, causal: bool) -> tuple[Any, Any]:
    """softmax(scale · query keyᵀ) value, and log Σ exp of each row's scores."""
    s = matmul(query * scale, key.mT)
    if not s.shape[-1]:
        return matmul(s, value), torch.full(s.shape[:-1], -torch.inf, dtype=s.dtype, device=s.device)
    hidden = _hidden(query, key, mask, causal)
    blind = hidden.expand(s.shape).all(-1)
    s = s.masked_fill(hidden, -torch.inf)
    # a row that sees keys, but with weight 0 each, has no mean: its softmax is NaN
    y = matmul(torch.softmax(s, -1).masked_fill(blind[..., None], 0.0), value)
    sums = torch.logsumexp(s, -1)
    return y, torch.where(torch.isneginf(sums) & ~blind, torch.nan, sums)


def attention_gradient(
    g: Any, query: Any, key: Any, value: Any, mask: Any, sums: Any, delta: Any, *, scale: float, causal: bool
) -> tuple[Any, Any, Any]:
    """The cotangents of query, key and value."""
    hidden = _hidden(query, key, mask, causal)
    q = query * scale
    p = torch.exp(matmul(q, key.mT) - sums[..., None]).masked_fill(hidden, 0.0)
    u = (p * (matmul(g, value.mT) - delta[..., None])).masked_fill(hidden, 0.0)
    return matmul(u, key) * scale, matmul(u.mT, q), matmul(p.mT, g)


KERNELS: dict[str, Kernel] = {"attention": attention, "attention_gradient": attention_gradient}
