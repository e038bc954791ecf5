"""Trains a random network in the ways that Firebrick has, and judges each by torch in float64 with the same weights.

Compared are the loss of each step, the first step's output and gradients (by the parameters and by x), and afterwards
parameters, running statistics and the output in evaluation. How far these may be off is what rounding in the way's dtype
changes (see ``rounding``), measured on this network: there is no constant to choose.
"""

from __future__ import annotations

import signal
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import lru_cache
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from forced import kernels_of_any_size
from rounding import Exact, exact

import firebrick as fb
from firebrick.backends import register_backend, registry
from firebrick.backends.decorators import Decorator
from firebrick.core.errors import ConfigError, OutOfRangeError
from networks.drawing import OPTIMIZERS, Network, draw, smaller
from networks.losses import LOSSES
from networks.parts import OURS, THEIRS, their_name

Named = dict[str, np.ndarray[Any, Any]]
STRATEGIES = ("none", "balanced", "budget")
WORK = {"none": 1, "balanced": 2, "budget": 4}  # operations of an eager run, in those of a run without strategy
SECONDS = 60  # after which a compiled run is taken for one that never ends
TRIALS, MANY = 3, 24  # of simulated rounding: at first, and before a failure is believed
WEAK = 0.05  # share of its size that a loss or an output may change by rounding; a network beyond it is not judged


class Unusable(Exception):
    """A network that torch cannot run, or whose results are not finite or are all rounding."""


class WorkExceededError(Exception):
    """A run computes far more than the network needs."""


@dataclass(frozen=True)
class Way:
    """A way to run a network.

    Attributes:
        device: Device string.
        mode: ``eager``, ``jit``, ``forced``: under jit, with what is compiled whatever its size, or ``verify``: the same with
            every kernel held against its reference.
        strategy: Of ``STRATEGIES``: what the backward pass computes again.
        dtype: Of parameters and x.
        autocast: Dtype of products, or nothing.
    """

    device: str = "cpu"
    mode: str = "jit"
    strategy: str = "none"
    dtype: str = "float32"
    autocast: str = ""

    @property
    def rounds(self) -> str:
        """The dtype whose rounding the results show."""
        return self.autocast or ("float32" if self.dtype == "float64" else self.dtype)


@dataclass(frozen=True)
class Failure:
    """What was wrong: ``kind`` is ``wrong`` or the name of an exception."""

    network: Network
    way: Way
    kind: str
    text: str

    def program(self) -> str:
        """The failure as a program to run."""
        lines = [
            "# PYTHONPATH=src:tests/shared python this.py",
            "# " + self.network.text(),
            f"# x {self.network.shape}, {self.network.loss[1]}, {self.network.optimizer}, seed {self.network.seed}",
            *(f"#   {line}" for line in self.text.splitlines()[:12]),
            "from networks.drawing import Network, Part",
            "from networks.running import Way, judge",
            f"print(judge({self.network!r}, {self.way!r}) or 'right')",
        ]
        return "\n".join(lines)


# the same values for both


