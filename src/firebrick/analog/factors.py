"""The factors of a tile's gradient: the inputs x and errors d of which the gradient of its weights, dᵀ x, is the product.

A pulsed update needs x and d of each sample, not their product. Gradients are tensors, so the factors are kept for the storage
of the gradient, as long as it lives. A gradient that was computed from others, such as a sum over several passes or a
clipped one, has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import ref

from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor


@dataclass(frozen=True)
class Factors:
    """Inputs and errors of one backward pass.

    Attributes:
        x: Inputs [samples, columns].
        d: Errors [samples, rows].
    """

    x: Tensor
    d: Tensor


_KEPT: dict[int, tuple[ref[Storage], Factors]] = {}


def keep(gradient: Tensor, factors: Factors) -> None:
    """Keep the factors of a gradient.

    Args:
        gradient: Of a tile's weights.
        factors: Its factors.
    """
    storage = gradient.storage  # which handles of the gradient share
    key = id(storage)
    _KEPT[key] = ref(storage, lambda _: _KEPT.pop(key, None)), factors


def factors_of(gradient: Tensor) -> Factors | None:
    """The factors of a gradient; None where it has none.

    Args:
        gradient: Of a tile's weights.
    """
    found = _KEPT.get(id(gradient.storage))
    return found[1] if found is not None and found[0]() is gradient.storage else None
