"""Keyword arguments of other libraries, and misspelt ones, are answered by the argument here."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick import data, models, nn, optim, train
from firebrick.core.other_arguments import ARGUMENTS, NOTES, unknown_argument

X, LABELS, MODEL = fb.asarray([[1.0, 2.0], [3.0, 5.0]]), fb.asarray([0, 1]), nn.Linear(2, 2)
MODULES: list[ModuleType] = [fb, fb.linalg, fb.fft, nn, optim, data, train, models]


def callables() -> Iterator[tuple[str, Any]]:
    for module in MODULES:
        for name in getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")]):
            member = getattr(module, name)
            if inspect.isfunction(member) or (isinstance(member, type) and not issubclass(member, BaseException)):
                yield f"{module.__name__}.{name}", member
    yield "Learner.fit", train.Learner.fit


def parameters(member: Any) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(member).parameters)
    except ValueError:
        return {}


CALLABLES = dict(callables())
PAIRS = [(key, here) for key, candidates in ARGUMENTS.items() for here in candidates]


@pytest.mark.parametrize(("key", "here"), PAIRS)
def test_an_argument_of_another_library_is_answered_by_the_one_here(key: str, here: str) -> None:
    taking = [m for m in CALLABLES.values() if here in (known := parameters(m)) and key not in known]
    assert taking, f"nothing takes {here} without {key}"
    best = [m for m in taking if next(c for c in ARGUMENTS[key] if c in parameters(m)) == here]
    assert best, f"{here} is never the answer to {key}"
    text = str(unknown_argument(best[0], {key: 1}))
    assert f"takes no argument {key}\nReceived: {key}=1.\nRemedy: " in text
    assert f"write {here}=" in text or f"pass {here} by position" in text


@pytest.mark.parametrize("key", NOTES)
def test_an_argument_without_a_counterpart_is_answered_by_what_to_do(key: str) -> None:
    def function(values: Any, /) -> None: ...

    assert str(unknown_argument(function, {key: 1})).endswith(f"Remedy: {NOTES[key]}.")


ANSWERS: dict[str, tuple[Callable[[], Any], str]] = {
    "dim": (lambda: fb.sum(X, dim=1), "sum takes no argument dim\nReceived: dim=1.\nRemedy: write axis=1."),
    "keepdim": (
        lambda: fb.max(X, axis=1, keepdim=True),
        "max takes no argument keepdim\nReceived: keepdim=True.\nRemedy: write keepdims=True.",
    ),
    "a method": (lambda: X.mean(dim=(0, 1)), "x.mean takes no argument dim\nReceived: dim=(0, 1).\nRemedy: write axis=(0, 1)."),
    "by position": (
        lambda: fb.cross_entropy(X, LABELS, target=LABELS),
        "cross_entropy takes no argument target\nReceived: target=… (Tensor).\n"
        "Remedy: pass labels by position: cross_entropy(logits, labels, …).",
    ),
    "two": (
        lambda: nn.Embedding(num_embeddings=3, embedding_dim=4),
        "Embedding takes no argument num_embeddings or embedding_dim\nReceived: num_embeddings=3, embedding_dim=4.\n"
        "Remedy: write count=3; write features=4.",
    ),
    "a layer": (
        lambda: nn.Conv2d(1, 2, kernel_size=3),
        "Conv2d takes no argument kernel_size\nReceived: kernel_size=3.\nRemedy: write kernel=3.",
    ),
    "a layer without settings": (
        lambda: nn.ReLU(inplace=True),
        "ReLU takes no argument inplace\nReceived: inplace=True.\n"
        "Remedy: leave it out: no operation changes its operands, and a compiled one reuses their memory.",
    ),
    "a base of layers": (
        lambda: nn.Dropout(rate=0.1),
        "Dropout takes no argument rate\nReceived: rate=0.1.\nRemedy: write p=0.1.",
    ),
    "an optimizer": (
        lambda: optim.Adam(MODEL, learning_rate=0.1),
        "Adam takes no argument learning_rate\nReceived: learning_rate=0.1.\nRemedy: write lr=0.1.",
    ),
    "a value of another form": (
        lambda: optim.Adam(MODEL, beta1=0.9),
        "Adam takes no argument beta1\nReceived: beta1=0.9.\nRemedy: write betas=….",
    ),
    "a schedule": (
        lambda: optim.cosine(0.1, T_max=10),
        "cosine takes no argument T_max\nReceived: T_max=10.\nRemedy: write steps=10.",
    ),
    "a loader": (
        lambda: data.DataLoader(data.ArrayDataset(np.zeros(3)), 2, workers=2),
        "DataLoader takes no argument workers\nReceived: workers=2.\nRemedy: write num_workers=2.",
    ),
    "a learner": (
        lambda: train.Learner(MODEL, optim.SGD(MODEL, 0.1), criterion=fb.mse_loss),
        "Learner takes no argument criterion\nReceived: criterion=… (function).\nRemedy: write loss=….",
    ),
    "a model": (
        lambda: models.cnn(num_classes=3),
        "cnn takes no argument num_classes\nReceived: num_classes=3.\nRemedy: write classes=3.",
    ),
    "a metric": (
        lambda: train.F1(num_classes=3),
        "F1 takes no argument num_classes\nReceived: num_classes=3.\nRemedy: write classes=3.",
    ),
    "a transform": (
        lambda: fb.grad(fb.sum, argnums=1),
        "grad takes no argument argnums\nReceived: argnums=1.\n"
        "Remedy: the gradient is by the first argument: make that a tuple of tensors, or reorder by a lambda.",
    ),
    "jit": (
        lambda: fb.jit(fb.sum, static_argnums=1),
        "jit takes no argument static_argnums\nReceived: static_argnums=1.\nRemedy: write static_argnames=….",
    ),
    "a module that is called": (
        lambda: MODEL(input=X),
        "Linear.forward takes no argument input\nReceived: input=… (Tensor).\nRemedy: write x=….",
    ),
    "a misspelling": (
        lambda: nn.Linear(2, 2, biass=False),
        "Linear takes no argument biass\nReceived: biass=False.\nRemedy: write bias=, if that is meant.",
    ),
    "an unknown one": (
        lambda: fb.softmax(X, temperature=2.0),
        "softmax takes no argument temperature\nReceived: temperature=2.0.\nRemedy: its only keyword argument is axis.",
    ),
    "one where there is none": (
        lambda: fb.ravel(X, quux=1),
        "ravel takes no argument quux\nReceived: quux=1.\nRemedy: it takes no keyword arguments.",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_a_call_with_an_unknown_argument_is_answered(name: str) -> None:
    call, text = ANSWERS[name]
    with pytest.raises(fb.ArgumentError) as caught:
        call()
    assert str(caught.value) == text
    assert isinstance(caught.value, TypeError)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert str(pickle.loads(pickle.dumps(caught.value))) == text


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: fb.zeros(2, 3), "zeros(2, 3).\nRemedy: write them as one tuple: zeros((2, 3))."),  # type: ignore[arg-type]
        (
            lambda: fb.ones((2, 3), fb.int32),
            "ones((2, 3), … (DType)).\nRemedy: name what comes after the shape: dtype=, device=.",
        ),  # type: ignore[arg-type]
        (lambda: fb.empty(2, 3, "cpu"), "empty(2, 3, 'cpu').\nRemedy: name what comes after"),  # type: ignore[arg-type]
        (lambda: fb.reshape(X, 4, 1), "reshape(x, 4, 1).\nRemedy: write them as one tuple: reshape(x, (4, 1))."),  # type: ignore[arg-type]
        (lambda: fb.permute_dims(X, 1, 0), "Remedy: write them as one tuple: permute_dims(x, (1, 0))."),  # type: ignore[arg-type]
        (lambda: fb.broadcast_to(X, 2, 2, 2), "Remedy: write them as one tuple: broadcast_to(x, (2, 2, 2))."),  # type: ignore[arg-type]
    ],
)
def test_sizes_and_axes_one_by_one_are_answered_by_the_tuple(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(fb.ArgumentError, match="takes the shape or axes as one argument") as caught:
        call()
    assert text in str(caught.value)


def open_functions() -> Iterator[tuple[str, Any]]:
    """All that takes any keyword argument in order to answer it."""
    for module in (fb, fb.linalg, fb.fft, fb.random):
        for name in public(module):
            member = getattr(module, name)
            if callable(member) and not isinstance(member, type) and "_other" in parameters(member):
                yield f"{module.__name__}.{name}", member
    for name, member in inspect.getmembers(fb.Tensor, inspect.isfunction):
        if "_other" in parameters(member):
            yield f"x.{name}", member


def public(module: ModuleType) -> list[str]:
    return list(getattr(module, "__all__", [n for n in vars(module) if not n.startswith("_")]))


@pytest.mark.parametrize(("name", "function"), list(open_functions()))
def test_every_function_answers_an_argument_that_it_has_not(name: str, function: Any) -> None:
    places = [p for p in parameters(function).values() if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
    with pytest.raises(fb.ArgumentError) as caught:
        function(*[X for _ in places], quux=1)
    shown = name if name.startswith("x.") else name.rpartition(".")[2]
    assert str(caught.value).startswith(f"{shown} takes no argument quux\nReceived: quux=1.\nRemedy: ")


def test_many_functions_are_asked() -> None:
    assert len(list(open_functions())) > 40


def test_every_function_along_an_axis_answers_dim() -> None:
    for name, function in CALLABLES.items():
        if "axis" in parameters(function) and inspect.isfunction(function):
            accepted = [p for p in parameters(function).values() if p.kind is p.VAR_KEYWORD]
            assert accepted or hasattr(function, "__wrapped__"), name


def test_an_error_inside_a_layer_is_not_taken_for_an_unknown_argument() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'out_features'"):
        nn.Linear(2)
    with pytest.raises(fb.OperandError, match="x must be a Firebrick tensor"):
        MODEL(x=[1.0])


def test_a_module_of_the_users_own_gets_pythons_error() -> None:
    class Own(nn.Module):
        def forward(self, x: fb.Tensor) -> fb.Tensor:
            return x

    with pytest.raises(TypeError, match=r"Own\.forward\(\) got an unexpected keyword argument 'y'"):
        Own()(y=X)
    with pytest.raises(TypeError, match=r"Own\(\) takes no arguments"):
        Own(3)  # type: ignore[call-arg]


def test_a_mixin_after_module_is_still_initialized() -> None:
    class Named:
        def __init__(self) -> None:
            self.name = "n"

    class Own(nn.Module, Named): ...

    assert Own().name == "n"


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: fb.gelu(fb.ones(2), "tanh"), r"gelu takes 1 argument by position \(x\)(?s:.*)by name: approximate='tanh'\."),
        (lambda: fb.nn.Dropout(0.5, True), r"Dropout takes 1 argument by position \(p\)(?s:.*)by name: seed=…, generator=…\."),
        (
            lambda: fb.train.Learner(fb.nn.Linear(1, 1), None, fb.mse_loss, None),
            r"Learner takes 3 arguments by position \(model, optimizer, loss\)(?s:.*)by name: strategy=…, out=…",
        ),
    ],
)
def test_arguments_by_position_that_have_names_only_are_answered_by_the_names(call: Any, text: str) -> None:
    with pytest.raises(fb.ArgumentError, match=text):
        call()


@pytest.mark.parametrize("name", ["leaky_relu", "elu", "celu", "softplus", "softshrink", "hardshrink"])
def test_the_setting_of_an_activation_may_come_by_position(name: str) -> None:
    x, fn = fb.asarray([-2.0, -0.1, 0.5]), getattr(fb, name)
    (setting,) = [n for n in inspect.signature(fn).parameters if n not in ("x", "_other")]
    assert fn(x, 0.3).tolist() == fn(x, **{setting: 0.3}).tolist() != fn(x).tolist()


COUNTED = [
    name
    for name, member in CALLABLES.items()
    if inspect.isfunction(member) and member.__module__.startswith("firebrick.functions")
    if "__" not in name
    and member.__code__.co_name != "function"  # a single elementwise operation, whose operands Python counts
    if not any(p.kind is p.VAR_POSITIONAL for p in parameters(member).values())
]


@pytest.mark.parametrize("name", COUNTED)
def test_a_function_answers_more_arguments_by_position_than_it_takes(name: str) -> None:
    places = [p for p in parameters(CALLABLES[name]).values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    with pytest.raises(fb.ArgumentError, match=r"by position(.|\n)*(by name: |leave them out)"):
        CALLABLES[name](*[None] * len(places), None)


def test_most_functions_answer_more_arguments_by_position_than_they_take() -> None:
    assert len(COUNTED) > 200


def test_a_layer_without_arguments_answers_those_of_pytorch() -> None:
    text = "ReLU takes no arguments by position\nReceived: True.\nRemedy: leave them out: there are no other arguments."
    with pytest.raises(fb.ArgumentError) as caught:
        nn.ReLU(True)  # type: ignore[call-arg]
    assert str(caught.value) == text
