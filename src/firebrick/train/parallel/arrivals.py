"""Gradients in the buckets in which they travel, each told of as soon as a backward pass has finished its last gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from firebrick.autodiff import reducing, set_distributed_params
from firebrick.core.errors import GradientError
from firebrick.core.tensor import Tensor
from firebrick.graph import tell
from firebrick.nn import Module
from firebrick.train.strategy import Named

Listener = Callable[[int, Named], None]


class Arrivals:
    """The buckets of a model's gradients, and who hears of them.

    Buckets are told of in their order, each once in a backward pass, with the gradients that it has; parameters that the loss
    does not depend on have none.

    Args:
        most: Bytes at which a bucket is full.

    Attributes:
        buckets: Names of parameters, those of the last layers first, whose gradients are ready first.
        listener: What is called with a bucket's place and its gradients by name; nobody if None.
    """

    unwatched = frozenset({"listener"})  # what no graph depends on

    def __init__(self, most: int) -> None:
        self._most = most
        self.buckets: tuple[tuple[str, ...], ...] = ()
        self.listener: Listener | None = None

    def of(self, model: Module) -> None:
        """Take the buckets of a model's trainable parameters."""
        parameters = dict(model.trainable_parameters())
        for name, p in parameters.items():
            set_distributed_params(p, name)
        found = buckets({n: parameters[n] for n in reversed(parameters)}, self._most)
        self.buckets = tuple(tuple(names) for names in found)

    def hear(self, bucket: int, gradients: Named) -> None:
        """Pass on what has come."""
        if self.listener is not None:
            self.listener(bucket, gradients)

    @contextmanager
    def heard_by(self, listener: Listener | None) -> Iterator[None]:
        """A ``with`` block in which a function hears of gradients."""
        before, self.listener = self.listener, listener
        try:
            yield
        finally:
            self.listener = before

    @contextmanager
    def told(self) -> Iterator[None]:
        """A ``with`` block in which one backward pass tells of its gradients."""
        come = Come(self.buckets, self.hear)
        with reducing(come):
            yield
        come.end()


class Come:
    """The gradients that have come in one backward pass.

    Args:
        buckets: As of ``Arrivals``.
        hear: What is told of each bucket.
    """

    def __init__(self, buckets: tuple[tuple[str, ...], ...], hear: Listener) -> None:
        self._buckets, self._hear = buckets, hear
        self._found: Named = {}
        self.next = 0

    def __call__(self, name: str, gradient: Tensor) -> Tensor:
        if name in self._found:
            raise GradientError(
                "a backward pass finishes each gradient once",
                f"a second gradient of {name} in one pass",
                "take one gradient of the model in a pass; add the losses up, or run a pass for each (train.together)",
            )
        self._found[name] = gradient
        while self.next < len(self._buckets) and all(n in self._found for n in self._buckets[self.next]):
            self._tell()
        return gradient

    def end(self) -> None:
        """The pass is over: what has not come will not."""
        while self.next < len(self._buckets):
            self._tell()

    def _tell(self) -> None:
        names = self._buckets[self.next]
        tell(self._hear, self.next, {n: self._found[n] for n in names if n in self._found})
        self.next += 1


def buckets(tensors: Mapping[str, Tensor], most: int) -> list[list[str]]:
    """Names of tensors that travel together: neighbours of one dtype, until they have so many bytes."""
    out: list[list[str]] = []
    held, dtype = 0, None
    for name, t in tensors.items():
        if not out or dtype is not t.dtype or held >= most:
            out.append([])
            held, dtype = 0, t.dtype
        out[-1].append(name)
        held += t.aval.nbytes
    return out
