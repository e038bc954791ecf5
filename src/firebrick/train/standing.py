"""What a checkpoint holds of others than the learner itself, model, optimizer, averages, generators, and how they get it back.

Giving back is all or nothing for model, optimizer, averages and generators. A checkpoint whose hashes are right may still hold
what no learner wrote, since whoever changes a file can hash it again: that is a ``CheckpointError`` too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any

from firebrick import random
from firebrick.backends.registry import find_device
from firebrick.core.device import Device
from firebrick.core.errors import DeviceError, FirebrickError
from firebrick.core.untrusted import shown
from firebrick.nn import Module
from firebrick.optim import EMA
from firebrick.train import loss_state
from firebrick.train.checkpoint import Checkpoint
from firebrick.train.errors import CheckpointError, TrainingError
from firebrick.train.history import Epoch
from firebrick.train.measures import OWN, Measures, Metrics, kind_of, kinds_in
from firebrick.train.packing import MALFORMED


@dataclass(frozen=True)
class Resumed:
    """What a learner itself takes from a checkpoint: the attributes are those of ``Learner`` and its parts."""

    epoch: int
    step: int
    history: list[Epoch]
    best: Epoch | None
    cursor: dict[str, Any] | None
    loader: dict[str, Any] | None
    metrics: dict[str, Any] | None
    strategy: dict[str, Any]
    precision: dict[str, Any]
    stopping: str | None
    kernels: dict[str, str] | None


def resumed(found: Checkpoint, metrics: Metrics, named: bool = False) -> Resumed:
    """The learner's part of a checkpoint.

    Args:
        found: Checkpoint.
        metrics: The learner's further ones.
        named: Whether its steps give numbers by names of their own.

    Raises:
        CheckpointError: It holds something else than a learner writes.
    """
    state = found.state
    try:
        own = Resumed(
            _count(state["epoch"]),
            _count(state["step"]),
            [_epoch(row) for row in _list(state["history"])],
            None if state["best"] is None else _epoch(state["best"]),
            _cursor(state["cursor"]),
            _cursor(state.get("loader")),
            _metrics(found, state["metrics"], metrics, named),
            dict(state.get("strategy", {})),
            dict(found.optimizer.get("precision", {})),
            state.get("stopping"),
            None if "kernels" not in state else dict(state["kernels"]),
        )
        if not isinstance(own.stopping, str | None):
            raise TypeError(f"{shown(own.stopping)} instead of a reason")
        for text in (own.kernels or {}).values():
            if not isinstance(text, str):
                raise TypeError("the name of a variant is a text")
        if "scale" in own.precision:
            _check_amount(own.precision["scale"])
            _count(own.precision["good"])
        if state.get("settings") is not None:
            _check_plain(state["settings"])
        if "parts" in state:
            _check_plain(state["parts"])
            for entries in state["parts"].values():
                _check_plain(entries)
        for share in own.strategy.get("shares") or ():
            _check_amount(share)
        if len(own.history) != own.epoch:
            raise ValueError(f"{len(own.history)} rows of history after {own.epoch} epochs")
        if (own.cursor is None) is not (own.metrics is None):
            raise ValueError("within an epoch there are a cursor and metrics, and at its end none of both")
    except CheckpointError:
        raise
    except MALFORMED as e:
        raise _malformed(found, e) from e
    return own


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.80} instead of a list")
    return value


def _metrics(found: Checkpoint, saved: Any, metrics: Metrics, named: bool) -> dict[str, Any] | None:
    """The state of an epoch's measures, tried on others before the learner's take it."""
    if saved is not None:
        before = sorted({*saved} - {*OWN})
        theirs, own = kinds_in(saved), {n: kind_of(m) for n, m in metrics.items()}
        unlike = any(theirs.get(n, kind) != kind for n, kind in own.items())
        if unlike or not {*metrics} <= {*before} or not (named or {*before} <= {*metrics}):
            raise CheckpointError(
                f"the checkpoint {found.path} lies within an epoch that was begun with the metrics: {_named(before, theirs)}",
                f"a learner with {_named(sorted(own), own)}",
                "make the learner with the same metrics, or resume from a checkpoint at the end of an epoch",
            )
        Measures(metrics, named).load_state(saved)
    return None if saved is None else dict(saved)


def _named(names: Sequence[str], kinds: Mapping[str, str]) -> str:
    """Metrics by name, and what each is, where that is known."""
    return ", ".join(shown(f"{n}: {kinds[n]}" if n in kinds else n) for n in names) or "none"


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.80} instead of a whole number")
    return value


def _count(value: Any) -> int:
    if not 0 <= _whole(value) < 2**63:
        raise ValueError(f"{shown(value)} instead of a count")
    return int(value)


def _cursor(saved: Any) -> dict[str, Any] | None:
    """A loader's cursor: whole numbers, and facts of its order and data."""
    if saved is None:
        return None
    cursor = dict(saved)
    for name in ("epoch", "position"):
        _count(cursor[name])
    for name in ("samples", "seed", "batch_size"):
        if name in cursor:
            _whole(cursor[name])
    for facts, needed in (("order", ("kind", "digest")), ("data", ("type", "length"))):
        if facts in cursor:
            _check_plain(cursor[facts])
            if absent := [n for n in needed if n not in cursor[facts]]:
                raise KeyError(f"no {', '.join(absent)} of the {facts}")
            if not cursor[facts].keys() & {"digest", "unread"}:
                raise KeyError(f"no digest of the {facts}")
    return cursor


