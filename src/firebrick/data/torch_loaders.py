"""``from_torch``: a loader of PyTorch as one of Firebrick, with its data set, batch size, order and collate function.

PyTorch itself is not imported here. Its data sets need nothing: ``DataLoader`` takes them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from firebrick.backends.numpy.dlpack import imported
from firebrick.data.errors import LoaderError
from firebrick.data.loader import DataLoader
from firebrick.data.stream import IterableDataset


def is_of_torch(loader: Any) -> bool:
    """Whether something is a loader of PyTorch, also of a subclass."""
    return any(c.__module__.startswith("torch.utils.data.") and c.__name__ == "DataLoader" for c in type(loader).__mro__)


class _Collate:
    """PyTorch's function that joins samples; its tensors become arrays. An object, so that it goes to other processes."""

    def __init__(self, join: Any) -> None:
        self.join = join

    def __call__(self, samples: Any) -> Any:
        return _arrays(self.join(list(samples)))


def _arrays(batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return {k: _arrays(v) for k, v in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*map(_arrays, batch))
    if isinstance(batch, (list, tuple)):  # PyTorch's default makes a list of a tuple
        return tuple(map(_arrays, batch))
    if not isinstance(batch, np.ndarray) and hasattr(batch, "__dlpack__"):
        return imported(batch.detach() if hasattr(batch, "detach") else batch)
    return np.asarray(batch)


class _Stream(IterableDataset):
    """A PyTorch data set without numbers."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dataset)


def from_torch(loader: Any, *, seed: int | None = None, **settings: Any) -> DataLoader:
    """A loader with the data set, batch size and collate function of a PyTorch loader, shuffled where that one is.

    The order is Firebrick's: a function of seed and epoch, so that a resumed run goes on with the sample that came next, and
    the same for any number of workers. Workers are ``num_workers=`` here; those of the PyTorch loader are not taken over.

    Args:
        loader: A ``torch.utils.data.DataLoader`` with a batch size, of samples by number or of a stream.
        seed: Of the order; that of the PyTorch loader's ``generator`` if it has one, else 0.
        settings: Further arguments of ``DataLoader``, such as ``device`` and ``num_workers``.

    Raises:
        LoaderError: It is no such loader, or it has a sampler or batch sampler of its own, whose order cannot be repeated.

    Example:
        >>> import torch
        >>> from torch.utils.data import DataLoader, TensorDataset
        >>> import firebrick as fb
        >>> theirs = DataLoader(TensorDataset(torch.arange(6.0).reshape(3, 2), torch.arange(3)), batch_size=2)
        >>> [(x.shape, y.tolist()) for x, y in fb.data.from_torch(theirs)]
        [((2, 2), [0, 1]), ((1, 2), [2])]
    """
    if not is_of_torch(loader):
        raise LoaderError(
            "from_torch takes a torch.utils.data.DataLoader", type(loader).__name__, "pass one, or use DataLoader"
        )
    if loader.batch_size is None:
        raise LoaderError(
            "a loader of PyTorch has a batch size",
            "batch_size None, or a batch sampler",
            "make a fb.data.DataLoader of its data set, with batch_size= and sampler=",
        )
    dataset, order = loader.dataset, type(loader.sampler).__name__
    stream = not hasattr(type(dataset), "__getitem__") or order == "_InfiniteConstantSampler"
    sampler = loader.sampler
    plain = order == "SequentialSampler" or stream
    drawn = order == "RandomSampler" and not sampler.replacement and sampler.num_samples == len(dataset)
    if not (plain or drawn):
        raise LoaderError(
            "the order of a loader of PyTorch is sequential or shuffled",
            f"the sampler {order}",
            "make a fb.data.DataLoader of its data set, with sampler=, such as fb.data.WeightedSampler",
        )
    if seed is None:
        seed = 0 if loader.generator is None else int(loader.generator.initial_seed()) % (1 << 63)
    chosen: dict[str, Any] = {
        "shuffle": drawn,
        "drop_last": bool(loader.drop_last),
        "collate": _Collate(loader.collate_fn),
        "seed": seed,
    }
    chosen |= {"batch_size": loader.batch_size, **settings}
    return DataLoader(_Stream(dataset) if stream else dataset, **chosen)
