"""The factors of a tile's gradient: the inputs x and errors d of which the gradient of its weights, dᵀ x, is the product.

A pulsed update needs x and d of each sample, not their product. Gradients are tensors, so the factors are kept for the storage
of the gradient, as long as it lives. The gradient of a tile that is used several times in one pass is a sum, which the backward
pass makes: it has the factors of all uses, in the order of the uses. A gradient that was computed from others in another way,
such as a sum over several passes or a clipped one, has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import ref

from firebrick.autodiff.backward import sums
from firebrick.core.storage import Storage
from firebrick.core.tensor import Tensor


@dataclass(frozen=True)
class Factors:
    """Inputs and errors of one product.

    Attributes:
        x: Inputs [samples, columns].
        d: Errors [samples, rows].
    """

    x: Tensor
    d: Tensor


_KEPT: dict[int, tuple[ref[Storage], tuple[Factors, ...]]] = {}


def keep(gradient: Tensor, factors: tuple[Factors, ...]) -> None:
    """Keep the factors of a gradient.

    Args:
        gradient: Of a tile's weights.
        factors: Of each use of the tile, in their order.
    """
    storage = gradient.storage  # which handles of the gradient share
    key = id(storage)
    _KEPT[key] = ref(storage, lambda _: _KEPT.pop(key, None)), factors


def factors_of(gradient: Tensor) -> tuple[Factors, ...] | None:
    """The factors of a gradient, of each use of the tile in their order; None where it has none.

    Args:
        gradient: Of a tile's weights.
    """
    found = _KEPT.get(id(gradient.storage))
    return found[1] if found is not None and found[0]() is gradient.storage else None


def _keep_sum(later: Tensor, earlier: Tensor, total: Tensor) -> None:
    """Keep the factors of a sum of gradients; a sum of which a part has none has none."""
    after, before = factors_of(later), factors_of(earlier)
    if after is not None and before is not None:
        keep(total, before + after)


sums.append(_keep_sum)
