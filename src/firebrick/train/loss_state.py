"""What a loss keeps from one call to the next: buffers, as of a running centre, and generators, as of dropout.

They are those of the loss, where it is a ``Module``, and of modules that a function or an object holds; what belongs to the
model too is the model's. A buffer that nothing has changed since the loss came to the learner, such as class weights, is a
setting of the loss and no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from firebrick.autodiff.tape import no_grad
from firebrick.backends.dispatch import read
from firebrick.core.tensor import Tensor
from firebrick.nn import Buffer, Module, saved
from firebrick.random import Generator
from firebrick.train.description import Description, held_by, of_settings
from firebrick.train.errors import TrainingError

T = TypeVar("T")


def modules_of(loss: Any) -> dict[str, Module]:
    """The loss itself under "", if it is a module; else the modules that it holds, by name."""
    if isinstance(loss, Module):
        return {"": loss}
    return {n: v for n, v in held_by(loss).items() if isinstance(v, Module)}


def buffers_of(loss: Any, model: Module) -> dict[str, Buffer]:
    """The buffers of a loss by path, without those of the model."""
    return _own(loss, {id(b) for b in model.buffers()}, lambda m: m.named_buffers())


def generators_of(loss: Any, model: Module) -> dict[str, Generator]:
    """The random generators of a loss by path, without those of the model."""
    return _own(loss, {id(g) for g in model.generators().values()}, lambda m: m.generators().items())


def _own(loss: Any, others: set[int], of: Callable[[Module], Any]) -> dict[str, T]:
    found = {f"{name}.{path}" if name else path: v for name, m in modules_of(loss).items() for path, v in of(m)}
    return {n: v for n, v in found.items() if id(v) not in others}


def check_parameters(loss: Any, model: Module) -> None:
    """Refuse a loss with parameters of its own, which no gradient reaches.

    Raises:
        TrainingError: It has some that are neither frozen nor the model's.
    """
    if not isinstance(loss, Module):
        return
    own = {id(p) for p in model.parameters()}
    names = [n for n, p in loss.trainable_parameters() if id(p) not in own]
    if names:
        raise TrainingError(
            "the parameters that a Learner trains are those of its model",
            f"parameters of the loss {type(loss).__name__}: {', '.join(names[:4])}{', …' if len(names) > 4 else ''}",
            "make model and loss parts of one Module, whose output is what the loss is computed from, and make the optimizer "
            "for it; or call loss.freeze(), if they are not to be trained",
        )


class LossState:
    """The state of a learner's loss, for checkpoints.

    Args:
        model: The learner's.
        loss: Its loss as it is made. Another one may take its place later.
    """

    def __init__(self, model: Module, loss: Any) -> None:
        self._model = model
        self._begin(loss)

    def _begin(self, loss: Any) -> None:
        self._loss = loss
        self._first = {n: b.detach() for n, b in buffers_of(loss, self._model).items()}
        self._loaded: set[str] = set()

    def state(self, loss: Any) -> dict[str, Any]:
        """Buffers that were changed or loaded, and states of generators; the loss keeps nothing if both are empty."""
        if loss is not self._loss:
            self._begin(loss)
        buffers = buffers_of(loss, self._model)
        changed = changes({n: b for n, b in self._first.items() if n in buffers}, buffers)
        return {
            "buffers": {n: b.detach() for n, b in buffers.items() if n in self._loaded or n in changed or n not in self._first},
            "generators": {n: g.state() for n, g in generators_of(loss, self._model).items()},
        }

    def load(self, loss: Any, state: Mapping[str, Any]) -> None:
        """Go on from ``state()``.

        Raises:
            StateError: It is of another loss; nothing was changed.
        """
        if loss is not self._loss:
            self._begin(loss)
        buffers, generators = buffers_of(loss, self._model), generators_of(loss, self._model)
        owner = f"the loss {getattr(loss, '__qualname__', type(loss).__name__)}"
        if strange := [n for n in state["buffers"] if n not in buffers]:
            raise saved.StateError(
                f"{owner}: a state has the buffers of the loss that loads it",
                f"buffers that it lacks: {', '.join(strange[:8])}",
                "make the learner with the loss that the run was saved with. Nothing was loaded",
            )
        marks = [(g, g.mark()) for g in generators.values()]
        try:
            saved.load_generators(owner, generators, state["generators"])
            saved.load(owner, list(buffers.items()), {}, state["buffers"], strict=False)
        except BaseException:
            for generator, mark in marks:
                generator.return_to(mark)
            raise
        self._loaded = set(state["buffers"])

    def settings(self, loss: Any) -> Description:
        """The buffers that are settings, such as class weights, as text."""
        state = self.state(loss)["buffers"]
        return of_settings({n: b.detach() for n, b in buffers_of(loss, self._model).items() if n not in state})

    def names(self, loss: Any) -> list[str]:
        """All that may be state, by path."""
        return [*buffers_of(loss, self._model), *generators_of(loss, self._model)]


def changes(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> set[str]:
    """The names under which two sets of tensors hold other bits."""
    names = list(before)
    pairs = zip(names, read([before[n].detach() for n in names]), read([after[n].detach() for n in names]), strict=True)
    return {n for n, a, b in pairs if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes()}


def changed_by(call: Callable[[], Any], loss: Any, model: Module) -> list[str]:
    """What of its state a call of the loss changes, by path."""
    buffers, generators = buffers_of(loss, model), generators_of(loss, model)
    before, drawn = {n: b.detach() for n, b in buffers.items()}, {n: str(g.state()) for n, g in generators.items()}
    call()
    moved = changes(before, buffers)
    return [*(n for n in buffers if n in moved), *(n for n, g in generators.items() if str(g.state()) != drawn[n])]


@contextmanager
def unchanged(loss: Any, model: Module) -> Iterator[None]:
    """A ``with`` block after which the state of the loss is as it was before it."""
    before = [(b, b.detach()) for b in buffers_of(loss, model).values()]
    marks = [(g, g.mark()) for g in generators_of(loss, model).values()]
    try:
        yield
    finally:
        for generator, mark in marks:
            generator.return_to(mark)
        with no_grad():
            for b, value in before:
                b._rebind(value)
