"""What is checked before the first step, so that a run that cannot work says so at once and says what to change.

In order: the model has something to train; its parameters and buffers, the optimizer's state and the loader are on the
strategy's devices; the loader's first batch is there, and goes through model and loss; where a batch is divided, its loss is
the mean of those of its rows; where a part of a batch is one row, the model takes it; a batch of the validation can be
evaluated. The trial passes take no gradients, and put generators and buffers back; their caller puts plain attributes back
(see ``trial``). Optimizer and config are looked at when the learner is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from firebrick.core.device import Device
from firebrick.core.errors import FirebrickError
from firebrick.core.operands import describe
from firebrick.core.settings import number
from firebrick.core.tensor import Tensor
from firebrick.data import DataLoader, Portion, UnknownLengthError
from firebrick.distributed import world_size
from firebrick.distributed.session import launcher
from firebrick.functions.losses import kl_div, nll_loss
from firebrick.functions.parts import part_of_batch
from firebrick.functions.statistical import max as max_
from firebrick.nn import BatchNorm1d, BatchNorm2d, BatchNorm3d, KLDivLoss, Module, NLLLoss
from firebrick.optim import LBFGS
from firebrick.random import row_offset
from firebrick.train.batches import (
    Call,
    call_of,
    check_batch,
    check_call,
    hint_of,
    moved,
    pieces_of,
    rows_in,
    rows_of,
    tensors_of,
)
from firebrick.train.divisor import apart, with_other_labels
from firebrick.train.errors import TrainingError
from firebrick.train.evaluation import evaluating
from firebrick.train.loss_state import changed_by, modules_of
from firebrick.train.measures import Measures, Metrics
from firebrick.train.parallel.passes import put_back
from firebrick.train.parallel.shares import sizes_of
from firebrick.train.steps import EvaluationStep
from firebrick.train.strategy import Strategy, moments_of

Loss = Callable[[Any, Any], Tensor]
_PLAIN = (str, int, float, type(None))
_OF_OPTIMIZER = ("update", "step", "learning_rate", "state_dict", "load_state_dict")
_BATCH_NORMS = (BatchNorm1d, BatchNorm2d, BatchNorm3d)


def check_learner(
    model: Module, config: Any, *, seconds: Any
) -> Device:  # fmt: skip
    """The device of a learner's model, when its settings were checked.

    The arguments are those of ``Learner``; ``seconds`` is ``checkpoint_seconds``.

    Raises:
        TrainingError: The model has no parameters, or a setting has no meaning.
    """
    if not isinstance(model, Module):
        raise TrainingError(
            "a Learner trains an nn.Module",
            f"model: {type(model).__module__.partition('.')[0]}'s {type(model).__name__}",
            "derive the model's class from nn.Module; the order of arguments is Learner(model, optimizer, loss)",
        )
    parameters = model.parameters()
    if not parameters:
        raise TrainingError(
            "a Learner needs a model with parameters",
            f"{type(model).__name__} has none",
            "assign nn.Parameter or modules as its attributes",
        )
    check_config(dict(config or {}))
    if not number("Learner", "checkpoint_seconds", seconds) >= 0.0:
        raise TrainingError("checkpoint_seconds is a number ≥ 0", repr(seconds), "pass math.inf for none by time")
    return parameters[0].device


def check_optimizer(optimizer: Any) -> None:
    """Raise TrainingError unless a learner can train with an optimizer."""
    if isinstance(optimizer, LBFGS):
        raise TrainingError(
            "a Learner trains with an optimizer that takes one gradient a step",
            "LBFGS, which computes the loss and its gradient several times a step",
            "use optim.Adam(model, lr=1e-3) or another one, or call optimizer.step(model, loss_fn) in a loop of your own",
        )
    if isinstance(optimizer, type) or not all(hasattr(optimizer, n) for n in _OF_OPTIMIZER):
        received = f"the class {optimizer.__name__}" if isinstance(optimizer, type) else f"{optimizer!r:.80}"
        raise TrainingError(
            "a Learner trains with one optimizer, made for the model", received, "pass e.g. optim.Adam(model, lr=1e-3)"
        )


def check_undivided(
    optimizer: Any, strategy: Strategy, *, accumulate: int, batches_per_step: int, clip_norm: Any, scaled: bool
) -> None:  # fmt: skip
    """Raise TrainingError where an optimizer needs the gradient of one backward pass, and a step has a joined or scaled one.

    Args:
        optimizer: Of the learner. ``undivided``, where it has that, are the names of the parameters that need it.
        strategy: Of the learner.
        accumulate: Parts of a batch.
        batches_per_step: Batches of a step.
        clip_norm: Largest norm; None for none.
        scaled: Whether the loss is scaled.
    """
    names = list(getattr(optimizer, "undivided", ()))
    devices = ", ".join(d.name for d in strategy.devices)
    settings = {
        f"a strategy that divides batches ({type(strategy).__name__}, {devices})": strategy.joins,
        f"accumulate={accumulate}": accumulate > 1, f"batches_per_step={batches_per_step}": batches_per_step > 1,
        f"clip_norm={clip_norm}": clip_norm is not None, "a precision that scales the loss (float16)": scaled,
    }  # fmt: skip
    received = [text for text, given in settings.items() if given]
    if names and received:
        more = f" and {len(names) - 1} others" if len(names) > 1 else ""
        raise TrainingError(
            f"{names[0]}{more}, which pulses update, have the gradient of one backward pass over the whole batch",
            " and ".join(received),
            "leave it out and train on one device; devices that are updated by arithmetic (analog.PulseType.NONE_WITH_DEVICE) "
            "take any gradient",
        )


def check_config(config: dict[str, Any]) -> None:
    """Raise TrainingError unless checkpoints can hold a config."""
    if (strange := _not_plain(config, "config")) is not None:
        where, value = strange
        raise TrainingError(
            "config holds plain values, which checkpoints keep: text, numbers, bools, None, and lists and dicts of them",
            f"{where}: {value!r:.80}, a value of {type(value).__name__}",
            "pass str(path), float(x), int(n) or dtype.name",
        )


def _not_plain(value: Any, where: str) -> tuple[str, Any] | None:
    """The first value or key in a tree that JSON has no form for, and where it is."""
    if isinstance(value, dict):
        if strange := [k for k in value if not isinstance(k, _PLAIN)]:
            return f"a key of {where}", strange[0]
        rows = [(f"{where}[{k!r}]", v) for k, v in value.items()]
    elif isinstance(value, (list, tuple)):
        rows = [(f"{where}[{i}]", v) for i, v in enumerate(value)]
    else:
        return None if isinstance(value, _PLAIN) else (where, value)
    return next((found for at, v in rows if (found := _not_plain(v, at)) is not None), None)


def check_alone() -> None:
    """Raise TrainingError where a launcher started several processes, which would train by themselves."""
    if by := launcher():
        raise TrainingError(
            "one of several processes that a launcher started trains with the others",
            f"{by} started {world_size()} processes, and the Learner has no strategy: each would train a model of its own",
            "pass strategy=Distributed(); or strategy=SingleDevice(), to train each model by itself",
        )


def length_of(loader: DataLoader) -> int | None:
    """The number of a loader's batches; None of a stream without a length."""
    try:
        return len(loader)
    except UnknownLengthError:
        return None


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
        if strange := [d for d in loader.devices if d not in devices]:
            raise TrainingError(
                f'the batches of loader "{loader.name}" come on a device of the strategy: {names}',
                f"loader on {', '.join(d.name for d in strange)}",
                f'use loader.to("{devices[0]}"), or Learner(…, strategy=SingleDevice("{strange[0]}"))',
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


def _is_loss(value: Any) -> bool:
    return isinstance(value, Tensor) and value.size == 1 and value.dtype.kind == "float"


def _check_logarithms(loss: Any, output: Any) -> None:
    """Raise TrainingError where a loss of logarithms of probabilities gets probabilities or logits: it has no minimum."""
    of = loss.func if isinstance(loss, partial) else loss
    if not (isinstance(of, (NLLLoss, KLDivLoss)) or of is nll_loss or of is kl_div):
        return
    if not isinstance(output, Tensor) or output.dtype.kind != "float" or not output.size:
        return
    largest = float(max_(output))
    if largest > (_ROUNDED if output.dtype.itemsize > 2 else _ROUNDED_HALF):
        name = getattr(of, "__name__", type(of).__name__)
        raise TrainingError(
            f"{name} takes logarithms of probabilities, which are at most 0",
            f"an output of the model with {largest:.4g}, as probabilities or logits have",
            "end the model with nn.LogSoftmax(), or train on its logits with nn.CrossEntropyLoss()",
        )


_ROUNDED, _ROUNDED_HALF = 1e-4, 1e-2
"""How far above 0 the logarithm of a probability of 1 may be rounded; in bfloat16, log 1.0078."""


def _no_loss(value: Any) -> TrainingError:
    if isinstance(value, Tensor):
        received, remedy = describe("loss", value), 'use reduction="mean"' if value.size != 1 else "return a floating tensor"
    elif isinstance(value, int | float):
        received, remedy = f"a Python number, {value!r:.20}", "return the tensor, not its item(): gradients pass through it"
    else:
        received, remedy = type(value).__name__, "return the tensor alone; further numbers of a batch are metrics"
    return TrainingError("the loss is one floating number, the mean over a batch", received, remedy)


def try_batch(
    model: Module,
    loss: Loss,
    loader: DataLoader,
    strategy: Strategy,
    parts: int = 1,
    metrics: Metrics | None = None,
    target: str | None = None,
    batches: int = 1,
) -> None:
    """See that the loader's first batch lies where the strategy runs it, and send the owner's rows through model and loss.

    Raises:
        TrainingError: A batch lies elsewhere, has no ``target``, the model cannot take it, or the loss cannot be computed from
            it, or not from its parts where several devices share it, it is run in several ``parts``, or it is one of several
            ``batches`` of an update.
    """
    first = loader.first()
    if isinstance(first, Portion) and first.piece is None:
        return  # a small batch, which other ranks try
    pieces = first if isinstance(first, list) else pieces_of(first)
    if len(pieces) > len(strategy.devices) or all(piece is None for piece in pieces):
        raise TrainingError(
            f'a batch of loader "{loader.name}" comes in pieces for {", ".join(d.name for d in strategy.devices)}',
            f"{len(pieces)} pieces",
            "train from the loader that the strategy's place returns, in batches with rows for all",
        )
    for device, piece in zip(strategy.devices, pieces, strict=True):
        if piece is not None:
            _check_piece(piece, device, loader, target)
    batch = next(moved(piece, strategy.devices[0]) for piece in pieces if piece is not None)
    call = call_of(batch, target)
    check_call(model, call.inputs, call.named, target)
    divided = strategy.joins or parts > 1 or batches > 1
    kept: list[str] = []
    put = put_back([model, *modules_of(loss).values()], always=True)
    with _said(batch, loader, target), evaluating(model), put, part_of_batch() if divided else nullcontext():
        output = model(*call.inputs, **call.named)
        _check_logarithms(loss, output)
        if divided:
            kept = changed_by(lambda: loss(output, call.target), loss, model)
        value: Any = loss(output, call.target)
        Measures({} if metrics is None else metrics).try_further(output, call.target)
        unlike = _divided(model, loss, batch, target) if divided and not kept and _is_loss(value) else None
        alone = (
            _refused_alone(model, call_of(rows_of(batch, 0, 1), target))
            if _smallest_part(loader, strategy, parts) == 1
            else None
        )
    if not _is_loss(value):
        raise _no_loss(value)
    if kept:
        raise TrainingError(
            "where a batch is divided, over devices or by accumulate, or is one of several (batches_per_step), the loss keeps "
            "nothing from one call to the next",
            f"a loss whose calls change {', '.join(kept[:4])}{', …' if len(kept) > 4 else ''}",
            "move it into the model, as a Buffer or a Dropout there; or train on one device, each batch as a whole",
        )
    if alone is not None:
        raise TrainingError(
            "a batch norm takes the statistics of more than one value a channel in each part of a batch that is run by itself",
            f"{sizes_of(loader)} rows a batch, of which a part is one row; of that: {alone.received}",
            "drop a small last batch (DataLoader(…, drop_last=True)), choose another batch size, fewer devices or a smaller "
            'accumulate; or batch_norm="synchronised"',
        ) from alone
    if unlike is not None:
        rows, whole, joined = unlike
        raise TrainingError(
            "where a batch is divided, over devices or by accumulate, or is one of several (batches_per_step), its loss is the "
            "mean of the losses of its rows",
            f"{whole:g} for {rows} at once, {joined:g} for the same rows in two parts",
            "take the mean over all rows: of a loss with class weights, ignored labels or a sum, that is "
            'fb.mean(loss(…, reduction="none")); draw random numbers in tensors whose first axis is the batch; let no row look '
            "at others. Or train on one device, each batch as a whole",
        )


def check_pieces(loader: DataLoader, strategy: Strategy) -> None:
    """See that the loader's first batch lies where the strategy runs it; whatever tensors it has.

    Raises:
        TrainingError: It does not.
    """
    first = loader.first()
    if isinstance(first, Portion):
        first = [first.piece]
    pieces = first if isinstance(first, list) else pieces_of(first)
    for device, piece in zip(strategy.devices, pieces, strict=False):
        for t in [] if piece is None else tensors_of(piece):
            _check_device(t, device, loader)


def try_validation(
    model: Module, loss: Loss, loader: DataLoader, metrics: Metrics | None = None, target: str | None = None
) -> None:
    """See that the first batch of a loader to evaluate lies on its device, and evaluate it.

    Raises:
        TrainingError: It is not, the model cannot take it, or the loss cannot be computed from it.
    """
    batch = loader.first()
    _check_piece(batch, loader.device, loader, target)
    call = call_of(batch, target)
    check_call(model, call.inputs, call.named, target)
    with _said(batch, loader, target), evaluating(model, loss), put_back([model, *modules_of(loss).values()], always=True):
        EvaluationStep(model, loss, {} if metrics is None else metrics, target)(batch)


@contextmanager
def _said(batch: Any, loader: DataLoader, target: str | None) -> Iterator[None]:
    """What a batch of a loader is refused for, as an error of the run."""
    shown = ", ".join(f"{t.dtype.name}{list(t.shape)} on {t.device}" for t in tensors_of(batch))
    try:
        yield
    except FirebrickError as e:
        raise TrainingError(
            f'the model and the loss must take the batches of loader "{loader.name}" ({shown})\n{e.expected}',
            e.received,
            "; ".join(x for x in (e.remedy, hint_of(batch, target)) if x),
        ) from e


def _smallest_part(loader: DataLoader, strategy: Strategy, parts: int) -> int:
    """The fewest rows that a batch norm takes statistics of in an epoch."""
    if strategy.synchronised:
        return min(sizes_of(loader))
    rows = [r for size in sizes_of(loader) for r in strategy.divide(size) if r]
    return min(r // min(parts, r) for r in rows)


def _refused_alone(model: Module, row: Call) -> FirebrickError | None:
    """The error with which a model that has batch norms refuses to train on one row alone; None if it does not."""
    if not any(isinstance(m, _BATCH_NORMS) for _, m in model.modules()):
        return None
    model.train()
    try:
        with put_back([model], always=True):
            model(*row.inputs, **row.named)
    except FirebrickError as e:
        return e
    return None


def _divided(model: Module, loss: Loss, batch: Any, target: str | None) -> tuple[str, float, float] | None:
    """Which rows of a batch, their loss, and that of two parts of them joined, if the two differ by more than roundings.

    As it is in training, with the same random numbers, but for batch norms: those take their running statistics.
    """
    norms = [m for _, m in model.modules() if isinstance(m, _BATCH_NORMS)]
    rows, whole_call = rows_in(batch), call_of(batch, target)
    dtypes = {p.dtype for _, p in model.trainable_parameters()}
    if found := with_other_labels(loss, model(*whole_call.inputs, **whole_call.named), whole_call.target, dtypes):
        return f"{rows} rows with other labels", *found
    if rows < 2 or any(m.running_mean is None for m in norms):
        return None
    model.train()
    for m in norms:
        m.eval()

    def mean(start: int, stop: int) -> float:
        with row_offset(start), put_back([model], always=True):
            part = call_of(rows_of(batch, start, stop), target)
            value = loss(model(*part.inputs, **part.named), part.target)
        dtypes.add(value.dtype)
        return float(value)

    for count, cut in ((min(rows, 8), 2 if rows > 3 else 1), (rows, rows // 2)):
        whole = mean(0, count)
        joined = apart(whole, mean(0, cut), mean(cut, count), cut / count, dtypes)
        if joined is not None:
            return f"{count} rows", whole, joined
    return None


def _check_piece(piece: Any, device: Device, loader: DataLoader, target: str | None) -> None:
    """Raise TrainingError unless a batch, or a device's rows of one, can be given to model and loss on a device."""
    check_batch(piece, loader, target)
    for t in tensors_of(piece):
        _check_device(t, device, loader)


def _check_device(t: Tensor, device: Device, loader: DataLoader) -> None:
    if t.device is not device:
        raise TrainingError(
            f'the batches of loader "{loader.name}" that {device} takes lie on {device}',
            describe(t.label or "batch", t),
            f'use loader.to("{device}"), or loader.sharded([…], divide) for several devices',
        )
