"""The checks that a user runs on their own devices: what holds, what does not, how far off it is and what to do.

``examine`` holds a device against the reference: every op (forward, gradient, destinations, memory), each kind of op on large
tensors, transfers in every dtype and layout, destinations under repeated writes, random bits, and a short training that must
follow the reference step by step. The gradient rules themselves are proved once, on the host. Nothing a device does wrong ends
the examination: an exception is a finding like any other.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from time import perf_counter
from typing import Any

import numpy as np

from firebrick.autodiff import value_and_grad
from firebrick.backends.contract import STORAGE
from firebrick.backends.dispatch import read
from firebrick.backends.registry import devices, find_device
from firebrick.core import dtypes
from firebrick.core.bind import bind
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.dtypes import DType
from firebrick.core.errors import DeviceError
from firebrick.core.hooks import hooks
from firebrick.core.tensor import Tensor
from firebrick.functions.activation import gelu
from firebrick.functions.losses import cross_entropy
from firebrick.functions.statistical import mean
from firebrick.nn import Conv2d, LayerNorm, Linear, MaxPool2d, Module, TransformerEncoderLayer
from firebrick.ops import OPS
from firebrick.ops.declare import Array, specials, values
from firebrick.optim import Adam
from firebrick.random import Generator, row_offset
from firebrick.testing.conformance import conformance
from firebrick.testing.gradients import check_gradients
from firebrick.testing.large import LONG, check_large
from firebrick.testing.layouts import LAYOUTS, place

_STEPS = 12  # of the short training
_WRITES = 64  # to one destination
_LOOSE = 2e4  # units of float32's precision by which a loss may differ after these steps: rounding, amplified by training

_ADVICE = {
    "conformance": "do not trust this op there: use another device or a dtype that passes; update the engine or driver",
    "large tensors": "do not trust this op there on large tensors: use another device; update the engine or driver",
    "gradient rules": "gradients of this op are wrong on every engine: do not train with it; update Firebrick",
    "transfers": "values change on the way: keep data on one device, and update the engine or driver",
    "destinations": "results written to out= are lost there: do not pass out=, and update the engine or driver",
    "random bits": "seeds give other numbers there than elsewhere: draw on another device and move the result",
    "training": "do not train there; rows above name the ops at fault, if any is",
}


@dataclass(frozen=True)
class Finding:
    """One thing that was checked.

    Attributes:
        check: Which check: ``conformance``, ``large tensors``, ``gradient rules``, ``transfers``, ``destinations``,
            ``random bits``, ``training``.
        device: Name of the device.
        subject: Op, dtype or step that it is about; a summary of the check where all is well.
        ok: Whether it holds.
        off: How far off: cases that failed, and the worst deviation where there is one.
        message: What was expected and received.

    Example:
        >>> from firebrick.testing import examine
        >>> sorted({f.check for f in examine(["numpy"], ops=["add"]).findings})[:2]
        ['conformance', 'destinations']
    """

    check: str
    device: str
    subject: str
    ok: bool
    off: str = ""
    message: str = ""

    @property
    def advice(self) -> str:
        """What to do about it; empty where all is well."""
        return "" if self.ok else _ADVICE[self.check]


@dataclass
class Examination:
    """The results of ``examine``.

    Attributes:
        findings: In the order of the checks.
        facts: What a bug report needs to say: versions, system, devices.
        seconds: How long it took.

    Example:
        >>> from firebrick.testing import examine
        >>> found = examine(["numpy"], ops=["add"])
        >>> found.ok, found.failures
        (True, [])
    """

    findings: list[Finding] = field(default_factory=list)
    facts: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether something was checked and everything holds."""
        return bool(self.findings) and all(f.ok for f in self.findings)

    @property
    def failures(self) -> list[Finding]:
        """The findings that do not hold."""
        return [f for f in self.findings if not f.ok]

    def text(self) -> str:
        """A block to paste into a bug report."""
        lines = ["firebrick doctor", *(f"{k}: {v}" for k, v in self.facts.items()), ""]
        for f in self.findings:
            lines.append(f"[{'ok' if f.ok else 'FAILED'}] {f.device} {f.check}: {f.subject}" + (f", {f.off}" if f.off else ""))
            if not f.ok:
                lines += [f"    {row}" for row in f.message.splitlines()]
        lines += ["", f"{len(self.failures)} of {len(self.findings)} failed, {self.seconds:.0f} s"]
        return "\n".join(lines) + "\n"


