"""Settings of a run: what a checkpoint keeps of them, and what is said where a run goes on with others.

What the ``Learner`` was made with counts, since only it says so. The optimizer's settings, its learning rate and the decay of
averages are part of the state that a checkpoint gives back, and so the checkpoint's count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firebrick.core.lines import warn
from firebrick.core.untrusted import shown
from firebrick.data import DataLoader, LoaderError
from firebrick.data.identity import differences
from firebrick.optim import EMA
from firebrick.train.checkpoint import Checkpoint
from firebrick.train.description import Description, listed
from firebrick.train.errors import NothingTrainedWarning, ResumeWarning, TrainingError
from firebrick.train.precision import Precision

Settings = dict[str, Any]
_RUNNING = ("rate", "best", "waited", "cooling")  # of reduce_on_plateau: where it stands, and no setting
_REMEDY = ": to change it, assign {} after resume()"


def learners(
    clip_norm: Any, precision: Precision | None, accumulate: int, loss: Any, step: Any = None, batches_per_step: int = 1,
    target: str | None = None,
) -> Settings:  # fmt: skip
    """The settings that a ``Learner`` is made with, as plain values."""
    own = {} if step is None else {"step": getattr(step, "__qualname__", type(step).__name__)}
    own |= {} if target is None else {"target": target}
    return {
        **own,
        "clip_norm": None if clip_norm is None else float(clip_norm),
        "precision": "float32" if precision is None else precision.dtype.name,
        "accumulate": accumulate,
        "batches_per_step": batches_per_step,
        "loss": getattr(loss, "__qualname__", type(loss).__name__),
    }


def optimizers(state: Mapping[str, Any], ema: EMA | Mapping[str, Any] | None) -> Settings:
    """The settings within an optimizer's state and averages, as plain values."""
    if "optimizers" in state:
        parts = {f"{n}'s {k}": v for n, s in state["optimizers"].items() for k, v in optimizers(s, None).items()}
        return {**parts, **{k: v for k, v in optimizers({}, ema).items() if k.startswith("ema's ")}}
    averages = {"decay": ema.decay, "warmup": ema.warmup} if isinstance(ema, EMA) else ema
    found: Settings = {"learning rate": _shown(state.get("schedule"))}
    for i, group in enumerate(state.get("groups", ())):
        where = f"groups[{i}]." if i else ""
        found |= {f"{where}{k}": _shown(v) for k, v in group["settings"].items()}
        if i:
            found |= {f"{where}learning rate": _shown(group["schedule"]), f"{where}lr_scale": group["lr_scale"]}
    return found if averages is None else {**found, **{f"ema's {k}": averages[k] for k in ("decay", "warmup")}}


def _shown(value: Any) -> Any:
    """A setting, or the state of a schedule as it is written in Python."""
    if isinstance(value, (tuple, list)):
        return tuple(_shown(v) for v in value)
    if not isinstance(value, Mapping):
        return value
    kind = value.get("kind", "")
    skipped = ("kind", *_RUNNING) if kind == "reduce_on_plateau" else ("kind",)
    return f"{kind}({', '.join(f'{k}={_shown(v)!r}' for k, v in value.items() if k not in skipped)})".replace("'", "")


def _remedy(name: str) -> str:
    """How to change a setting that the checkpoint decides."""
    if name.startswith("ema's "):
        return _REMEDY.format(f"learner.ema.{name[6:]}")
    part, of_part, name = name.partition("'s ") if "'s " in name else ("", "", name)
    if of_part:
        return _remedy(name).replace("learner.optimizer", f'learner.optimizer["{part}"]')
    where, _, field = name.rpartition(".")
    if field == "learning rate":
        goal = "learner.optimizer.learning_rate" if not where else f"learner.optimizer.{where}.schedule = optim.constant(…)"
        return _REMEDY.format(goal)
    group = f"learner.optimizer.{where or 'groups[0]'}"
    if field == "lr_scale":
        return _REMEDY.format(f"{group}.lr_scale")
    return _REMEDY.format(f"{group}.settings = dataclasses.replace({group}.settings, {field}=…)")


