"""Where a step runs: ``Strategy`` places model, optimizer and data, computes gradients, joins them and updates.

All strategies share one definition of the gradient's scale: the mean over the samples of the whole batch, so that shares of
unequal size weigh by their samples and any split gives the single device's gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.transforms import value_and_grad
from firebrick.backends.registry import find_device
from firebrick.core import trees
from firebrick.core.device import Device
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader
from firebrick.graph import Jit, jit

Forward = Callable[..., tuple[Tensor, Any]]


@dataclass(slots=True)
class Share:
    """What one device did of a step: its mean loss and what else was returned beside it (both untracked), its gradients and
    its number of samples."""

    loss: Tensor
    beside: Any
    gradients: Gradients
    samples: int


class Strategy(Protocol):
    """How a ``Learner`` runs its steps."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that take part; the first owns the parameters' updates."""
        ...

    def place(self, model: Any, optimizer: Any, loader: DataLoader) -> DataLoader:
        """Bring the model's parameters and the optimizer's state to their devices; returns the loader to draw from."""
        ...

    def grads(self, fn: Forward, model: Any, batch: Any) -> list[Share]:
        """Run ``fn(model, *batch) -> (mean loss, anything)`` forward and backward, one share a device."""
        ...

    def reduce(self, grads: Sequence[Gradients], samples: Sequence[int]) -> Gradients:
        """The gradients of the whole batch: Σ samples · gradient / Σ samples, in the order of the devices."""
        ...

    def update(self, optimizer: Any, model: Any, grads: Gradients) -> None:
        """Change the parameters."""
        ...

    def compile(self, step: Callable[..., Any]) -> Jit:
        """A step that calls ``grads``, ``reduce`` and ``update``, or one without gradients, as graphs."""
        ...


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

    def __init__(self, device: Device | str | None = None) -> None:
        self.device = find_device(device)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The one device."""
        return (self.device,)

    def place(self, model: Any, optimizer: Any, loader: DataLoader) -> DataLoader:
        """Move the model and the optimizer's state here, where they are not yet; the loader's batches come here too."""
        if any(p.device is not self.device for _, p in model.named_parameters()):
            model.to(self.device)
        bring(optimizer, self.device)
        return loader.to(self.device)

    def grads(self, fn: Forward, model: Any, batch: Any) -> list[Share]:
        """One share: the batch."""
        (loss, beside), gradients = value_and_grad(fn, has_aux=True)(model, *batch)
        return [Share(loss, beside, gradients, batch[-1].shape[0])]

    def reduce(self, grads: Sequence[Gradients], samples: Sequence[int]) -> Gradients:
        """The one share's gradients."""
        return grads[0]

    def update(self, optimizer: Any, model: Any, grads: Gradients) -> None:
        """``optimizer.update(model, grads)``."""
        optimizer.update(model, grads)

    def compile(self, step: Callable[..., Any]) -> Jit:
        """The whole step as one graph."""
        compiled: Jit = jit(step)
        return compiled


def bring(holder: Any, device: Device) -> None:
    """Move what an optimizer or averages hold to the device, where their parameters are."""
    state = holder.state_dict()
    if any(isinstance(v, Tensor) and v.device is not device for v in trees.flatten(state)[0]):
        holder.load_state_dict(state)  # which places each tensor beside its parameter


def moments_of(state: Any) -> list[Tensor]:
    """The tensors of an optimizer's state that lie beside parameters: all but 0-d ones, such as its step counter."""
    return [v for v in trees.flatten(state)[0] if isinstance(v, Tensor) and v.ndim]