def examine(
    chosen: Iterable[Any] | None = None,
    ops: Iterable[str] | None = None,
    *,
    seed: int = 0,
    watch: Callable[[str, str], Any] | None = None,
) -> Examination:
    """Check devices.

    Args:
        chosen: Devices or device strings; one of every platform that is there by default.
        ops: Names of ops that conformance looks at; all by default.
        seed: Of samples and draws.
        watch: Called with device and check as each begins.

    Raises:
        DeviceError: A device is unknown or absent, or computes nothing.

    Example:
        >>> from firebrick.testing import examine
        >>> examine(["cpu"], ops=["add"]).ok
        True
    """
    if chosen is None:
        homes = [d for d in devices() if d.index == 0 and d.engine != "meta"]
    else:
        homes = list(dict.fromkeys(find_device(d) for d in chosen))
    for home in homes:
        if home.engine == "meta":
            raise DeviceError("a device to examine computes values", f"{home}, which knows shapes only", "name another one")
    names = None if ops is None else list(ops)
    begun = perf_counter()
    found = Examination(facts=_facts(homes, seed))
    with config.scope(fallback="silent"):
        if watch:
            watch("every engine", "gradient rules")
        found.findings += list(_rules(names, seed))
        for home in homes:
            for name, check in _CHECKS.items():
                if watch:
                    watch(home.name, name)
                found.findings += _guarded(name, check, home, names, seed)
    found.facts = _facts(homes, seed)  # with what engines measured when they first computed
    found.seconds = perf_counter() - begun
    return found


def _guarded(
    name: str, check: Callable[..., Iterator[Finding]], home: Device, ops: list[str] | None, seed: int
) -> list[Finding]:
    out = []
    try:
        for finding in check(home, ops, seed):
            out.append(finding)
    except Exception as e:  # noqa: BLE001 - a broken engine may raise anything
        out.append(Finding(name, home.name, "it could not be finished", False, message=f"{type(e).__name__}: {e}"))
    return out