def _check_plain(facts: Any) -> None:
    if not isinstance(facts, Mapping):
        raise TypeError(f"{facts!r:.80} instead of facts by name")


def _check_amount(value: Any) -> None:
    if not isinstance(value, Real) or not isfinite(value) or value < 0:
        raise ValueError(f"{value!r:.80} instead of a finite number from 0")


def _epoch(row: Any) -> Epoch:
    found = Epoch(**row)
    if not isinstance(found.metrics, dict) or not all(isinstance(n, str) for n in found.metrics):
        raise TypeError(f"{shown(found.metrics)} instead of metrics by name")
    numbers = {**{n: v for n, v in row.items() if n != "metrics"}, **found.metrics}
    if wrong := [n for n, v in numbers.items() if not (v is None or isinstance(v, Real))]:
        raise TypeError(f"no number of {shown(', '.join(wrong))}")
    return found


def _malformed(found: Checkpoint, e: BaseException) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {found.path} holds what Learner wrote",
        f"its hashes are right, and its content is not ({type(e).__name__}: {shown(e, 500)})",
        "load its model alone, load_checkpoint(path).load_into(model), or go on from another checkpoint",
    )


def generators_of(model: Module) -> dict[str, Any]:
    """Where all random generators stand: those of ``fb.random``, and those of the model's parts."""
    return {"random": random.state(), "generators": model.generator_states()}


def generators_for(model: Module, loss: Any, devices: Sequence[Device]) -> list[random.Generator]:
    """The generators that a step of a model draws from: those of its parts and of its loss, and the devices' own."""
    own = [*model.generators().values(), *loss_state.generators_of(loss, model).values()]
    return [*own, *(random.default_generator(d) for d in devices)]


def check_averages(ema: EMA | None, model: Module) -> None:
    """Refuse averages of another model's parameters, which would stand still."""
    own = {id(p) for _, p in model.named_parameters()}
    strange = [] if ema is None else [n for n, p in ema.parameters if id(p) not in own]
    if strange:
        raise TrainingError(
            "ema averages parameters of the learner's model",
            f"averages of others: {', '.join(strange[:4])}{', …' if len(strange) > 4 else ''}",
            "pass a decay, or ema=optim.EMA(model) of the same model",
        )


def check_kept(found: Checkpoint, ema: EMA | None) -> None:
    """Refuse a checkpoint with averages where a learner keeps none: it was evaluated with them."""
    averages = found.optimizer.get("ema")
    if averages is not None and ema is None:
        decay = averages.get("decay") if isinstance(averages, dict) else averages
        raise TrainingError(
            "a run that keeps averages of its parameters goes on with them",
            f"averages in {found.path}, and a learner without",
            f"make it with ema={shown(decay)}",
        )


def give_back(
    found: Checkpoint,
    model: Module,
    optimizer: Any,
    ema: EMA | None,
    then: Iterable[tuple[Callable[[Any], Any], Any, Any]] = (),
) -> None:
    """Make model, optimizer, averages, generators, and what else there is, what a checkpoint says; all of it or nothing.

    Values go to where each thing lies now: on another device, another engine, or several of them.

    Args:
        found: Checkpoint.
        model: Model.
        optimizer: Its optimizer.
        ema: Averages of its parameters.
        then: What else takes over a state, all of it or none: the function, the state, and the one before.

    Raises:
        CheckpointError: It is of another model, or its state of a callback is none.
        TrainingError: It has averages, and the run has none.
        StateError: It is of another kind of optimizer, of a version that kept another state, or of other random generators.
    """
    check_kept(found, ema)
    averages = found.optimizer.get("ema")
    before = [(part.load_state_dict, part.state_dict()) for part in (model, optimizer, ema) if part is not None]
    before += [(random.set_state, random.state()), (model.set_generator_states, model.generator_states())]
    try:
        found.load_into(model)
        if ema is not None and averages is not None:
            ema.load_state_dict(averages)
        optimizer.load_state_dict(found.optimizer)
        if ema is not None and averages is None:
            ema.reset()
        random.set_state(_here(found.state["random"]))
        model.set_generator_states(found.state["generators"])
        for load, state, own in then:
            load(state)
            before.append((load, own))
    except BaseException as e:
        for load, state in before:
            load(state)
        if isinstance(e, MALFORMED) and not isinstance(e, FirebrickError):
            raise _malformed(found, e) from e
        raise


def _here(state: dict[str, Any]) -> dict[str, Any]:
    """A state of ``fb.random`` without the devices that this machine lacks: a run may go on on another one."""

    def there(name: str) -> bool:
        try:
            find_device(name)
        except DeviceError:
            return False
        return True

    return {**state, "devices": {n: s for n, s in state["devices"].items() if there(n)}}
