"""``x.item`` without its call is answered by ``x.item()``; with it, and as a function of the class, it is what it was."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import nn

X = fb.asarray(2.0)


@pytest.mark.parametrize(
    "use",
    [
        lambda item: f"{item:.4f}", lambda item: 1.0 + item, lambda item: item * 2, float, round,
        lambda item: sum([item, item]), lambda item: np.mean([item, item]),
        lambda item: np.float32(1.0) / item, lambda item: item < 1.0,
        lambda item: max(item, item), operator.neg, lambda item: item[0],
    ],
)  # fmt: skip
def test_a_use_of_item_as_a_number_is_answered_by_its_call(use: Callable[[Any], Any]) -> None:
    with pytest.raises(fb.OperandError) as caught:
        use(X.item)
    assert str(caught.value) == (
        "item is a method, and a number is what its call returns\nReceived: x.item of x: float32[].\nRemedy: write x.item()."
    )


def test_item_is_called_as_a_method_a_function_of_the_class_and_a_value() -> None:
    assert X.item() == fb.Tensor.item(X) == next(map(fb.Tensor.item, [X])) == nn.Parameter(X).item() == 2.0
    assert pickle.loads(pickle.dumps(X.item))() == 2.0
    assert callable(X.item)
    assert f"{X.item}" == repr(X.item) == "<method Tensor.item: call it>"
    assert fb.Tensor.item.__doc__ == "The value of a tensor of one element, as a Python scalar."
    with pytest.raises(TypeError, match="takes 1 positional argument"):
        X.item(0)  # type: ignore[call-arg]
