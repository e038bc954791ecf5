"""Optimizers of models with tiles: pulsed updates of tiles, and an optimizer's own rule for digital parameters."""

from __future__ import annotations

from functools import partial
from typing import Any

from firebrick.analog.factors import Factors, factors_of
from firebrick.analog.tile import Tile
from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.tape import no_grad
from firebrick.core.dtypes import float32
from firebrick.core.errors import ConfigError, GradientError, OutOfRangeError, UnsupportedError
from firebrick.core.journal import all_or_none
from firebrick.core.lines import warn
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import astype
from firebrick.functions.movement import concat
from firebrick.nn import Module
from firebrick.optim import SGD as DigitalSGD
from firebrick.optim.groups import Rows
from firebrick.optim.optimizer import Optimizer
from firebrick.optim.schedule import Schedule


class AnalogOptimizer(Optimizer):
    """A base that makes an optimizer update tiles by pulses, and all other parameters by its own rule.

    Write it in front of the optimizer: ``class AnalogAdam(analog.AnalogOptimizer, optim.Adam): pass``. Of the settings, only
    the learning rate is used for tiles; momentum, weight decay and the like are of digital parameters. An update ends the
    mini-batch of every tile (``Tile.end_mini_batch``): devices with a lifetime or diffusion also change where their tile is
    frozen, with a warning. Weights of inference tiles are digital parameters, which are clipped and
    remapped after the update, as their configuration says.

    A pulsed update needs the inputs and errors of each sample. So gradients must be those of one backward pass: not clipped,
    scaled, summed over several passes, or averaged over devices. A tile that is used several times in the pass, as by a
    recurrent layer or where layers share weights, is updated by the vectors of all uses, in the order of the uses. A tile that
    is updated by arithmetic (``ArithmeticDevice``, ``PulseType.NONE`` and ``NONE_WITH_DEVICE``) takes any gradient.

    Args:
        model: Module with analog layers.
        *args: Of the optimizer behind it.
        **named: Likewise.

    Example:
        >>> import firebrick as fb
        >>> class AnalogAdam(fb.analog.AnalogOptimizer, fb.optim.Adam):
        ...     pass
        >>> model = fb.analog.Linear(2, 1, config=fb.analog.RPUConfig(), seed=0)
        >>> optimizer = AnalogAdam(model, lr=0.01)
        >>> loss, gradients = fb.value_and_grad(lambda m: fb.mean(m(fb.ones((4, 2))) ** 2))(model)
        >>> optimizer.update(model, gradients)
        >>> optimizer.step
        1
    """

    updates_tiles = True

    def __init__(self, model: Module, *args: Any, **named: Any) -> None:
        if not isinstance(model, Module):
            name, remedy = type(self).__name__, "pass the model"
            raise ConfigError(f"{name}: a module, whose tiles it updates", f"{type(model).__name__}", remedy)
        super().__init__(model, *args, **named)
        own = {id(tile.weight) for tile in tiles_of(model) if tile.pulsed}
        by_pulses = {id(tile.weight) for tile in tiles_of(model) if tile.pulsed and not tile.by_arithmetic}
        self._by_pulses = [name for name, p in self._parameters if id(p) in by_pulses and not p.frozen]
        self._of_tiles = frozenset(name for name, p in self._parameters if id(p) in own)

    @property
    def undivided(self) -> list[str]:
        """Names of the weights that pulses update: they need the gradient of one backward pass over the whole batch."""
        return self._by_pulses

    def update(self, model: Any, grads: Gradients) -> None:
        """Update the tiles by pulses, and the other parameters by the optimizer's rule.

        Args:
            model: The module that the optimizer was made for.
            grads: From ``fb.value_and_grad``, of one backward pass.

        Raises:
            GradientError: The gradient of a tile is not that of one backward pass; nothing was changed.
            OutOfRangeError: The inputs or errors of a tile, or its learning rate, are not finite; nothing was changed. Under
                ``fb.jit`` it is an ``ExecutionError``.
            UnsupportedError: Updates may be left out, as with loss scaling; nothing was changed.
        """
        tiles = tiles_of(model)
        found: list[tuple[Tile, tuple[Factors, ...] | Tensor, Tensor]] = []
        names = {id(p): name for name, p in self._parameters}
        rates: dict[int, Tensor] = {}
        for tile in tiles:
            if tile.weight.frozen and tile.fades:
                warn(
                    f"the tile with {names.get(id(tile.weight))} is frozen, but its devices decay or diffuse with each update: "
                    "give it a device without lifetime and diffusion where it is to stay as it is", UserWarning,
                )  # fmt: skip
            if not tile.pulsed:
                continue
            gradient = None if tile.weight.frozen else grads.get(tile.weight)
            if gradient is None:
                continue
            factors: tuple[Factors, ...] | Tensor | None = factors_of(gradient)
            if factors is None and tile.by_arithmetic:
                factors = gradient
            if factors is None:
                shown = describe("gradient", gradient).removesuffix(" (gradient)")
                raise GradientError(
                    f"{type(self).__name__}.update: the gradient of a tile is that of one backward pass through its products",
                    f"{shown} of {names[id(tile.weight)]}, which was computed from others: clipped, scaled, summed over "
                    "passes or devices, or of an expression of the weights",
                    "train without clip_norm, loss scaling, accumulation, several devices and penalties of the weights",
                )
            found.append((tile, factors, self._rate(names[id(tile.weight)], tile, rates)))
        if found and grads.valid is not None:
            raise UnsupportedError(
                f"{type(self).__name__}.update: pulses of a tile cannot be taken back",
                "gradients that may be left out, as with loss scaling", "train in float32",
            )  # fmt: skip
        checked = []
        for tile, of, rate in found:
            try:
                checked.append(of if isinstance(of, Tensor) else tile.check_update(*_joined(of), rate))
            except OutOfRangeError as e:
                raise OutOfRangeError(e.expected, f"{e.received}, of {names[id(tile.weight)]}", e.remedy) from None
        digital = partial(super().update, model, grads)

        def updated() -> None:
            digital()
            with no_grad():
                for (tile, _, rate), given in zip(found, checked, strict=True):
                    if isinstance(given, Tensor):
                        tile.descend(given, rate)
                    else:
                        tile.update_checked(*given, rate)
                for tile in tiles:
                    tile.end_mini_batch()

        all_or_none(updated)

    def _gradients(self, grads: Any) -> list[Tensor | None]:
        """The gradients of digital parameters; None for tiles."""
        found = super()._gradients(grads)
        return [None if name in self._of_tiles else g for (name, _), g in zip(self._parameters, found, strict=True)]

    def _rate(self, name: str, tile: Tile, rates: dict[int, Tensor]) -> Tensor:
        """The learning rate of a tile."""
        number, group = next((k, g) for k, g in enumerate(self.groups) if name in g.names)
        if number not in rates:
            step = astype(self._step.to(tile.weight.device), float32)
            rate = (group.schedule or self.schedule)(step)
            rates[number] = astype(rate if group.lr_scale == 1.0 else rate * group.lr_scale, float32)
        return rates[number]