def _facts(homes: list[Device], seed: int) -> dict[str, str]:
    facts = {
        "firebrick": _version("firebrick"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "packages": ", ".join(f"{n} {_version(n)}" for n in ("numpy", "ml_dtypes", "torch", "jax", "wgpu") if _version(n)),
        "seed": str(seed),
    }
    for home in homes:
        known = home.backend.properties(home)
        facts[home.name] = ", ".join(f"{k} {v}" for k, v in known.items() if v not in (None, ""))
    return facts


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


# the checks


def _rules(ops: list[str] | None, seed: int) -> Iterator[Finding]:
    report = check_gradients(ops, seed=seed)
    for name in sorted(report.failed_ops):
        failed = [v for v in report.failures if v.op == name]
        yield Finding("gradient rules", "every engine", name, False, f"{len(failed)} cases", str(failed[0]))
    if report.ok or not report.checked:
        yield Finding("gradient rules", "every engine", f"{report.checked} cases agree with differences", True)


def _conformance(home: Device, ops: list[str] | None, seed: int) -> Iterator[Finding]:
    report = conformance(home, ops, seed=seed, modes=["eager", "jit"])
    for name in sorted(report.failed_ops):
        failed = [v for v in report.failures if v.op == name]
        kinds = ", ".join(sorted({v.dtype for v in failed}))
        yield Finding("conformance", home.name, name, False, f"{len(failed)} cases ({kinds})", str(failed[0]))
    if report.ok:
        worst = max(report.worst, key=lambda n: report.worst[n])
        yield Finding(
            "conformance", home.name, f"{report.checked} cases of {len(report.worst)} ops", True,
            f"worst error {report.worst[worst]:.3g} units of precision ({worst})",
        )  # fmt: skip
    if report.fallbacks:
        yield Finding("conformance", home.name, f"on the host run: {', '.join(sorted(report.fallbacks))}", True)


def _large(home: Device, ops: list[str] | None, seed: int) -> Iterator[Finding]:
    report = check_large(home, ops, seed)
    for name in sorted(report.failed_ops):
        failed = [v for v in report.failures if v.op == name]
        yield Finding("large tensors", home.name, name, False, f"{len(failed)} calls", str(failed[0]))
    if report.ok:
        what = f"{report.checked} calls of {len(report.worst)} ops, to {LONG:,} elements"
        worst = max(report.worst.values())
        yield Finding("large tensors", home.name, what, True, f"worst error {worst:.3g} units of precision")


def _stored(home: Device) -> list[DType]:
    return [d for d in dtypes.ALL if STORAGE in home.backend.dtype_usage(home, d)]


def _bits(t: Tensor) -> bytes:
    return t.numpy().tobytes()


def _patterns(rng: np.random.Generator, dt: DType) -> Array:
    """Numbers of any bits: each NaN with what it carries, subnormal numbers, both zeros."""
    if dt.kind == "bool":
        return np.asarray(rng.integers(0, 2, 64), np.bool_)
    size = 1 << 16 if dt.itemsize == 2 else 1 << 12
    found: Array = rng.integers(0, 256, size * dt.itemsize, np.uint8).view(dt.np)
    return found


def _transfers(home: Device, ops: list[str] | None, seed: int) -> Iterator[Finding]:
    rng = np.random.default_rng(seed)
    others = [d for d in devices() if d.index == 0 and d.engine != "meta"]
    count, failed = 0, False
    for dt in _stored(home):
        wrong: list[str] = []
        arrays: list[Array] = [values(rng, dt.name, s) for s in ((), (0, 3), (5,), (3, 4), (257, 129))]
        arrays += [specials(dt.name), _patterns(rng, dt)]
        for array in arrays:
            there = hooks.from_host(array, home)
            checks = {"host → device → host": there.numpy(), "read with others": read([there, there])[1]}
            for other in others:
                if STORAGE in other.backend.dtype_usage(other, dt):
                    checks[f"device → {other} → device"] = there.to(other).to(home).numpy()
            count += len(checks)
            wrong += [f"{way}, {dt.name}{list(array.shape)}" for way, got in checks.items() if got.tobytes() != array.tobytes()]
        matrix = arrays[3]
        for layout in LAYOUTS:
            if layout in ("broadcast", "mixed"):
                continue
            view = place(layout, matrix, home)
            count += 2
            if _bits(view) != matrix.tobytes() or _bits(view.to("numpy")) != matrix.tobytes():
                wrong.append(f"a {layout} view to the host, {dt.name}{list(matrix.shape)}")
        if wrong:
            yield Finding(
                "transfers", home.name, dt.name, False, f"{len(wrong)} moves", "other values after: " + "; ".join(wrong)
            )
            failed = True
    if not failed:
        yield Finding("transfers", home.name, f"{count} moves in {len(_stored(home))} dtypes, to {len(others)} devices", True)


def _destinations(home: Device, ops: list[str] | None, seed: int) -> Iterator[Finding]:
    """What an optimizer does to a parameter: write it again and again, with and without an earlier view alive."""
    failed = False
    for shape in ((4,), (33, 65)):
        for kind in ("fresh", "in place", "under a view"):
            host = np.zeros(shape, np.float32)
            w = hooks.from_host(host, home)
            step = hooks.from_host(np.ones(shape, np.float32), home)
            seen: list[tuple[Tensor, float]] = []
            for i in range(_WRITES):
                if kind == "under a view":
                    seen.append((w[...], float(i)))
                goal = hooks.from_host(host, home) if kind == "fresh" else w
                w = bind(OPS["add"], (w, step), {}, goal)
            want = np.full(shape, float(_WRITES), np.float32)
            off = float(np.max(np.abs(w.numpy() - want)))
            stale = [i for v, i in seen if float(np.max(np.abs(v.numpy() - i))) != 0.0]
            if off or stale:
                failed = True
                text = f"{_WRITES} additions of 1 into a destination ({kind}) give {w.numpy().reshape(-1)[0]:g}, not {_WRITES}"
                if stale:
                    text += f"; {len(stale)} earlier views changed"
                yield Finding("destinations", home.name, f"float32{list(shape)}, {kind}", False, f"off by {off:g}", text)
    if not failed:
        yield Finding("destinations", home.name, f"{6 * _WRITES} writes read true, earlier views stay", True)


def _far(g: Generator, device: Any) -> Tensor:
    """Rows of a batch past element 2³²."""
    with row_offset(1 << 32):
        return g.uniform((101, 3), device=device)


_DRAWS: dict[str, Callable[[Generator, Any], Tensor]] = {
    "uniform": lambda g, d: g.uniform((257, 3), device=d),
    "bernoulli": lambda g, d: g.bernoulli((1001,), p=0.3, device=d),
    "integers": lambda g, d: g.integers((101,), low=-5, high=1000, device=d),
    "permutation": lambda g, d: g.permutation(57, device=d),
    "uniform, far into a batch": _far,
}
_ULPS = 4  # by which normals may differ


def _random(home: Device, ops: list[str] | None, seed: int) -> Iterator[Finding]:
    failed = False
    for name, draw in _DRAWS.items():
        here, there = draw(Generator(seed), "numpy"), draw(Generator(seed), home)
        differ = int(np.sum(here.numpy() != there.numpy().astype(here.dtype.np)))
        if differ:
            failed = True
            first = f"{there.numpy().reshape(-1)[:3].tolist()} instead of {here.numpy().reshape(-1)[:3].tolist()}"
            yield Finding(
                "random bits", home.name, name, False, f"{differ} of {here.size} differ", f"seed {seed} draws {first}"
            )
    a, b = (Generator(seed).normal((4001,), device=d).numpy() for d in ("numpy", home))
    ulps = float(np.max(np.abs(a - b) / np.spacing(np.abs(a))))
    if not ulps <= _ULPS:
        failed = True
        yield Finding("random bits", home.name, "normal", False, f"{ulps:.3g} ulp", f"normals may differ by {_ULPS} ulp")
    if not failed:
        yield Finding(
            "random bits", home.name, f"{len(_DRAWS)} kinds of draws are the reference's", True, f"normals {ulps:.2g} ulp"
        )


class _Patient(Module):
    """A small network with what most networks have."""

    def __init__(self, dtype: DType, device: Device) -> None:
        how: dict[str, Any] = {"dtype": dtype, "device": device}
        g = Generator(7)
        self.conv = Conv2d(1, 4, 3, padding=1, generator=g, **how)
        self.pool = MaxPool2d(2)
        self.norm = LayerNorm(16, **how)
        self.block = TransformerEncoderLayer(16, 2, generator=g, **how)
        self.head = Linear(16, 3, generator=g, **how)

    def forward(self, x: Tensor) -> Tensor:
        features = gelu(self.pool(self.conv(x))).reshape((x.shape[0], 4, 16))
        logits: Tensor = self.head(mean(self.block(self.norm(features)), axis=1))
        return logits


def _losses(home: Device, dt: DType, seed: int) -> list[float]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(24, 1, 8, 8)).astype(dt.np)
    y = rng.integers(0, 3, 24)
    x += y[:, None, None, None] * 0.5  # something to learn
    model = _Patient(dt, home)
    optimizer = Adam(model, lr=1e-2)
    images, labels = hooks.from_host(x, home), hooks.from_host(y.astype(np.int32), home)
    out = []
    for _ in range(_STEPS):
        loss, grads = value_and_grad(lambda m: cross_entropy(m(images), labels))(model)
        optimizer.update(model, grads)
        out.append(float(loss))
    return out


