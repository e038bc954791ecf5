"""Where a step runs: ``Strategy`` places model, optimizer and data, computes gradients, joins them and updates.

All strategies share one definition of the gradient's scale: the mean over the samples of the whole batch, so that shares of
unequal size weigh by their samples and any split gives the single device's gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from firebrick.autodiff.gradients import Gradients
from firebrick.core import trees
from firebrick.core.device import Device
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader
from firebrick.graph import Recompile
from firebrick.train.counted import Counted

Forward = Callable[..., tuple[Tensor, Any]]
Named = dict[str, Tensor]


@dataclass(slots=True)
class Share:
    """The part of a step that one device computed.

    Attributes:
        loss: Its mean loss, untracked.
        extra: What the function returned with the loss, whatever it is: one entry for each part that was run, in their order.
            Tensors, in lists, tuples and dicts too, are untracked; anything else is as it was returned. Of processes, what this
            one's rows gave (a rank without rows has no entry), but for what a ``Learner`` counts: one entry, of all ranks.
        gradients: Of its mean loss, by parameter, where the first of the strategy's devices can take them; a parameter that the
            loss does not depend on has none.
        samples: How many it had.
        buffers: Running statistics that are joined with those of the other shares, by name.

    Example:
        >>> import firebrick as fb
        >>> share = fb.train.Share(fb.asarray(0.5), extra=(), gradients={"w": fb.ones(2)}, samples=8)
        >>> share.samples
        8
    """

    loss: Tensor
    extra: tuple[Any, ...]
    gradients: Named
    samples: int
    buffers: Named = field(default_factory=dict)


def parts_of(shares: Sequence[Share]) -> tuple[list[Named], list[float], list[Named]]:
    """What ``Strategy.reduce`` takes of shares: gradients, numbers of samples, and buffers.

    Args:
        shares: What ``Strategy.grads`` returned.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.train import Share, parts_of
        >>> gradients, samples, buffers = parts_of([Share(fb.asarray(0.5), (), {"w": fb.ones(2)}, 8)])
        >>> gradients[0]["w"].tolist(), samples, buffers
        ([1.0, 1.0], [8.0], [{}])
    """
    return [s.gradients for s in shares], [float(s.samples) for s in shares], [s.buffers for s in shares]


class Strategy(Protocol):
    """How a ``Learner`` runs its steps."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that take part; the first owns the parameters' updates."""
        ...

    @property
    def joins(self) -> bool:
        """Whether several models share a batch."""
        ...

    @property
    def synchronised(self) -> bool:
        """Whether batch norms take the statistics of the whole batch, over all models."""
        ...

    def divide(self, rows: int) -> list[int]:
        """How many of a batch's rows each model takes.

        Args:
            rows: Number of rows of the batch.
        """
        ...

    @property
    def main(self) -> bool:
        """Whether this process writes the run directory."""
        ...

    def agree(self, stop: bool) -> bool:
        """Whether to stop; of several processes, what all of them were asked by the end of the last step.

        Args:
            stop: Whether this process was asked to stop.
        """
        ...

    def agree_to_save(self, save: bool) -> bool:
        """Whether to write a checkpoint now: where several processes run a step, they ask and then all of them do, a step
        later.

        Args:
            save: Whether this process was asked to save.
        """
        ...

    def compare(self, settings: Mapping[str, str]) -> None:
        """Check that all processes run with these settings.

        Args:
            settings: Texts by name.
        """
        ...

    def check(self, model: Any, optimizer: Any = None, averages: Any = None) -> None:
        """Check that all replicas are equal; all processes call it after the same step.

        Args:
            model: The learner's model.
            optimizer: Its optimizer.
            averages: Its ``EMA``, or None.
        """
        ...

    def place(self, model: Any, optimizer: Any, loader: DataLoader, averages: Any = None) -> DataLoader:
        """Move the model, the optimizer's state and an ``EMA`` to their devices; returns the loader to iterate over.

        Args:
            model: The learner's model.
            optimizer: Its optimizer.
            loader: Loader of the training batches.
            averages: Its ``EMA``, or None.
        """
        ...

    def begin(self, fn: Forward, model: Any, loader: DataLoader) -> str:
        """Prepare the first step; returns a line about what was found, or an empty one.

        Args:
            fn: Function of a model and a batch that returns a loss.
            model: The learner's model.
            loader: Loader of the training batches.
        """
        ...

    def grads(self, fn: Forward, model: Any, batch: Any, parts: int = 1) -> list[Share]:
        """Run ``fn(model, *batch) -> (mean loss, anything)`` forward and backward, one share a device, each in so many parts
        one after the other; of processes, one share with the gradients and the loss of all ranks. A batch that is no tuple is
        one argument: ``fn(model, batch)``. The batches of a ``BatchGroup`` are run one after the other, as parts of one batch
        of all their rows.

        Args:
            fn: Function of a model and a batch that returns the mean loss and anything else.
            model: The learner's model.
            batch: What the loader returned.
            parts: Number of parts into which each device divides its rows.
        """
        ...

    def reduce(self, model: Any, grads: Sequence[Named], samples: Sequence[float], buffers: Sequence[Named]) -> Gradients:
        """The gradients of the whole batch: Σ samples · gradient / Σ samples, in the order of the devices; buffers likewise,
        which the model is given.

        Args:
            model: The learner's model.
            grads: Gradients of each share.
            samples: Number of samples of each share.
            buffers: Buffers of each share.
        """
        ...

    def update(self, optimizer: Any, model: Any, grads: Gradients) -> None:
        """Change the parameters, on the device that owns them.

        Args:
            optimizer: The optimizer.
            model: The learner's model.
            grads: Gradients of the whole batch.
        """
        ...

    def spread(self, model: Any) -> None:
        """Copy the owner's parameters and buffers to the other devices.

        Args:
            model: The learner's model.
        """
        ...

    def deal(self, model: Any, loader: DataLoader) -> DataLoader:
        """The batches of an evaluation that this process takes.

        Args:
            model: The learner's model.
            loader: Loader of the batches.
        """
        ...

    def gather(self, found: Counted) -> Counted:
        """What all processes have counted of an evaluation: the same on each.

        Args:
            found: What this process has counted.
        """
        ...

    def compile(self, step: Callable[..., Any]) -> Graphs:
        """A step as graphs, one for all operations between two transfers.

        Args:
            step: The step.
        """
        ...

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it, as plain values."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state()``, of this strategy or of another.

        Args:
            state: What ``state()`` returned.
        """
        ...


class Graphs(Protocol):
    """A function as graphs: a ``Jit``, or several of them."""

    def __call__(self, *args: Any) -> Any: ...

    @property
    def traces(self) -> int:
        """How many graphs were traced."""
        ...

    def reasons(self) -> list[Recompile]:
        """Why each was."""
        ...


def by_name(model: Any, gradients: Gradients) -> Named:
    """Gradients by the names of a model's trainable parameters, without those that have none."""
    found = ((n, gradients.get(p)) for n, p in model.trainable_parameters())
    return {n: g for n, g in found if g is not None}


def of_names(model: Any, gradients: Mapping[str, Tensor]) -> Gradients:
    """Gradients by name as those of a model's parameters."""
    return Gradients.of([(p, gradients[n]) for n, p in model.trainable_parameters() if n in gradients])


def bring(holder: Any, device: Device) -> None:
    """Move what an optimizer or averages hold, if there are any, to the device, where their parameters are."""
    if holder is None:
        return
    state = holder.state_dict()
    if any(isinstance(v, Tensor) and v.device is not device for v in trees.flatten(state)[0]):
        holder.load_state_dict(state)  # which places each tensor it is combined withs parameter


def moments_of(state: Any) -> list[Tensor]:
    """The tensors of an optimizer's state that lie beside parameters: all but 0-d ones, such as its step counter."""
    return [v for v in trees.flatten(state)[0] if isinstance(v, Tensor) and v.ndim]