class SGD(AnalogOptimizer, DigitalSGD):
    """Stochastic gradient descent: tiles by pulses, other parameters as by ``optim.SGD``, whose arguments it has.

    Args:
        model: Module with analog layers.
        lr: Learning rate: a number or a schedule.
        momentum: Of digital parameters.
        nesterov: Of digital parameters.
        weight_decay: Of digital parameters.
        dampening: Of digital parameters.
        groups: Parameters with settings of their own (see ``optim.Optimizer``).

    Example:
        >>> import firebrick as fb
        >>> model = fb.analog.Linear(2, 1, config=fb.analog.RPUConfig(fb.analog.SoftBoundsDevice(dw_min=0.01)), seed=0)
        >>> optimizer = fb.analog.SGD(model, lr=0.1)
        >>> loss, gradients = fb.value_and_grad(lambda m: fb.mean((m(fb.ones((4, 2))) - 0.3) ** 2))(model)
        >>> optimizer.update(model, gradients)
    """

    def __init__(
        self, model: Module, lr: float | Schedule, momentum: float | Schedule = 0.0, *, nesterov: bool = False,
        weight_decay: float = 0.0, dampening: float = 0.0, groups: Rows = (),
    ) -> None:  # fmt: skip
        settings: dict[str, Any] = {"nesterov": nesterov, "weight_decay": weight_decay, "dampening": dampening}
        super().__init__(model, lr, momentum, **settings, groups=groups)


def _joined(factors: tuple[Factors, ...]) -> tuple[Tensor, Tensor]:
    """The inputs and errors of all uses of a tile."""
    if len(factors) == 1:
        return factors[0].x, factors[0].d
    return concat([f.x for f in factors]), concat([f.d for f in factors])


def tiles_of(model: Any) -> list[Tile]:
    """The tiles of a module.

    Args:
        model: Module, or what else an optimizer is made for.
    """
    return [m for _, m in model.modules() if isinstance(m, Tile)] if isinstance(model, Module) else []
