"""What can go wrong between a data set and a batch on a device."""

from __future__ import annotations

from firebrick.core.errors import FirebrickError


class LoaderError(FirebrickError, ValueError):
    """Invalid arguments of a data set or loader: no samples, unequal arrays, a bad slice, a cursor of another loader."""


class SampleError(LoaderError):
    """A sample could not be read, or a batch not be made of its samples; ``context`` has the batch, sample and worker."""


class WorkerDiedError(LoaderError):
    """A loader's worker process ended while it had samples to read; ``context`` has the worker and its exit code."""


class UnknownLengthError(LoaderError, TypeError):
    """The number of samples of a stream is not known."""


class UncheckedCursorWarning(UserWarning):
    """A loader goes on from a cursor whose order or data cannot be compared with its own."""


class SharedRowsWarning(UserWarning):
    """Parts of a random split have rows in common, so a measure on one of them is better than on data that is new."""


def all_dropped(name: str, samples: int, batch_size: int) -> LoaderError:
    """The error of a loader that leaves out its only batch."""
    return LoaderError(
        f'loader "{name}" with drop_last needs a full batch of {batch_size}',
        f"{samples} samples",
        "choose a smaller batch_size, or drop_last=False",
    )
