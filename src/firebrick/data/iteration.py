"""``Iteration``: the batches of one epoch of a loader."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TypeVar

from firebrick.data.errors import LoaderError

Batch = TypeVar("Batch")


class Iteration(Iterator[Batch]):
    """The batches of one epoch. An error ends it: ``next`` raises from then on, where a generator would seem to be at its end.

    Args:
        name: The loader.
        batches: The batches.
    """

    def __init__(self, name: str, batches: Generator[Batch, None, None]) -> None:
        self._name, self._batches, self._error = name, batches, ""

    def __next__(self) -> Batch:
        if self._error:
            raise LoaderError(
                f'an iteration of loader "{self._name}" ends with its first error',
                f"another batch asked for after {self._error}",
                "begin another iteration; after loader.load_cursor(loader.cursor()) it begins with the batch that failed",
            )
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as e:
            self._error = type(e).__name__
            raise

    def close(self) -> None:
        """End it early, and the workers with it."""
        self._batches.close()
