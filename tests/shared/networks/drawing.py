"""Draws random networks and prints them: an input, layers, a loss, an optimizer and the ways to run it; all of it is data."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any

import numpy as np
import torch

from networks.layers import LAYERS, Choices, Shape
from networks.losses import LOSSES, takes
from networks.parts import THEIRS

# sizes that the axes of a network share, besides 1
SIZES = (1, 2, 3, 4, 5, 8, 16, 33)
LARGEST = 3000  # elements of any value
OPTIMIZERS: dict[str, tuple[str, str]] = {
    "sgd": ("SGD({}, lr=0.05)", "SGD({}, lr=0.05)"),
    "momentum": ("SGD({}, lr=0.05, momentum=0.9, weight_decay=0.01)",) * 2,
    "nesterov": ("SGD({}, lr=0.05, momentum=0.8, nesterov=True)",) * 2,
    "adam": ("Adam({}, lr=0.02, eps=1e-3)",) * 2,
    "adamw": ("AdamW({}, lr=0.02, eps=1e-3, weight_decay=0.1, amsgrad=True)",) * 2,
    "rmsprop": ("RMSprop({}, lr=0.01, eps=1e-3, momentum=0.5, centered=True)",) * 2,
    "adagrad": ("Adagrad({}, lr=0.05, eps=1e-3)",) * 2,
    "adadelta": ("Adadelta({}, lr=0.5, eps=1e-3)",) * 2,
    "adamax": ("Adamax({}, lr=0.02, eps=1e-3)",) * 2,
    "nadam": ("NAdam({}, lr=0.02, eps=1e-3)",) * 2,
    "radam": ("RAdam({}, lr=0.02, eps=1e-3)",) * 2,
}


@dataclass(frozen=True)
class Part:
    """A layer, or several put together.

    Attributes:
        ours, theirs: Texts; ``{}`` of each is where the texts of ``parts`` go, one after another.
        parts: What it is made of.
    """

    ours: str
    theirs: str
    parts: tuple[Part, ...] = ()

    def text(self, ours: bool = True) -> str:
        inner = ", ".join(p.text(ours) for p in self.parts)
        own = self.ours if ours else self.theirs
        return own.replace("{}", inner)


def chain(name: str, parts: tuple[Part, ...]) -> Part:
    return Part(f"{name}({{}})", f"{name}({{}})", parts)


@dataclass(frozen=True)
class Network:
    """A random network with all that is done to it.

    Attributes:
        seed: Of its values.
        shape: Of x, batch first.
        vocabulary: Of tokens, where x is integers; else 0.
        parts: Its layers.
        loss: Key of ``LOSSES``, and the text of its module.
        training: Whether it is in training mode.
        optimizer: Key of ``OPTIMIZERS``.
        steps: How many updates.
        offset: Mean of x, whose standard deviation is 1.
    """

    seed: int
    shape: Shape
    vocabulary: int
    parts: tuple[Part, ...]
    loss: tuple[str, str]
    training: bool
    optimizer: str
    steps: int = 5
    offset: float = 0.0

    def text(self, ours: bool = True) -> str:
        return chain("Chain", self.parts).text(ours)

    @cached_property
    def size(self) -> int:
        """How much there is to it: layers, and sizes of the input for equal numbers of them."""

        def count(p: Part) -> int:
            return 1 + sum(map(count, p.parts))

        more = (self.steps > 1) + (self.optimizer != "sgd") + (self.loss[0] != "MSELoss") + self.training + bool(self.offset)
        return 1000 * sum(map(count, self.parts)) + 10 * sum(self.shape) + more

    @cached_property
    def their_output(self) -> Shape:
        """Shape of the output, as torch computes it."""
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.default_generator.manual_seed(0)
            model = eval(self.text(ours=False), THEIRS)
            model.train(self.training)
            return tuple(model.double()(torch.as_tensor(self.input)).shape)

    @cached_property
    def input(self) -> np.ndarray[Any, Any]:
        rng = np.random.default_rng(self.seed)
        return rng.integers(0, self.vocabulary, self.shape) if self.vocabulary else rng.normal(self.offset, size=self.shape)

    @cached_property
    def targets(self) -> list[np.ndarray[Any, Any]]:
        return LOSSES[self.loss[0]].targets(np.random.default_rng(self.seed + 1), self.their_output)


class Drawing:
    """A network under construction."""

    def __init__(self, seed: int) -> None:
        self.seed, self.d = seed, Random(seed)
        n = self.d.choices(SIZES, [2, 3, 3, 3, 2, 2, 1, 0.6])[0]
        self.choices = Choices(self.d, [n] * 5 + [1] * 2 + [self.d.choice(SIZES[:6])])
        self.training = self.d.random() < 0.75
        self.depth = 0

    def size(self) -> int:
        return self.choices.size()

    def shape_after(self, part: Part, shape: Shape) -> Shape | None:
        """Shape of what a part gives, or None where torch refuses it or it is too large."""
        try:
            torch.default_generator.manual_seed(0)
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = eval(part.text(ours=False), {**THEIRS})
                y = model.train(self.training)(torch.ones(shape))
        except (RuntimeError, ValueError, IndexError, AssertionError, TypeError):
            return None
        while isinstance(y, tuple):
            y = y[0]
        fits = y.dim() in (2, 3, 4, 5) and 0 < y.numel() <= LARGEST
        return tuple(y.shape) if fits else None

    def layer(self, shape: Shape) -> tuple[Part, Shape] | None:
        rows = [(n, w) for n, (ranks, w, _) in LAYERS.items() if len(shape) in ranks]
        name = self.d.choices([n for n, _ in rows], [w for _, w in rows])[0]
        found = LAYERS[name][2](self.choices, shape, self.training)
        if found is None:
            return None
        part = Part(found, found) if isinstance(found, str) else Part(*found)
        after = self.shape_after(part, shape)
        return None if after is None else (part, after)

    def composite(self, shape: Shape) -> tuple[Part, Shape] | None:
        """Layers put together."""
        self.depth += 1
        try:
            kind = self.d.choice(["Residual", "Twice", "Checkpointed", "Parallel"])
            parts, after = self.layers(shape, self.d.choice([1, 2, 2, 3]))
            if kind == "Parallel":
                others, other = self.layers(shape, self.d.choice([0, 1, 2]))  # none: x itself, as in a gate
                hows = ["sum", "product"] if other == after else ["concat"]
                how = self.d.choice([*hows, "concat"])
                text = f"Parallel({{}}, {how!r})"
                part = Part(text, text, (chain("Chain", parts), chain("Chain", others)))
            else:
                part = chain(kind, parts)
            found = self.shape_after(part, shape)
            if kind == "Twice" and len(after) != len(shape):  # torch's layers take what has no batch axis, too
                return None
            return None if found is None or (kind == "Residual" and after != shape) else (part, found)
        finally:
            self.depth -= 1

    def layers(self, shape: Shape, count: int) -> tuple[tuple[Part, ...], Shape]:
        made: list[Part] = []
        for _ in range(8 * count):
            if len(made) == count:
                break
            found = self.composite(shape) if self.depth < 2 and self.d.random() < 0.2 else self.layer(shape)
            if found is not None:
                part, shape = found
                made.append(part)
        return tuple(made), shape

    def network(self) -> Network:
        rank = self.d.choices([2, 3, 4, 5], [4, 4, 3, 1])[0]
        batch = self.d.choice([1, 1, self.size(), self.size(), 2, 4])
        spatial = [min(8, self.size() + self.d.choice([0, 0, 1, 3])) if rank > 3 else self.size() for _ in range(rank - 1)]
        shape: Shape = (batch, *spatial)
        vocabulary, parts = 0, ()
        if self.d.random() < 0.15:  # tokens
            vocabulary, features = self.size() + 1, self.size()
            kind = self.d.choice(["Embedding", "Embedding", "EmbeddingBag"])
            padding = self.d.choice([None, None, 0]) if kind == "Embedding" else None
            text = f"nn.{kind}({vocabulary}, {features}"
            parts = (Part(f"{text}, padding_index={padding})", f"{text}, padding_idx={padding})"),)
            shape = shape[:2]
            after: Shape = (*shape, features) if kind == "Embedding" else (shape[0], features)
        else:
            after = shape
        more, after = self.layers(after, self.d.choice([1, 2, 3, 4, 5, 6]))
        parts = (*parts, *more)
        loss = self.d.choice([n for n in LOSSES if takes(n, after)])
        text = LOSSES[loss].draw_text(self.d)
        steps = 5 if self.d.random() < 0.4 else 1
        offset = self.d.choice([0.0] * 6 + [3.0, 30.0])
        optimizer = self.d.choice(list(OPTIMIZERS))
        return Network(self.seed, shape, vocabulary, parts, (loss, text), self.training, optimizer, steps, offset)


def draw(seed: int) -> Network:
    """The network of a seed; it has at least one parameter or one layer."""
    return Drawing(seed).network()


# smaller networks


def smaller(network: Network) -> Iterator[Network]:
    """Networks with less in them, the smallest first; not all of them can run."""
    found = [
        *(replace(network, parts=p) for p in _fewer(network.parts)),
        *(replace(network, shape=s) for s in _lower(network.shape)),
    ]
    shape: Shape | None = network.shape
    for k, part in enumerate(network.parts if not network.vocabulary else ()):  # begin later, with an input of that shape
        shape = None if shape is None else Drawing(0).shape_after(part, shape)
        if shape is not None:
            found.append(replace(network, parts=network.parts[k + 1 :], shape=shape))
    if network.steps > 1:
        found.append(replace(network, steps=1))
    if network.optimizer != "sgd":
        found.append(replace(network, optimizer="sgd"))
    if network.loss[0] != "MSELoss":
        found += [replace(network, loss=("MSELoss", f"nn.MSELoss(reduction={r!r})")) for r in ("sum", "mean")]
    if network.training:
        found.append(replace(network, training=False))
    if network.offset:
        found.append(replace(network, offset=0.0))
    yield from sorted(found, key=lambda n: n.size)


def _fewer(parts: tuple[Part, ...]) -> Iterator[tuple[Part, ...]]:
    n = len(parts)
    for k in range(n):
        yield parts[:k]
    for k, part in enumerate(parts):
        yield (*parts[:k], *parts[k + 1 :])
        if part.parts:
            yield (*parts[:k], *part.parts, *parts[k + 1 :])
            for inner in part.parts:
                yield (*parts[:k], inner, *parts[k + 1 :])
            for fewer in _fewer(part.parts):
                if fewer and "Parallel" not in part.ours:
                    yield (*parts[:k], replace(part, parts=fewer), *parts[k + 1 :])


def _lower(shape: Shape) -> Iterator[Shape]:
    for k, n in enumerate(shape):
        for less in {1, 2, n - 1}:
            if 0 < less < n:
                yield (*shape[:k], less, *shape[k + 1 :])
