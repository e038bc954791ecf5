"""A step of one's own for a ``Learner``: several losses, each minimized by an optimizer of its own, in the user's order.

The user's function says what is minimized; where it runs stays the strategy's: on one device the whole step is one graph, and
over several devices or processes each loss has a graph for each device's pass and one for its update.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.tape import no_grad
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import maximum
from firebrick.functions.movement import concat
from firebrick.nn import Module
from firebrick.optim import EMA
from firebrick.optim import clip_norm as clip_gradients
from firebrick.train.errors import TrainingError
from firebrick.train.frozen import Zeros, zeros_of
from firebrick.train.leaves import as_given
from firebrick.train.measures import Counts
from firebrick.train.optimizers import Optimizers
from firebrick.train.steps import Stepped
from firebrick.train.strategy import Named, Share, Strategy, parts_of

LossOf = Callable[..., Tensor]


@dataclass(frozen=True)
class LossValue:
    """A loss of the user's as what strategies run: ``(model, *batch) -> (loss, nothing)``."""

    fn: LossOf

    def __call__(self, model: Module, *batch: Any) -> tuple[Tensor, None]:
        value: Any = self.fn(model, *batch)
        if not isinstance(value, Tensor) or value.size != 1 or value.dtype.kind != "float":
            received = describe("loss", value) if isinstance(value, Tensor) else type(value).__name__
            raise TrainingError(
                "what is minimized is one floating number, the mean over a batch", received, 'use reduction="mean"'
            )
        return value, None


class Minimizer:
    """The first argument of a custom training step: it minimizes losses.

    Attributes:
        model: The learner's model.

    Example:
        >>> import numpy as np, firebrick as fb
        >>> from firebrick.train import Learner
        >>> class Net(fb.nn.Module):
        ...     def __init__(self):
        ...         self.scale, self.shift = fb.nn.Linear(1, 1, bias=False), fb.nn.Parameter(fb.zeros(1))
        >>> def fit(net, x, y):
        ...     return fb.mean((net.scale(x) + net.shift - y) ** 2)
        >>> def near_one(net, x, y):
        ...     return fb.mean((net.shift - 1.0) ** 2)
        >>> def step(minimizer, batch):
        ...     error = minimizer.minimize(fit, batch, "scale")
        ...     return {"loss": error, "shift": minimizer.minimize(near_one, batch, "shift")}
        >>> net = Net()
        >>> optimizers = {"scale": fb.optim.SGD(net.scale, lr=0.1), "shift": fb.optim.SGD([net.shift], lr=0.1)}
        >>> x = np.ones((4, 1), np.float32)
        >>> loader = fb.data.DataLoader(fb.data.ArrayDataset(x, 3 * x), 2)
        >>> rows = Learner(net, optimizers, step=step, log=None).fit(loader, epochs=30)
        >>> round(net.scale.weight.item(), 2), round(net.shift.item(), 2), list(rows[-1].metrics)
        (2.0, 1.0, ['train_shift'])
    """

    def __init__(self, step: OwnStep, watching: Tensor, run: Callable[..., list[Share]], finish: Callable[..., Any]) -> None:
        self.model = step.model
        self._step, self._watching, self._run, self._finish = step, watching, run, finish
        self.losses: list[Tensor] = []
        self.samples = 0
        self.norms: list[Tensor] = []
        self.zeros: list[Zeros] = []

    def minimize(self, loss: LossOf, batch: Any, optimizer: str | None = None) -> Tensor:
        """Take a loss and its gradients, and update the parameters of an optimizer.

        Args:
            loss: Called as ``loss(model, *batch)`` with the rows of each device, or as ``loss(model, batch)`` where a batch is
                no tuple; returns the mean over them, a tensor of one
                element. A function that is defined once, not anew in each step, since its graph is kept with it.
            batch: What the step was given: a batch, or a ``BatchGroup`` with ``batches_per_step``.
            optimizer: Name of the optimizer, whose parameters change; may be left out where there is one.

        Returns:
            The mean loss over the whole batch before the update, untracked, 0-d.

        Raises:
            TrainingError: There is no optimizer of the name, or the loss is no such number.
            GradientError: The loss depends on none of its parameters.
        """
        name, rule = self._step.optimizers.named(optimizer)
        shares = self._run(LossValue(loss), batch)
        norm, zeros = self._finish(name, rule, self._watching, *parts_of(shares))
        self._step.strategy.spread(self._step.model)
        if norm is not None:
            self.norms.append(norm)
        self.zeros.append(zeros)
        self.samples = sum(s.samples for s in shares)
        owner = self._step.strategy.devices[0]
        with no_grad():
            values = [s.loss.to(owner) for s in shares]
            value = values[0]
            if len(shares) > 1:
                weighted = [v * (s.samples / self.samples) for v, s in zip(values, shares, strict=True)]
                value = sum(weighted[1:], weighted[0])
        self.losses.append(value)
        return value