def _training(home: Device, ops: list[str] | None, seed: int) -> Iterator[Finding]:
    """The same training as on ``numpy``: in float64 to 1e-10, in float32 as far as rounding, amplified, allows."""
    for dt in (dtypes.float64, dtypes.float32):
        if not home.backend.supports_dtype(home, dt):
            continue
        want, got = _losses(find_device("numpy"), dt, seed), _losses(home, dt, seed)
        bound = 1e-10 if dt is dtypes.float64 else _LOOSE * dt.eps
        gaps = [abs(a - b) / max(1.0, abs(b)) for a, b in zip(got, want, strict=True)]
        bad = next((i for i, gap in enumerate(gaps) if not gap <= bound), None)
        if bad is not None:
            text = f"step {bad + 1}: loss {got[bad]:.9g}, {want[bad]:.9g} on numpy; the first was {got[0]:.6g}"
            yield Finding("training", home.name, f"{dt.name}, step {bad + 1}", False, f"off by {gaps[bad]:.2g}", text)
        elif not got[-1] < got[0]:
            text = f"the loss went from {got[0]:.6g} to {got[-1]:.6g} in {_STEPS} steps"
            yield Finding("training", home.name, dt.name, False, "it does not fall", text)
        else:
            text = f"{dt.name}: loss {got[0]:.3f} → {got[-1]:.3f} in {_STEPS} steps"
            yield Finding("training", home.name, text, True, f"off by {max(gaps):.1g}")


_CHECKS: dict[str, Callable[..., Iterator[Finding]]] = {
    "conformance": _conformance,
    "large tensors": _large,
    "transfers": _transfers,
    "destinations": _destinations,
    "random bits": _random,
    "training": _training,
}
