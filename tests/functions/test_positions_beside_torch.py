"""Arguments by position mean what they mean in PyTorch wherever a name is in both: its programs are typed from memory.

Where PyTorch has another argument at a place, ours is given by name only, so that a call written for PyTorch is refused with
the names instead of computing something else.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import firebrick as fb
from firebrick import data, nn, optim
from firebrick.core.other_arguments import ARGUMENTS

torch = pytest.importorskip("torch")

PAIRS: list[tuple[str, Any, list[Any], str]] = [
    ("fb", fb, [torch.nn.functional, torch, torch.func], ""),
    ("fb.linalg", fb.linalg, [torch.linalg], ""),
    ("fb.fft", fb.fft, [torch.fft], ""),
    ("fb.random", fb.random, [torch], ""),
    ("nn", nn, [torch.nn], ""),
    ("nn.initial", nn.initial, [torch.nn.init], "_"),
    ("optim", optim, [torch.optim], ""),
    ("data", data, [torch.utils.data], ""),
    ("x", fb.Tensor, [torch.Tensor], ""),
]

SAME: dict[str, str] = {
    # names of arguments that are taken by position there, so that nobody writes them as keywords
    "axis1": "axis0", "axis2": "axis1", "coefficients": "ns_coefficients", "decoupled": "decoupled_weight_decay",
    "in_axes": "in_dims", "out_axes": "out_dims",
    "device": "args", "im": "imag", "init": "carried_inputs", "initial": "initial_accumulator_value", "n_cols": "col",
    "n_rows": "row", "re": "real", "repetitions": "dims", "shape": "tensor", "slope": "a", "value": "val",
    "x": "A ext_tensor", "x1": "A elements sorted_sequence", "x2": "B exponent test_elements values",
}  # fmt: skip

OF_ANOTHER_FORM: dict[str, str] = {
    # what each is given there is refused here by its type, with the remedy
    "fb.autocast": "a device's name is no dtype",
    "optim.Optimizer": "a base class, which nobody makes",
    "fb.random.normal": "a mean is no shape",
    "fb.random.bernoulli": "a tensor of probabilities is no shape",
    "fb.random.multinomial": "a tensor of weights is no shape",
    "fb.random.poisson": "a tensor of rates is no shape",
    "fb.index_add": "three tensors here, an axis and two tensors there",
    "fb.index_copy": "three tensors here, an axis and two tensors there",
    "fb.scatter": "three tensors here, an axis and two tensors there",
    "fb.scatter_add": "three tensors here, an axis and two tensors there",
    "nn.TransformerEncoder": "a layer is no number of features",
    "nn.TransformerDecoder": "a layer is no number of features",
    "data.RandomSampler": "a data set is no number of samples",
    "data.SequentialSampler": "a data set is no number of samples",
}
LOSSES = ("reduction", {"weight", "size_average", "margin", "blank", "log_input"})  # a reduction is a str, these are none


def places(member: Any) -> list[str] | None:
    """Names of the arguments that a callable takes by position."""
    if inspect.isclass(member):
        member = member.__init__
    try:
        parameters = [p for p in inspect.signature(member).parameters.values() if p.name != "self" and p.name[0] != "_"]
    except (TypeError, ValueError):
        parameters = []
    found = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if found or any(p.kind is p.KEYWORD_ONLY for p in parameters):
        return found
    written = re.match(r"\s*\w+(?:\.\w+)*\((.*?)\)", member.__doc__ or "", re.DOTALL)  # of a function in C++
    if written is None:
        return None
    before = re.split(r"\*,|\bout=|\bdtype=|\bgenerator=", written.group(1).replace("*size", "size"))[0]
    names = [re.split(r"[=:]", part.strip(" \n\\"))[0].split(" ")[-1].strip("*[]") for part in before.split(",")]
    return [name for name in names if name.isidentifier()]


def shared() -> Iterator[tuple[str, list[str], list[str]]]:
    """Names in both, with what each takes by position."""
    for label, ours, theirs, suffix in PAIRS:
        for name in dir(ours):
            member = None if name.startswith("_") else getattr(ours, name)
            if not callable(member) or (inspect.isclass(member) and label in ("fb", "x")):
                continue
            for other in theirs:
                counterpart = getattr(other, name + suffix, None)
                if callable(counterpart):
                    here, there = places(member), places(counterpart)
                    if label == "x" and there and there[0] in ("self", "input"):
                        there = there[1:]
                    if here and there:
                        yield f"{label}.{name}", here, there
                    break


def same(here: str, there: str) -> bool:
    return here == there or here in ARGUMENTS.get(there, ()) or there in SAME.get(here, "").split()


def otherwise(here: list[str], there: list[str]) -> list[tuple[str, str]]:
    """Pairs of arguments at the same place with another meaning."""
    pairs = list(zip(here, there, strict=False))
    return [p for p in pairs if not same(*p) and not (p[0] == LOSSES[0] and p[1] in LOSSES[1])]


SHARED = {name: (here, there) for name, here, there in shared()}


def test_most_names_are_compared() -> None:
    assert len(SHARED) > 250
    assert {
        "nn.Conv2d",
        "nn.MaxPool2d",
        "fb.conv2d",
        "fb.max_pool2d",
        "optim.SGD",
        "fb.sum",
        "nn.initial.normal",
    } <= SHARED.keys()


@pytest.mark.parametrize("name", sorted(SHARED.keys() - OF_ANOTHER_FORM.keys()))
def test_an_argument_by_position_means_what_it_means_in_pytorch(name: str) -> None:
    assert otherwise(*SHARED[name]) == []


@pytest.mark.parametrize("name", OF_ANOTHER_FORM)
def test_what_is_excepted_differs(name: str) -> None:
    assert otherwise(*SHARED[name])


def test_the_comparison_notices_an_exchanged_place() -> None:
    assert otherwise(["kernel", "stride", "padding"], ["kernel_size", "dilation", "padding"]) == [("stride", "dilation")]


IMAGE = fb.zeros((1, 2, 4, 4))
REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "a transposed convolution": (
        lambda: nn.ConvTranspose2d(3, 8, 3, 1, 0, 0, 2, True, 1),  # type: ignore[misc]
        "ConvTranspose2d takes 6 arguments by position (in_channels, out_channels, kernel, stride, padding, output_padding)",
    ),
    "max pooling with indices": (lambda: nn.MaxPool2d(2, 2, 0, 1, True), "MaxPool2d takes 4 arguments by position"),  # type: ignore[call-overload]
    "patches": (lambda: nn.Unfold(3, 1, 1, 2), "Unfold takes 1 argument by position (kernel)"),  # type: ignore[misc]
    "images of patches": (lambda: nn.Fold(4, 3, 1, 1, 2), "Fold takes 2 arguments by position (size, kernel)"),  # type: ignore[misc]
    "bags": (lambda: nn.EmbeddingBag(10, 3, "sum"), "EmbeddingBag takes 2 arguments by position (count, features)"),  # type: ignore[misc]
    "windows": (lambda: fb.unfold(IMAGE, 3, 1, 1), "unfold takes 1 argument by position (x)"),  # type: ignore[misc]
    "batch norm": (lambda: fb.batch_norm(IMAGE, fb.zeros(2), fb.ones(2)), "batch_norm takes 1 argument by position (x)"),  # type: ignore[misc]
    "instance norm": (lambda: fb.instance_norm(IMAGE, None, None), "instance_norm takes 1 argument by position (x)"),  # type: ignore[misc]
    "layer norm": (lambda: fb.layer_norm(IMAGE, (4,)), "pass the others by name: weight=…, bias=…, shape=…"),  # type: ignore[misc]
    "RMS norm": (lambda: fb.rms_norm(IMAGE, (4,)), "pass the others by name: weight=…, shape=…"),  # type: ignore[misc]
    "vector norm": (lambda: fb.linalg.vector_norm(IMAGE, 1), "pass the others by name: axis=…, keepdims=…, ord=…"),  # type: ignore[misc]
    "logits": (
        lambda: fb.binary_cross_entropy_with_logits(IMAGE, IMAGE, None, False),  # type: ignore[misc]
        "takes 3 arguments by position (logits, target, weight)",
    ),
    "normal values": (lambda: nn.initial.normal((2,), 0.0, 0.02), "normal takes 1 argument by position (shape)"),  # type: ignore[misc]
    "uniform values": (lambda: nn.initial.uniform((2,), -0.1, 0.1), "uniform takes 1 argument by position (shape)"),  # type: ignore[misc]
    "truncated values": (lambda: nn.initial.trunc_normal((2,), 0.0, 0.02), "trunc_normal takes 1 argument by position"),  # type: ignore[misc]
    "SGD": (lambda: optim.SGD(nn.Linear(1, 1), 0.1, 0.9, 0, 1e-4), "SGD takes 3 arguments by position (model, lr, momentum)"),  # type: ignore[misc]
    "Muon": (lambda: optim.Muon(nn.Linear(1, 1), 0.1, 0.1, 0.9, True, (3.0, -4.0, 2.0), 1e-7), "Muon takes 6 arguments"),  # type: ignore[misc]
    "a bool as an axis": (lambda: fb.std(IMAGE, True), "std: axis"),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_a_call_that_is_typed_as_for_pytorch_is_answered_by_the_names(mistake: str) -> None:
    call, text = REFUSED[mistake]
    with pytest.raises((fb.ArgumentError, fb.FirebrickError), match=re.escape(text)):
        call()