@dataclass(frozen=True)
class OwnStep:
    """A step as the user's function says.

    Args:
        model, optimizers, strategy, clip_norm, ema: As of ``Learner``.
        fn: The user's function.
        parts: Parts that each device's rows are run in, one after the other.
        batches: Batches that make an update.
    """

    model: Module
    optimizers: Optimizers
    fn: Callable[[Minimizer, Any], Any]
    strategy: Strategy
    clip_norm: float | None
    ema: EMA | None
    parts: int
    batches: int = 1

    @property
    def divided(self) -> bool:
        """Whether a device runs several passes for a loss."""
        return self.parts > 1 or self.batches > 1

    def __call__(self, watching: Tensor, batch: Any) -> Stepped:
        """Take one step; arguments as of ``TrainingStep``."""

        def run(value: LossValue, batch: Any) -> list[Share]:
            return self.strategy.grads(value, self.model, batch, self.parts)

        return self.taken(Minimizer(self, watching, run, self.finish), as_given(batch))

    def taken(self, minimizer: Minimizer, batch: Any) -> Stepped:
        """The user's function with a minimizer, and what is counted of it."""
        found = self.fn(minimizer, batch)
        if not minimizer.losses:
            raise TrainingError(
                "a step of one's own minimizes a loss", "one that did not call minimize",
                "write e.g. step.minimize(loss, batch)",
            )  # fmt: skip
        if self.ema is not None:
            self.ema.update()
        with no_grad():
            values = self._values(found, minimizer)
            norm = minimizer.norms[0] if minimizer.norms else None
            for other in minimizer.norms[1:]:
                norm = maximum(norm, other)  # type: ignore[arg-type]
            zeros = minimizer.zeros
            flags = zeros[0].flags if len(zeros) == 1 else concat([z.flags for z in zeros])
        held = Counts({n: [((v.detach(),), minimizer.samples)] for n, v in values.items()})
        missing = tuple(n for z in zeros for n in z.missing)
        return Stepped(held, norm, Zeros(missing, tuple(n for z in zeros for n in z.names), flags))

    def _values(self, found: Any, minimizer: Minimizer) -> dict[str, Tensor]:
        """The numbers of a step by name, "loss" first."""
        named = dict(found) if isinstance(found, Mapping) else {} if found is None else {"loss": found}
        for name, v in named.items():
            if not isinstance(name, str) or not isinstance(v, Tensor) or v.size != 1 or v.dtype.kind != "float":
                raise TrainingError(
                    "a step of one's own returns None, a loss, or floating numbers of one element by name",
                    f"{name!r}: {describe('value', v) if isinstance(v, Tensor) else type(v).__name__}",
                    'return e.g. {"generator": generator_loss, "discriminator": discriminator_loss}',
                )
        losses = minimizer.losses
        loss = named.pop("loss") if "loss" in named else sum(losses[1:], losses[0])
        return {"loss": loss, **named}

    def finish(
        self, name: str, rule: Any, watching: Tensor, grads: list[Named], samples: list[float], buffers: list[Named]
    ) -> tuple[Tensor | None, Zeros]:
        """All that comes after the gradients of one loss, on the device that owns the parameters."""
        gradients = self.strategy.reduce(self.model, grads, samples, buffers)
        own = self.optimizers.parameters(name)
        gradients = Gradients.of([(p, g) for _, p in own if (g := gradients.get(p)) is not None])
        zeros = zeros_of(watching, [(n, p) for n, p in own if not p.frozen], gradients)
        norm = None if self.clip_norm is None else clip_gradients(gradients, self.clip_norm)
        self.strategy.update(rule, [p for _, p in own], gradients)
        return norm, zeros


def check_own_step(step: Any, precision: Any, strategy: Any) -> None:
    """Raise TrainingError unless a learner can train with a step of one's own."""
    if not callable(step) or isinstance(step, type):
        raise TrainingError("step is a function, called as step(minimizer, batch)", f"{step!r:.80}", "see train.Minimizer")
    if precision is not None:
        raise TrainingError(
            "a step of one's own chooses its precision itself", f"precision={precision.dtype.name!r}",
            'use fb.autocast("bfloat16") in the loss, and leave precision out',
        )  # fmt: skip
    if getattr(strategy, "shares", ()) is None:
        raise TrainingError(
            "shares of devices are measured by the learner's own step", 'shares="measured" with a step of one\'s own',
            'pass shares="even", or one number a device',
        )  # fmt: skip
