"""Attention and its gradient, by PyTorch's products and softmax."""

from __future__ import annotations

from typing import Any

import torch

from firebrick.backends.torch.contraction import matmul
from firebrick.backends.torch.precision import Kernel


def _hidden(query: Any, key: Any, mask: Any, causal: bool) -> Any:
    """The mask of keys that a query must not attend to, or None if there are none; it broadcasts to the scores."""
    if not causal:
        return ~mask
    n, m = query.shape[-2], key.shape[-2]
    return ~(mask & torch.ones((n, m), dtype=torch.bool, device=query.device).tril())


def _weights(q: Any, key: Any, hidden: Any) -> Any:
    s = matmul(q, key.mT)
    if not s.shape[-1]:
        return s
    blind = hidden.expand(s.shape).all(-1, keepdim=True)
    # a row that sees keys, but with weight 0 each, has no mean: its softmax is NaN
    return torch.softmax(s.masked_fill(hidden, -torch.inf), -1).masked_fill(blind, 0.0)


def attention(query: Any, key: Any, value: Any, mask: Any, *, scale: float, causal: bool) -> Any:
    """softmax(scale · query keyᵀ) value, row by row."""
    return matmul(_weights(query * scale, key, _hidden(query, key, mask, causal)), value).contiguous()


def attention_gradient(
    g: Any, query: Any, key: Any, value: Any, mask: Any, *, scale: float, causal: bool
) -> tuple[Any, Any, Any]:  # fmt: skip
    """The cotangents of query, key and value."""
    hidden = _hidden(query, key, mask, causal)
    q = query * scale
    p = _weights(q, key, hidden)
    w = matmul(g, value.mT).masked_fill(hidden, 0.0)
    u = p * (w - torch.sum(p * w, -1, keepdim=True))
    return matmul(u, key) * scale, matmul(u.mT, q), matmul(p.mT, g)


KERNELS: dict[str, Kernel] = {"attention": attention, "attention_gradient": attention_gradient}
