"""What a step is given, and what of it the model and the loss get.

A batch has any structure that a loader gives (see ``data.structure``), or is a ``BatchGroup`` of several batches whose
gradients make one update. The entries of a tuple are the arguments of what is differentiated; any other structure is one
argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from inspect import signature
from typing import Any, NamedTuple

from firebrick.core.device import Device
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader, Portion
from firebrick.data.structure import leaves_of, tree_of
from firebrick.data.torch_loaders import from_torch, is_of_torch
from firebrick.nn import Module
from firebrick.train.errors import TrainingError


@dataclass(frozen=True)
class BatchGroup(Sequence[Any]):
    """Batches of a loader whose gradients make one update, as a strategy's loader gives them.

    Args:
        batches: At least one.

    Example:
        >>> import firebrick as fb
        >>> group = fb.train.BatchGroup((fb.ones(4), fb.ones(2)))
        >>> len(group), [len(batch) for batch in group]
        (2, [4, 2])
    """

    batches: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: Any) -> Any:
        return self.batches[index]


class Call(NamedTuple):
    """What a batch is to a model and its loss: ``loss(model(*inputs, **named), target)``."""

    inputs: tuple[Any, ...]
    named: dict[str, Any]
    target: Any


def batches_of(batch: Any) -> tuple[Any, ...]:
    """The batches of a group; of a batch, it alone."""
    return batch.batches if isinstance(batch, BatchGroup) else (batch,)


def pieces_of(batch: Any) -> list[Any]:
    """The batches that this process has of a batch as a strategy's loader gives it: whole, in pieces, or a portion; of a group,
    those of all its batches."""
    if isinstance(batch, BatchGroup):
        return [piece for b in batch for piece in pieces_of(b)]
    if isinstance(batch, Portion):
        batch = [batch.piece]
    return [piece for piece in batch if piece is not None] if isinstance(batch, list) else [batch]


def arguments(batch: Any) -> tuple[Any, ...]:
    """The arguments that a batch is, behind the model."""
    return tuple(batch) if isinstance(batch, (tuple, list)) else (batch,)


def call_of(batch: Any, target: str | None = None) -> Call:
    """What of a batch the model and the loss get.

    Args:
        batch: A tuple (inputs…, target); a dict or dataclass; or anything else, which is input and target.
        target: Key or field of the target. The model gets the other entry, or the others by name where there are several;
            without it a dict or dataclass is input and target.

    Raises:
        TrainingError: There is no such key or field.
    """
    entries = arguments(batch)
    whole = entries[0] if len(entries) == 1 else None
    if target is None:
        return Call(entries, {}, whole) if len(entries) == 1 else Call(entries[:-1], {}, entries[-1])
    named = _named(whole)
    if named is None or target not in named or len(named) == 1:
        received = "a tuple" if len(entries) > 1 else f"a {type(whole).__name__}"
        raise TrainingError(
            f"target={target!r} is a key or field of batches that have others too",
            received if named is None else f"{received} with {', '.join(map(repr, named))}",
            "name one of them; leave target out where batches are tuples (inputs…, target)",
        )
    return Call(*_others(named, target), named[target])


def inputs_of(given: tuple[Any, ...], target: str | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The model's arguments of those of ``predict``: of one dict or dataclass, where the target has a name, its other
    entries."""
    named = _named(given[0]) if target is not None and len(given) == 1 else None
    return (given, {}) if named is None or target is None else _others(named, target)


def check_call(model: Module, inputs: tuple[Any, ...], named: Mapping[str, Any], target: str | None) -> None:
    """Raise TrainingError unless a model's ``forward`` has the parameters that the entries of a batch are given to.

    Args:
        model: The model.
        inputs: The arguments by position.
        named: The arguments by name.
        target: As of ``Learner``.
    """
    try:
        taken = signature(model.forward)
    except (TypeError, ValueError):  # of a function without a signature
        return
    try:
        taken.bind(*inputs, **named)
    except TypeError as e:
        count = f"{len(inputs)} {'input' if len(inputs) == 1 else 'inputs'}"
        beside = "" if target is None else f" beside the target {target!r}"
        raise TrainingError(
            f"the model takes what batches hold: {type(model).__name__}.forward has the parameters "
            f"({', '.join(map(str, taken.parameters.values())) or 'none'})",
            f"{'the entries ' + ', '.join(map(repr, named)) if named else count}{beside} ({e})",
            "give the entries of the samples the names of forward's parameters, by the data set or DataLoader(…, transform=)"
            if named
            else "let batches hold one entry for each parameter: (inputs…, target)",
        ) from None


