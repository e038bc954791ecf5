"""The loss of a ``Learner`` and of an evaluation for which none is named: the cross entropy of class numbers.

``cross_entropy`` takes floating targets for probabilities of classes. Where nobody named it, floating targets are nearly always
those of a regression or of an autoencoder, whose cross entropy has no meaning; so they are refused here.
"""

from __future__ import annotations

from typing import Any

from firebrick.core.errors import DTypeError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.functions.losses import cross_entropy


def default_loss(output: Any, target: Any) -> Tensor:
    """``cross_entropy(output, target)`` of class numbers.

    Raises:
        DTypeError: The target is floating.
    """
    if isinstance(target, Tensor) and target.dtype.kind == "float":
        raise DTypeError(
            "without loss=, the loss is the cross entropy of class scores and labels of an integer dtype",
            describe("target", target),
            "pass a loss: nn.MSELoss() for numbers, nn.BCEWithLogitsLoss() for scores of yes or no, nn.CrossEntropyLoss() for "
            "probabilities of classes; or cast labels to fb.int64",
        )
    return cross_entropy(output, target)


default_loss.__name__ = default_loss.__qualname__ = cross_entropy.__name__  # as checkpoints and messages name it