def _part_changes(saved: Mapping[str, Any], own: Mapping[str, Description]) -> list[str]:
    """What model and loss have otherwise than when a checkpoint was written. An attribute that only one side has is left out:
    another version of its class may have it."""
    return [
        f"{part}'s {k} was {shown(before[k])} and is {shown(v)} from now on, as this learner says"
        for part, entries in own.items()
        if isinstance(before := saved.get(part), Mapping)
        for k, v in entries.items()
        if k in before and before[k] != v
    ]


def say_changes(
    found: Checkpoint, own: Settings, parts: Mapping[str, Description], own_state: Settings, loss_keeps: Sequence[str] = (),
    of_callbacks: Sequence[str] = (),
) -> None:  # fmt: skip
    """Warn where a checkpoint has other settings than a learner (``own``), its model and loss (``parts``), and its optimizer
    and averages (``own_state``); or has no state of a loss, which keeps something under these names (``loss_keeps``); or other
    callbacks (``of_callbacks``, sentences)."""
    kept = found.state.get("settings")
    before = kept if kept is not None else {"precision": found.optimizer.get("precision", {}).get("dtype", "float32")}
    theirs = optimizers(found.optimizer, found.optimizer.get("ema"))
    notes = [
        f"{k} was {shown(before[k])} and is {shown(v)} from now on, as this learner says"
        for k, v in own.items()
        if k in before and before[k] != v
    ]
    notes += [
        f"{k} stays {shown(theirs[k])}, as the checkpoint says, and is not {shown(v)}{_remedy(k)}"
        for k, v in own_state.items()
        if k in theirs and theirs[k] != v
    ]
    if "ema's decay" in own_state and "ema's decay" not in theirs:
        notes.append("it has no averages of the parameters: they begin with the parameters as they are now")
    if loss_keeps and "loss" not in found.optimizer:
        notes.append(f"it has no state of the loss, which goes on as it is now: {listed(list(loss_keeps))}")
    changed = _part_changes(found.state.get("parts") or {}, parts)
    if changed:
        notes.append(listed(changed))
    if kept is None:
        absent = [f"{k} ({own[k]} in this learner)" for k in own if k not in before]
        absent += ["settings of model and loss"]
        notes.append(f"it is of an earlier version, which did not keep {', '.join(absent)}, nor the order and the data")
    elif "parts" not in found.state:
        notes.append("it is of an earlier version, which did not keep settings of model and loss")
    notes += of_callbacks
    if notes:
        warn(f"the run goes on from {found.path} with a difference: {'; '.join(notes)}", ResumeWarning)


def say_done(done: int, epochs: int) -> None:
    """Warn that ``fit`` was asked for epochs that are done already."""
    warn(
        f"fit(epochs={epochs}) trains nothing: {done} epochs are done. epochs counts all of them, those of earlier calls and "
        f"of a resumed run too; {max(epochs, 1)} more are epochs={done + max(epochs, 1)}",
        NothingTrainedWarning,
    )


def say_stopped(done: int, epochs: int, reason: str) -> None:
    """Warn that a callback stopped ``fit`` before its first epoch, unless there is none to train."""
    if done < epochs:
        warn(
            f"fit(epochs={epochs}) trains nothing: a callback stops it after {done} epochs, for this reason: {reason}",
            NothingTrainedWarning,
        )


def enter(loader: DataLoader, cursor: dict[str, Any]) -> None:
    """Bring a loader to where a run stands within an epoch.

    Raises:
        TrainingError: It has other samples, or another order, than the epoch was begun with.
    """
    try:
        loader.load_cursor(cursor)
    except LoaderError as e:
        raise TrainingError(
            f"epoch {cursor['epoch'] + 1} was begun, and goes on with its samples in its order",
            e.received,
            "pass the loader that it was begun with; or repeat the epoch from its beginning: learner.cursor = None",
        ) from e


def say_loader(saved: Mapping[str, Any], loader: DataLoader) -> None:
    """Warn where a run goes on with another loader's samples, order or batches than it was saved with."""
    own = loader.cursor()
    notes = differences(saved, own, "before", "now") if saved["epoch"] == own["epoch"] else []
    if (size := saved.get("batch_size")) not in (None, loader.batch_size):
        notes.append(f"batch_size {shown(size)} before, {loader.batch_size} now: an epoch has another number of steps")
    if notes:
        warn(
            f'the run goes on with loader "{loader.name}" in another way than it was saved: {"; ".join(notes)}',
            ResumeWarning,
        )