def _rounded(values: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """Values in float64 that a dtype can hold."""
    return values.astype(fb.dtype(dtype).np).astype(np.float64)


def twin(network: Network, dtype: str) -> Any:
    """torch's network in float64, with weights drawn from the seed and rounded to a dtype."""
    torch.default_generator.manual_seed(0)  # torch.manual_seed also keeps the stack of each call for GPUs that are not in use
    model = eval(network.text(ours=False), THEIRS).double()
    rng = np.random.default_rng(network.seed + 2)
    with torch.no_grad():
        for name, p in (*model.named_parameters(), *model.named_buffers()):
            if not p.dtype.is_floating_point:
                continue
            shape = tuple(p.shape)
            if name.endswith("running_var"):
                values = rng.uniform(0.5, 1.5, shape)
            elif len(shape) < 2 and "weight" in name:
                values = 1.0 + 0.3 * rng.normal(size=shape)
            else:
                values = rng.normal(size=shape) * (0.5 if len(shape) < 2 else 1.2 / max(1, np.prod(shape[1:])) ** 0.5)
            p.copy_(torch.as_tensor(_rounded(np.asarray(values), dtype)))
        for m in model.modules():
            if isinstance(m, torch.nn.Embedding) and m.padding_idx is not None:
                m.weight[m.padding_idx] = 0.0
    return model.train(network.training)


@lru_cache(maxsize=8)
def beginning(network: Network, dtype: str) -> Named:
    """The parameters and buffers that a network begins with, under torch's names."""
    like = twin(network, dtype)
    return {n: p.detach().numpy() for n, p in (*like.named_parameters(), *like.named_buffers())}


def ours(network: Network, values: Named) -> fb.nn.Module:
    """Our network in float64 on the default device, with the values of torch's."""
    model = eval(network.text(), dict(OURS)).astype(fb.float64)
    names = set(values)
    state = {n: fb.asarray(values[their_name(n, names)].copy()) for n, _ in (*model.named_parameters(), *model.named_buffers())}
    model.load_state_dict(state)
    return model if network.training else model.eval()


# what a loss takes for an output
BEFORE: dict[str, tuple[Callable[[fb.Tensor], fb.Tensor], Callable[[Any], Any]]] = {
    "": (lambda y: y, lambda y: y),
    "sigmoid": (fb.sigmoid, torch.sigmoid),
    "log_softmax": (lambda y: fb.log_softmax(y, axis=1), lambda y: torch.log_softmax(y, 1)),
    "time_first": (
        lambda y: fb.swapaxes(fb.log_softmax(y, axis=2), 0, 1), lambda y: torch.log_softmax(y, 2).transpose(0, 1)
    ),
}  # fmt: skip


def before(network: Network) -> str:
    return "time_first" if network.loss[0] == "CTCLoss" else LOSSES[network.loss[0]].before


def _counts(model: fb.nn.Module, name: str) -> bool:
    """Whether a buffer counts the batches of an instance norm; torch's stays 0."""
    *path, last = name.split(".")
    owner: Any = model
    for part in path:
        owner = owner[int(part)] if part.isdigit() else getattr(owner, part)
    return last == "num_batches_tracked" and type(owner).__name__.startswith("InstanceNorm")


# torch


@contextmanager
def wide_torch() -> Iterator[None]:
    """torch with float64 for scalars (NAdam keeps a product in the default dtype) and without its advice."""
    torch.set_default_dtype(torch.float64)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def theirs_trained(network: Network, dtype: str) -> Named:
    """What torch gives in float64, under our names."""
    with wide_torch():
        return _theirs_trained(network, dtype)


def _theirs_trained(network: Network, dtype: str) -> Named:
    model = twin(network, dtype)
    with fb.use_device("numpy"):
        own = ours(network, beginning(network, dtype))
    held = dict(model.named_parameters())
    names = {n: their_name(n, set(held)) for n, _ in own.named_parameters()}
    x = torch.as_tensor(network.input if network.vocabulary else _rounded(network.input, dtype))
    x.requires_grad_(not network.vocabulary)
    targets = [torch.as_tensor(_rounded(t, dtype) if t.dtype.kind == "f" else t) for t in network.targets]
    kinds = {**vars(torch.nn), "BCELoss": THEIRS["BCELoss"]}
    loss_of = eval(network.loss[1], {"nn": SimpleNamespace(**kinds)})
    text = OPTIMIZERS[network.optimizer][1].format("list(held.values())")
    optimizer = eval(f"torch.optim.{text}", {"torch": torch, "held": held}) if held else None
    prepare = BEFORE[before(network)][1]
    found: Named = {}
    for step in range(network.steps):
        y = model(x)
        value = loss_of(prepare(y), *targets)
        x.grad = None
        for p in held.values():
            p.grad = None
        if value.requires_grad:
            value.backward()
        found[f"loss {step}"] = value.detach().numpy().copy()
        if step == 0:
            found["output"] = y.detach().numpy().copy()
            grads = {f"gradient of {n}": held[other] for n, other in names.items()} | (
                {} if network.vocabulary else {"gradient of x": x}
            )
            found |= {n: (torch.zeros_like(p) if p.grad is None else p.grad).numpy().copy() for n, p in grads.items()}
        if optimizer is not None:
            optimizer.step()
    values = {n: p.detach().numpy() for n, p in (*model.named_parameters(), *model.named_buffers())}
    for n, _ in (*own.named_parameters(), *(b for b in own.named_buffers() if not _counts(own, b[0]))):
        found[f"{n} after {network.steps} steps"] = values[their_name(n, set(values))].copy()
    with torch.no_grad():
        found["output in evaluation"] = model.eval()(x).numpy().copy()
    return found


# ours


class Fed(fb.nn.Module):
    """A network with its x as a leaf of gradients."""

    def __init__(self, model: fb.nn.Module, x: fb.Tensor) -> None:
        self.model, self.x = model, fb.nn.Parameter(x) if x.dtype.is_inexact else x

    def forward(self) -> fb.Tensor:
        return self.model(self.x)


def trained(network: Network, way: Way, values: str = "") -> Named:
    """What a network gives when it is trained in a way; ``values`` is the dtype that its values fit, by default the way's."""
    values = values or way.dtype
    with fb.use_device(way.device):
        model = ours(network, beginning(network, values)).astype(way.dtype)
        kind = fb.dtype(way.dtype)
        x = fb.asarray(network.input) if network.vocabulary else fb.asarray(_rounded(network.input, values), dtype=kind)
        targets = [
            fb.asarray(_rounded(t, values), dtype=kind) if t.dtype.kind == "f" else fb.asarray(t) for t in network.targets
        ]
        loss_of = eval(network.loss[1], {"nn": fb.nn})
        fed = Fed(model, x)
        params = model.named_parameters()
        params = list(params)
        text = OPTIMIZERS[network.optimizer][0].format("model")
        optimizer = eval(f"fb.optim.{text}", {"fb": fb, "model": model}) if params else None
        prepare, cast = BEFORE[before(network)][0], way.autocast
        leaves = {f"gradient of {n}": p for n, p in params}
        if not network.vocabulary:
            leaves["gradient of x"] = fed.x

        def loss(fed: Fed) -> tuple[fb.Tensor, fb.Tensor]:
            with fb.autocast(cast) if cast else nullcontext():
                y = fed()
            return loss_of(prepare(y), *targets), y

        gradient = fb.value_and_grad(loss, has_aux=True) if leaves else lambda fed: (loss(fed), {})

        def step() -> Any:
            (value, y), grads = gradient(fed)
            shown = [grads[p] for p in leaves.values()]
            if optimizer is not None:
                optimizer.update(model, grads)
            return value, y, shown

        run = step if way.mode == "eager" else fb.jit(step)
        found: Named = {}
        with ExitStack() as stack:
            stack.enter_context(_strategy(way.strategy, network))
            if way.mode in ("forced", "verify"):
                stack.enter_context(kernels_of_any_size())
            if way.mode == "verify":
                stack.enter_context(fb.verify(way.device.split(":")[0]))
            for k in range(network.steps):
                value, y, grads = run()
                found[f"loss {k}"] = value.numpy()
                if k == 0:
                    found["output"] = y.numpy()
                    found |= {n: g.numpy() for n, g in zip(leaves, grads, strict=True)}
        for n, p in (*model.named_parameters(), *(b for b in model.named_buffers() if not _counts(model, b[0]))):
            found[f"{n} after {network.steps} steps"] = p.numpy()
        with fb.no_grad():
            found["output in evaluation"] = model.eval()(x).numpy()
        return {n: np.array(a) for n, a in found.items()}


@contextmanager
def _strategy(name: str, network: Network) -> Iterator[None]:
    if name == "none":
        yield
        return
    budget = 16 * 4 ** (network.seed % 6) * max(16, int(np.prod(network.shape)))
    with fb.checkpointing("balanced") if name == "balanced" else fb.checkpointing(budget=budget):
        yield


class Counting(Decorator):
    """An engine that counts what it executes, stops at a limit, and knows the largest finite number that it met."""

    def __init__(self, inner: Any, limit: float) -> None:
        super().__init__(inner)
        self.count, self.checked = 0, limit  # names of its own that a decorator may have
        self.report = 0.0

    def execute(self, op: Any, inputs: Any, params: Any, out: Any = None) -> Any:
        self.count += 1
        if self.count > self.checked:
            raise WorkExceededError(f"more than {self.checked:.0f} operations")
        result = self.inner.execute(op, inputs, params, out)
        for r in result if type(result) is tuple else (result,):
            if isinstance(r, np.ndarray) and r.dtype.kind == "f" and r.size:
                self.report = max(self.report, float(np.abs(np.where(np.isfinite(r), r, 0.0)).max()))
        return result


@contextmanager
def counted(device: str, limit: float = np.inf) -> Iterator[Counting]:
    engine = device.split(":")[0]
    inner = registry.backend(engine)
    counting = Counting(inner, limit)
    register_backend(counting)
    try:
        yield counting
    finally:
        register_backend(inner)


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Stop what takes longer: only a run that never ends does."""

    def stop(*_: Any) -> None:
        raise WorkExceededError(f"more than {seconds:g} seconds")

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# judging


@lru_cache(maxsize=8)
def truth(network: Network, rounds: str, values: str, trials: int) -> tuple[Named, Exact, Counting]:
    """torch's results, ours in float64 with what rounding changes, and what counted its operations; raises ``Unusable``."""
    try:
        want = theirs_trained(network, values)
    except fb.FirebrickError:
        raise
    except (RuntimeError, ValueError, IndexError, AssertionError, TypeError) as e:
        raise Unusable(str(e)) from e
    if not all(np.isfinite(a).all() for a in want.values()):
        raise Unusable("not finite")
    top = max(float(np.abs(a).max(initial=0.0)) for a in want.values())
    if top > (3e3 if rounds == "float16" else 1e18):  # squares leave the range of the dtype
        raise Unusable("too large")
    wide = Way("numpy", "eager", "none", "float64")
    with deadline(SECONDS):
        with counted("numpy") as counting:
            first = [trained(network, wide, values)]  # what this raises is a failure
        try:  # the first run that `exact` asks for is the one without rounding, which is there already
            measured = exact(lambda: list((first.pop() if first else trained(network, wide, values)).values()), rounds, trials)
        except (OutOfRangeError, ArithmeticError) as e:
            raise Unusable(f"rounding leads out of a range: {e}") from e
    for name, a, e in zip(want, measured.values, measured.errors, strict=True):
        if name.startswith("loss") or name.startswith("output"):
            size = np.sqrt(np.mean(np.square(a))) if a.size else 0.0
            if not np.sqrt(np.mean(np.square(e))) <= WEAK * max(size, 0.1) * (4 if rounds in ("float16", "bfloat16") else 1):
                raise Unusable(f"{name} is mostly rounding")
    return want, measured, counting


def judge(network: Network, way: Way) -> Failure | None:
    """Run a network in a way; what is wrong with it, or None. Raises ``Unusable``."""
    found = _judged(network, way, TRIALS)
    return _judged(network, way, MANY) if found is not None and found.kind == "wrong" else found


def _judged(network: Network, way: Way, trials: int) -> Failure | None:
    values = way.rounds
    try:
        want, measured, plain = truth(network, way.rounds, values, trials)
        eps = fb.float64.eps
        # ours in float64 rounds in its own order; 64 for what the algorithms differ by
        share = 64 * eps / min(measured.eps, fb.float32.eps)
        tight = Exact(tuple(want.values()), tuple(share * e for e in measured.errors), 64 * eps)
        if wrong := [f"{n}: {t}" for n, t in zip(want, tight.worst(list(measured.values)), strict=True) if t]:
            return Failure(network, Way("numpy", "eager", "none", "float64"), "wrong", "\n".join(wrong))
        limits = tight if way.dtype == "float64" else Exact(tuple(want.values()), measured.errors, measured.eps)
        with ExitStack() as stack:
            stack.enter_context(deadline(SECONDS))
            if way.mode == "eager":
                # casts count too
                stack.enter_context(counted(way.device, 1.5 * WORK[way.strategy] * plain.count + 100))
            found = trained(network, way, values)
    except Unusable:
        raise
    except ConfigError as e:
        if way.strategy == "budget" and "budget" in str(e):
            return None  # it says that it cannot be met
        return Failure(network, way, type(e).__name__, _told(e))
    except Exception as e:  # noqa: BLE001 - whatever it is, it is a failure of this network
        return Failure(network, way, type(e).__name__, _told(e))
    if list(found) != list(want):
        return Failure(network, way, "wrong", f"{list(found)} instead of {list(want)}")
    wrong = [f"{n}: {t}" for n, t in zip(want, limits.worst(list(found.values())), strict=True) if t]
    # The square of a number on the way, as in a variance, may have left the range of float32. What fills places that nothing
    # reads, as in a CTC loss, is as large, so this is a reason only where the results differ.
    if wrong and way.dtype != "float64" and plain.report > 1e18:
        raise Unusable("too large on the way")
    return Failure(network, way, "wrong", "\n".join(wrong)) if wrong else None


def _told(e: BaseException) -> str:
    frames = [f for f in traceback.extract_tb(e.__traceback__) if "firebrick" in f.filename][-2:]
    return "\n".join([f"{type(e).__name__}: {e}", *(f"  {f.filename}:{f.lineno} {f.name}" for f in frames)])


def ways(seed: int) -> list[Way]:
    """The ways that the network of a seed is run in: compiled, another engine or strategy, and sometimes half precision."""
    d = Random(-1 - seed)
    found = [Way("cpu", d.choice(["forced", "forced", "jit"]), d.choice(["none", "none", *STRATEGIES]))]
    device, mode = d.choice(["numpy", "cpu", "torch:cpu"]), d.choice(["eager", "jit"])
    found.append(Way(device, mode, d.choice(STRATEGIES), d.choice(["float32", "float32", "float64"])))
    if d.random() < 0.35:
        half = d.choice(["float16", "bfloat16"])
        mode, cast = d.choice(["forced", "jit", "eager"]), d.random() < 0.3
        found.append(Way("cpu", mode, "none", "float32" if cast else half, half if cast else ""))
    return found


def shortened(network: Network, way: Way) -> Network:
    """In half precision, where updates round most, one step of SGD."""
    return replace(network, steps=1, optimizer="sgd") if way.rounds in ("float16", "bfloat16") else network


@dataclass
class Verdict:
    """What a seed gave."""

    seed: int
    ways: int
    unusable: int
    failures: list[Failure]


def check(seed: int, shrink: bool = True) -> Verdict:
    """Draw the network of a seed and run it in its ways."""
    network, verdict = draw(seed), Verdict(seed, 0, 0, [])
    begun: list[Failure] = []
    for way in ways(seed):
        try:
            failure = judge(shortened(network, way), way)
            verdict.ways += 1
        except Unusable:
            verdict.unusable += 1
            continue
        known = [(f.network, f.way) for f in begun]
        if failure is not None and (failure.network, failure.way) not in known:
            begun.append(failure)
    verdict.failures = [shrunk(f) for f in begun] if shrink else begun
    return verdict


def shrunk(failure: Failure, most: int = 150) -> Failure:
    """The smallest network found that fails in the same way and kind."""
    tried = 0
    again = True
    while again and tried < most:
        again = False
        for candidate in smaller(failure.network):
            tried += 1
            if tried > most or candidate.size >= failure.network.size:
                break
            try:
                found = judge(candidate, failure.way)
            except Unusable:
                continue
            except Exception:  # noqa: BLE001 - a candidate that cannot even be built
                continue
            if found is not None and found.kind == failure.kind:
                failure, again = found, True
                break
    return failure