def hint_of(batch: Any, target: str | None) -> str:
    """How a batch comes to model and loss, for the remedy of an error that they raise; empty for (inputs…, target)."""
    entries = arguments(batch)
    if len(entries) > 1 or target is not None:
        return ""
    if isinstance(entries[0], Tensor):
        return "a batch of one tensor is input and target of the loss: for labels, give both, ArrayDataset(images, labels)"
    return (
        'a dict or dataclass is given whole, model(batch) and loss(output, batch): with target="label" the loss gets that one, '
        "and the model the others"
    )


def _others(named: dict[str, Any], target: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The model's arguments: the entries but the target; a single one by position."""
    others = {k: v for k, v in named.items() if k != target}
    return (tuple(others.values()), {}) if len(others) == 1 else ((), others)


def _named(whole: Any) -> dict[str, Any] | None:
    """The entries of a dict or dataclass by name."""
    if isinstance(whole, Mapping):
        return dict(whole)
    if is_dataclass(whole) and not isinstance(whole, type):
        return {f.name: getattr(whole, f.name) for f in fields(whole)}
    return None


def tensors_of(batch: Any) -> list[Tensor]:
    """The tensors of a batch, in its order."""
    return [t for t in leaves_of(batch) if isinstance(t, Tensor)]


def rows_in(batch: Any) -> int:
    """The number of a batch's rows: those of its last tensor."""
    return int(tensors_of(batch)[-1].shape[0])


def rows_of(batch: Any, start: int, stop: int) -> Any:
    """Rows of a batch, or of a tensor, under their labels."""

    def part(t: Any) -> Any:
        if not isinstance(t, Tensor):
            return t
        found = t[start:stop]
        found.label = t.label
        return found

    return tree_of(part, batch)


def moved(batch: Any, device: Device) -> Any:
    """A batch on a device."""
    return tree_of(lambda t: t.to(device) if isinstance(t, Tensor) else t, batch)


def name_of(batch: Any) -> str:
    """What messages call a batch, whole, in a list of pieces, or a group."""
    names = []
    for one in batches_of(batch):
        label = next((t[-1].label or "" for p in pieces_of(one) if (t := tensors_of(p))), "")
        _, within, whole = label.rpartition(" of batch ")
        names.append(f"batch {whole}" if within else label)
    more = len(names) - 1
    return names[0] + (f" and {more} more" if more and names[0] else "")


def check_loader(loader: Any) -> DataLoader:
    """The loader that batches come from: the one given, or one made of a loader of PyTorch; TrainingError otherwise."""
    if is_of_torch(loader):
        return from_torch(loader)
    if not isinstance(loader, DataLoader):
        raise TrainingError(
            "batches come from a DataLoader",
            type(loader).__name__,
            "make one: DataLoader(ArrayDataset(inputs, targets), batch_size=64)",
        )
    return loader


def check_batch(batch: Any, loader: DataLoader, target: str | None = None) -> None:
    """Raise TrainingError unless a batch of a loader, or a device's rows of one, can be given to a model and a loss."""
    tensors = tensors_of(batch)
    if not tensors or any(t.ndim == 0 for t in tensors):
        raise TrainingError(
            f'loader "{loader.name}" gives batches of tensors whose first axis is the batch',
            f"{len(tensors)} tensors" + (", one without axes" if tensors else ""),
            "let transform keep the batch axis first",
        )
    call_of(batch, target)


def grouped(batches: Iterator[Any], size: int) -> Iterator[Any]:
    """Batches, or groups of so many of them; the last group of an epoch may be smaller.

    Args:
        batches: Of the rest of an epoch.
        size: Batches of a group; 1 gives the batches themselves.
    """
    if size == 1:
        yield from batches
        return
    held: list[Any] = []
    for batch in batches:
        held.append(batch)
        if len(held) == size:
            yield BatchGroup(tuple(held))
            held = []
    if held:
        yield BatchGroup(tuple(held))
