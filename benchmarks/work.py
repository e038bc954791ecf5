"""What is measured: a piece of work, described so that every contender can do the same and its results can be compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, Any]]


CONVOLUTIONS = {
    f"{kind} {size}": 2 if size.endswith("stride 2") else 1
    for kind in ("depthwise", "grouped")
    for size in ("16²", "8²", "16² stride 2")
}
"""Convolutions with one channel and with ``OF_GROUP`` channels in a group, by name, and their strides."""
OF_GROUP = 8


def _nothing(result: Any) -> None:
    """For contenders whose calls return when they are done."""


@dataclass
class Ready:
    """A piece of work, ready to run.

    Attributes:
        call: Does it once.
        read: Arrays of a call's result, to compare.
        wait: Returns when a call's result is there.
        facts: What the contender knows of the work: ``flops`` of its products, ``bytes`` that it must move at least.
    """

    call: Callable[[], Any]
    read: Callable[[Any], list[np.ndarray[Any, Any]]]
    wait: Callable[[Any], None] = _nothing
    facts: Callable[[], dict[str, float]] = dict


Variants = dict[str, Callable[[], Ready]]
"""The forms in which a contender can do a piece of work, by name."""


@dataclass
class Work:
    """A piece of work.

    Attributes:
        name: In the table.
        kind: "training", "inference", "rows", "products" or "copy".
        model: Network, or function of rows.
        batch: Size of the batch.
        threads: Threads that a contender may use.
        ratio: Target against the best peer; None for no target of that kind.
        share: Target as a share of the rate of copying; None for none.
        gradient: Whether functions of rows are differentiated too.
        shape: Of functions of rows' operand; (m, k, n), or (batch, m, k, n), of products.
        count: Factors on each side; each on the left is multiplied by each on the right.
        dropout: Probability of dropout, in training.
        eager: Whether a training step is not compiled; of the peers, PyTorch alone is measured then.
        arrays: Initial parameters by name.
    """

    name: str
    kind: str
    model: str = ""
    batch: int = 0
    threads: int = 1
    ratio: float | None = None
    share: float | None = None
    gradient: bool = False
    shape: tuple[int, ...] = ()
    count: tuple[int, int] = (1, 1)
    dropout: float = 0.0
    eager: bool = False
    arrays: Arrays = field(default_factory=dict, repr=False)

    @property
    def steps(self) -> int:
        """Calls whose results are compared: several steps of a training, as they build on one another."""
        return 4 if self.kind == "training" else 1

    @property
    def each(self) -> bool:
        """Whether each call is waited for, as the next does not build on it."""
        return self.kind != "training"

    def operands(self) -> list[np.ndarray[Any, Any]]:
        """Operands of a function of rows, and with ``gradient`` the cotangent of its result."""
        rng = np.random.default_rng(2)
        normal: Callable[..., Any] = partial(rng.standard_normal, dtype=np.float32)
        found = [normal(self.shape)]
        if self.model == "layer_norm":
            found += [normal(self.shape[-1:]), normal(self.shape[-1:])]
        if self.model == "cross_entropy":
            found.append(rng.integers(0, self.shape[-1], self.shape[:-1]))
        if self.model in CONVOLUTIONS:
            found.append(normal((self.shape[1], 1 if self.model.startswith("depthwise") else OF_GROUP, 3, 3)))
        if self.model.startswith("causal attention"):
            found += [normal(self.shape), normal(self.shape)]
        if self.gradient:
            stride = CONVOLUTIONS.get(self.model, 1)
            shape = (*self.shape[:2], *(n // stride for n in self.shape[2:]))
            found.append(np.ones((), np.float32) if self.model == "cross_entropy" else normal(shape))
        return found

    def factors(self) -> tuple[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]:
        """Left and right factors of products."""
        rng = np.random.default_rng(3)
        *batch, m, k, n = self.shape
        left, right = self.count
        return (
            [rng.standard_normal((*batch, m, k), dtype=np.float32) for _ in range(left)],
            [rng.standard_normal((*batch, k, n), dtype=np.float32) for _ in range(right)],
        )

    @property
    def products(self) -> int:
        """Number of products of one call."""
        return prod(self.count)
