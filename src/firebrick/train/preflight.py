"""What is checked before the first step, so that a run that cannot work says so at once and says what to change.

In order: the model has something to train; its parameters and buffers, the optimizer's state and the loader are on the
strategy's devices; the loader's first batch is there, and goes through model and loss. The trial pass runs in evaluation
mode without gradients, so it draws no random number and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firebrick.autodiff.tape import no_grad
from firebrick.core.bind import describe
from firebrick.core.device import Device
from firebrick.core.errors import FirebrickError
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader
from firebrick.nn import Module
from firebrick.train.errors import TrainingError
from firebrick.train.strategy import Strategy, moments_of


def check_places(model: Module, optimizer: Any, loaders: list[DataLoader], strategy: Strategy) -> None:
    """Check that everything lies on the strategy's devices.

    Raises:
        TrainingError: It does not; the message names what to move.
    """
    devices = strategy.devices
    names = ", ".join(d.name for d in devices)
    if not model.trainable_parameters():
        raise TrainingError(
            "training needs at least one trainable parameter",
            f"{type(model).__name__}, whose parameters are frozen or none",
            "call model.unfreeze(), or assign parameters as attributes of the module",
        )
    state = dict(model.state_dict())
    _check("the model's parameters and buffers", state, devices, f'model.to("{devices[0]}")')
    held = {f"optimizer state {i}": t for i, t in enumerate(moments_of(optimizer.state_dict()))}
    _check("the optimizer's state", held, devices, f'make the optimizer after model.to("{devices[0]}")')
    for loader in loaders:
        if loader.device not in devices:
            raise TrainingError(
                f'the batches of loader "{loader.name}" come on a device of the strategy: {names}',
                f"loader on {loader.device}",
                f'use loader.to("{devices[0]}"), or Learner(…, strategy=SingleDevice("{loader.device}"))',
            )


def _check(what: str, tensors: dict[str, Tensor], devices: tuple[Device, ...], remedy: str) -> None:
    strays = [describe(n, t.detach()) for n, t in tensors.items() if t.device not in devices]
    if strays:
        more = f" and {len(strays) - 4} more" if len(strays) > 4 else ""
        raise TrainingError(
            f"{what} lie on the strategy's devices: {', '.join(d.name for d in devices)}",
            "; ".join(strays[:4]) + more,
            f'{remedy}, or Learner(…, strategy=SingleDevice("…")) with the device you mean, which moves them',
        )


def try_batch(model: Module, loss: Callable[[Any, Tensor], Tensor], loader: DataLoader) -> None:
    """Send the loader's first batch through model and loss.

    Raises:
        TrainingError: A batch is not (inputs…, target), the model cannot take it, or the loss cannot be computed from it.
    """
    batch = loader.first()
    if not isinstance(batch, tuple) or len(batch) < 2:
        raise TrainingError(
            f'loader "{loader.name}" gives batches (inputs…, target)',
            "one tensor a batch" if not isinstance(batch, tuple) else f"{len(batch)} tensors a batch",
            "make the data set of inputs and targets: ArrayDataset(images, labels)",
        )
    shown = ", ".join(f"{t.dtype.name}{list(t.shape)} on {t.device}" for t in batch)
    training = model.training
    model.eval()
    try:
        with no_grad():
            value: Any = loss(model(*batch[:-1]), batch[-1])
    except FirebrickError as e:
        raise TrainingError(
            f'the model and the loss must take the batches of loader "{loader.name}" ({shown})\n{e.expected}',
            e.received,
            e.remedy,
        ) from e
    finally:
        if training:
            model.train()
    if not isinstance(value, Tensor) or value.size != 1 or value.dtype.kind != "float":
        received = describe("loss", value) if isinstance(value, Tensor) else type(value).__name__
        raise TrainingError("the loss is one floating number, the mean over a batch", received, 'use reduction="mean"')
