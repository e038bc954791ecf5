"""``SingleDevice``: the whole step on one device, as one graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from firebrick.autodiff.gradients import Gradients
from firebrick.backends.registry import find_device
from firebrick.core.device import Device
from firebrick.data import DataLoader
from firebrick.nn import Module
from firebrick.train.batches import batches_of
from firebrick.train.counted import Counted
from firebrick.train.leaves import LeafGraphs
from firebrick.train.own_step import OwnStep
from firebrick.train.parallel.own_graphs import graphed
from firebrick.train.parallel.passes import Found, Pass, add, take_share
from firebrick.train.steps import TrainingStep
from firebrick.train.strategy import Forward, Graphs, Named, Share, bring, of_names


class SingleDevice:
    """The whole step on one device.

    Args:
        device: Which; the default device if None.

    Raises:
        DeviceError: The device is unknown or absent.

    Example:
        >>> from firebrick.train import SingleDevice
        >>> SingleDevice("cpu:1").devices
        (Device('cpu:1'),)
    """

    synchronised = joins = False
    arrivals = None
    main = True

    def __init__(self, device: Device | str | None = None) -> None:
        self.device = find_device(device)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The one device."""
        return (self.device,)

    def agree(self, stop: bool) -> bool:
        """``stop``: there is one process."""
        return stop

    def agree_to_save(self, save: bool) -> bool:
        """``save``: there is one process."""
        return save

    def compare(self, settings: Mapping[str, str]) -> None:
        """Do nothing: there is one process."""

    def check(self, model: Any, optimizer: Any = None, averages: Any = None) -> None:
        """Do nothing: there is one model."""

    def place(self, model: Any, optimizer: Any, loader: DataLoader, averages: Any = None) -> DataLoader:
        """Move the model, the optimizer's state, the averages and the loader's batches to the device."""
        if any(p.device is not self.device for _, p in model.named_parameters()):
            model.to(self.device)
        bring(optimizer, self.device)
        bring(averages, self.device)
        return loader.to(self.device)

    def begin(self, fn: Forward, model: Any, loader: DataLoader) -> str:
        """Do nothing: one device needs no preparation."""
        return ""

    def grads(self, fn: Forward, model: Any, batch: Any, parts: int = 1) -> list[Share]:
        """One share: the batch."""
        return self.run([Pass(fn, model, joined=False)], add, model, batch, parts)

    def run(
        self, passes: Sequence[Callable[..., Found]], adding: Callable[..., Named], model: Module, batch: Any, parts: int = 1
    ) -> list[Share]:
        """``grads`` by a pass, or its graph.

        Args:
            passes: A function for each device that computes its share, or its graph.
            adding: A function that adds up the shares of a device's parts, or its graph.
            model: The learner's model.
            batch: What the loader returned.
            parts: Number of parts into which each device divides its rows.
        """
        return [take_share(passes[0], adding, model, batch, [0] * len(batches_of(batch)), parts)]

    def reduce(self, model: Any, grads: Sequence[Named], samples: Sequence[float], buffers: Sequence[Named]) -> Gradients:
        """The one share's gradients."""
        return of_names(model, grads[0])

    def update(self, optimizer: Any, model: Any, grads: Gradients) -> None:
        """``optimizer.update(model, grads)``."""
        optimizer.update(model, grads)

    def spread(self, model: Any) -> None:
        """Do nothing: there is one device."""

    def divide(self, rows: int) -> list[int]:
        """All of them."""
        return [rows]

    def deal(self, model: Module, loader: DataLoader) -> DataLoader:
        """The whole loader."""
        return loader

    def gather(self, found: Counted) -> Counted:
        """What was counted here."""
        return found

    def compile(self, step: Callable[..., Any]) -> Graphs:
        """The whole step as one graph; in parts, a graph that all of them run."""
        if isinstance(step, TrainingStep | OwnStep) and step.divided:
            return graphed(step, self)
        return LeafGraphs(step)

    def replicas(self, model: Module) -> list[Module]:
        """The model.

        Args:
            model: The learner's model.
        """
        return [model]

    def state(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Do nothing: no state is kept."""
