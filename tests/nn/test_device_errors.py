"""A layer whose operands or parameters are on different devices refuses them itself, and names them."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest
from sample_objects import LAYERS

import firebrick as fb
from firebrick import nn

SEVERAL = [name for name, (_, arrays) in LAYERS.items() if len(arrays) > 1]


def made(name: str) -> tuple[nn.Module, list[Any]]:
    """A layer on ``numpy:0``, and its arrays."""
    layer, (args, arrays) = getattr(nn, name), LAYERS[name]
    here = {"device": "numpy:0"} if "device" in inspect.signature(layer).parameters else {}
    return layer(*args, **here), list(arrays)


@pytest.mark.parametrize("name", SEVERAL)
def test_an_operand_of_a_layer_on_another_device_is_refused_by_name(name: str) -> None:
    layer, arrays = made(name)
    names = list(inspect.signature(layer.forward).parameters)[: len(arrays)]
    for other in range(len(arrays)):
        tensors = [fb.asarray(a, device=f"numpy:{int(i == other)}") for i, a in enumerate(arrays)]
        named = f"^{name}: .*\n.*{names[other]}: [^ ]* on numpy:1"
        with pytest.raises(fb.DeviceMismatchError, match=named):
            layer(*tensors)


PARAMETERS = [(name, path) for name in LAYERS for path, _ in made(name)[0].named_parameters()]


@pytest.mark.parametrize(("name", "path"), PARAMETERS)
def test_a_parameter_on_another_device_is_refused_by_name(name: str, path: str) -> None:
    layer, arrays = made(name)
    *way, last = path.split(".")
    part = layer
    for step in way:
        part = getattr(part, step)
    setattr(part, last, nn.Parameter(getattr(part, last).detach().to("numpy:1")))
    with pytest.raises(fb.DeviceMismatchError, match="on numpy:1") as error:
        layer(*(fb.asarray(a, device="numpy:0") for a in arrays))
    text = str(error.value)
    if way[-1:] != ["qkv"]:  # parts of these weights are operands of products with other tensors
        kinds = "|".join({type(m).__name__ for _, m in layer.modules()})
        assert re.match(rf"({kinds}): .*\n.*({re.escape(path)}|{last}): [^ ]* on numpy:1", text), text
