"""What a checkpoint keeps of settings, as texts: equal settings have equal texts, and others have others."""

import dataclasses
import hashlib
from functools import partial
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.train import settings
from firebrick.train.description import listed, of_loss, of_model, of_settings


@dataclasses.dataclass
class Noise:
    scale: float
    kind: Any = None


def named() -> None:
    """A function among settings."""


LONG = "x" * 119  # 121 characters with its quotes


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "None"),
        (True, "True"),
        (2, "2"),
        (2.0, "2"),
        (0.1, "0.1"),
        (float("inf"), "inf"),
        (1j, "1j"),
        ("a", "'a'"),
        (b"a", "b'a'"),
        (np.float64(0.1), "0.1"),
        (np.int32(2), "2"),
        (np.bool_(True), "True"),
        (np.float32(2.0), "2"),
        (fb.bfloat16, "bfloat16"),
        ([1, 2.0], "(1, 2)"),
        ((1, (np.int8(3),)), "(1, (3))"),
        ({"a": 1, 2: [0.5]}, "{a: 1, 2: (0.5)}"),
        ({"b", "a"}, "{'a', 'b'}"),
        (frozenset({2, 1}), "{1, 2}"),
        (np.asarray([1.0, 0.333333333]), "float64[2] of 1,0.3333"),
        (np.asarray([[1j]]), "complex128[1, 1] of 0+1j"),
        (np.asarray([123456], np.int32), "int32[1] of 123456"),
        (fb.asarray([True]), "bool[1] of True"),
        (np.ones(30, np.int8), f"int8[30] of {','.join('1' * 30)}"),
        (np.ones(31, np.int8), f"int8[31] of sha256 {hashlib.sha256(','.join('1' * 31).encode()).hexdigest()[:12]}"),
        (Noise(1.0, "b"), "Noise(scale=1, kind='b')"),
        (Noise, "Noise"),
        (named, "named"),
        (object(), "object"),
        (LONG[:-1], repr(LONG[:-1])),
        (LONG, f"{repr(LONG)[:120]}… (sha256 {hashlib.sha256(repr(LONG).encode()).hexdigest()[:12]})"),
    ],
)
def test_a_setting_is_a_short_text(value: Any, text: str) -> None:
    assert of_settings({"a": value}) == {"a": text}


@pytest.mark.parametrize(
    "value",
    [
        fb.nn.Linear(1, 1),
        fb.nn.Parameter(fb.ones(1)),
        fb.nn.Buffer(fb.ones(1)),
        fb.random.Generator(1),
        fb.device("cpu:1"),
        [1, fb.nn.Identity()],
        {"a": ([fb.nn.Identity()], 1)},
        {1: {"b": fb.random.Generator(1)}},
    ],
    ids=str,
)
def test_parts_that_have_entries_of_their_own_and_devices_are_left_out(value: Any) -> None:
    assert of_settings({"a": value, "b": 1}) == {"b": "1"}


class Part(fb.nn.Module):
    unwatched = frozenset({"calls"})

    def __init__(self) -> None:
        self.calls, self.rate, self.device = 3, 0.5, fb.device("cpu:0")
        self.weight = fb.nn.Parameter(fb.ones((2, 3)))
        self.seen = fb.nn.Buffer(fb.zeros((), dtype=fb.int64))


class Whole(fb.nn.Module):
    def __init__(self) -> None:
        self.part, self.kind = Part(), "a"


def test_a_model_is_its_classes_plain_attributes_and_frozen_parameters() -> None:
    model = Whole()
    found = {"class": "Whole", "kind": "'a'", "part": "Part", "part.rate": "0.5", "part.weight": "trainable"}
    assert of_model(model) == found
    model.part.freeze()  # which names the parts: no setting either
    model.eval()
    frozen = {**found, "part.weight": "frozen"}
    assert of_model(model) == frozen
    shapes = {"part.weight holds": "float32[2, 3]", "part.seen holds": "int64[]"}
    assert of_model(model, shapes=True) == {**frozen, **shapes}


class Called:
    def __init__(self) -> None:
        self.margin = 0.5

    def __call__(self, output: Any, target: Any) -> Any:
        return output


def test_a_loss_of_any_kind_is_described_with_what_it_encloses() -> None:
    scale = 2.0

    def loss(output: Any, target: Any, power: int = 3, *, smoothing: float = 0.1) -> Any:
        return output * scale

    def waiting(output: Any, target: Any) -> Any:
        return output * late

    described = {"power": "3", "smoothing": "0.1", "scale": "2"}
    name = loss.__qualname__
    assert of_loss(loss) == {"class": name, **described}
    assert of_loss(partial(loss, 7, power=4)) == {"class": name, **described, "0": "7", "power": "4"}
    assert of_loss(waiting) == {"class": waiting.__qualname__}
    late = 1.0
    assert of_loss(waiting) == {"class": waiting.__qualname__, "late": "1"}
    assert of_loss(Called()) == {"class": "Called", "margin": "0.5"}
    assert of_loss(len) == {"class": type(len).__qualname__}
    assert of_loss(fb.nn.MSELoss())["class"] == "MSELoss"


@pytest.mark.parametrize(
    ("name", "goal"),
    [
        ("ema's decay", "learner.ema.decay"), ("learning rate", "learner.optimizer.learning_rate"),
        ("groups[2].learning rate", "learner.optimizer.groups[2].schedule = optim.constant(…)"),
        ("groups[2].lr_scale", "learner.optimizer.groups[2].lr_scale"),
        ("momentum",
         "learner.optimizer.groups[0].settings = dataclasses.replace(learner.optimizer.groups[0].settings, momentum=…)"),
        ("groups[1].momentum",
         "learner.optimizer.groups[1].settings = dataclasses.replace(learner.optimizer.groups[1].settings, momentum=…)"),
        ("one's learning rate", 'learner.optimizer["one"].learning_rate'),
        ("one's groups[2].lr_scale", 'learner.optimizer["one"].groups[2].lr_scale'),
    ],
)  # fmt: skip
def test_a_setting_of_a_checkpoint_is_changed_by_what_the_remedy_says(name: str, goal: str) -> None:
    assert settings._remedy(name) == f": to change it, assign {goal} after resume()"


def test_of_many_differences_the_first_eight_are_listed() -> None:
    rows = list("abcdefghij")
    assert listed(rows[:8]) == "a; b; c; d; e; f; g; h"
    assert listed(rows) == "a; b; c; d; e; f; g; h; and 2 more"
    assert listed(rows, 9).endswith("i; and 1 more")
