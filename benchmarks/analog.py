"""``python -m benchmarks.analog``: pulsed updates and products of a tile of 256 × 784 devices, and training steps of a LeNet.

For each device: an update by a batch of 64 with large gradients (d ~ N(0, 1), about 61 million pulses), and with small ones
(d / 100). Beside it a reference simulator: aihwkit, measured in turns with Firebrick, where ``--peer`` names an interpreter
that has it; its figures elsewhere, where ``--figures`` names a JSON file of them (``results``: name → kind → ``median_s``). The
random numbers are measured alone as well: their generation bounds an update with noise.

Updates are repeated on one tile, so weights come near their bounds, as in training.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks import measure

SIZE, BATCH, RATE = (256, 784), 64, 0.01
DEVICES = {
    "constant_default": "ConstantStepDevice", "linear_default": "LinearStepDevice", "softbounds_default": "SoftBoundsDevice",
    "sbref_default": "SoftBoundsReferenceDevice", "pmax_default": "SoftBoundsPmaxDevice", "exp_default": "ExpStepDevice",
    "pow_default": "PowStepDevice", "powref_default": "PowStepReferenceDevice",
}  # fmt: skip
"""Name among the figures → class, with its default settings."""
PRESETS = ("ReRamES", "ReRamSB", "Capacitor", "EcRam", "EcRamMO", "Idealized", "GokmenVlasov", "PCM", "ReRamArrayOM")
CELLS: dict[str, tuple[str, dict[str, Any]]] = {
    "vector_all": ("VectorUnitCell", {}), "reference": ("ReferenceUnitCell", {}), "ttv1": ("TransferCompound", {}),
    "ttv2": ("BufferedTransferCompound", {}), "chopped": ("ChoppedTransferCompound", {"fast_lr": RATE}),
    "dynamic": ("DynamicTransferCompound", {"fast_lr": RATE}), "mixed_precision": ("MixedPrecisionCompound", {}),
}  # fmt: skip
"""Name among the figures → class and settings, of devices with soft bounds; chopped cells learn at the rate of the others."""
NUMBERS = (1 << 18, 64)
"""Items, and blocks of four random numbers of an item, of the generator alone."""


CLOCK: dict[str, Callable[[], float]] = {"of": perf_counter}


TURNS = 3
"""How often Firebrick and a peer take turns."""


@dataclass(frozen=True)
class Case:
    """What is measured: its name, a kind of update (empty for others), a call, and the pulses of it."""

    name: str
    kind: str
    run: Callable[[], Any]
    pulses: int = 0
    calls: int = 1  # for one of an update

    @property
    def key(self) -> tuple[str, str]:
        return self.name, self.kind


class Peer:
    """aihwkit in a process of its own.

    Args:
        python: Interpreter that has it.
        threads: Its threads.
    """

    def __init__(self, python: str, threads: int) -> None:
        script = Path(__file__).with_name("with_aihwkit.py")
        self._process = subprocess.Popen(
            [python, str(script), str(threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=tempfile.gettempdir(),
        )
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"the interpreter of the peer ended with status {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def seconds(self, case: Case, calls: int) -> list[float]:
        """Seconds of calls of a case; none where it has no such case, which it says."""
        assert self._process.stdin is not None
        print(json.dumps({"name": case.name, "kind": case.kind, "calls": calls}), file=self._process.stdin, flush=True)
        found = self._answer()
        if "error" in found:
            print(f"  (no peer: {found['error']})")
        times: list[float] = found.get("seconds", [])
        return times


def seconds(fn: Callable[[], Any], rounds: int) -> list[float]:
    """Seconds of each call but the first."""
    found, clock = [], CLOCK["of"]
    for k in range(rounds + 1):
        start = clock()
        fn()
        if k:
            found.append(clock() - start)
    return found


def in_turns(case: Case, rounds: int, peer: Peer | None) -> tuple[list[float], list[float]]:
    """Seconds of calls of Firebrick, and of the peer; the first call of each turn does not count."""
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(TURNS if peer else 1):
        ours += seconds(case.run, rounds * case.calls)
        if peer:
            theirs += peer.seconds(case, rounds * case.calls + 1)[1:]
    return ours, theirs


def generator(rounds: int) -> dict[str, float]:
    """Random words and normal numbers a second, in kernels that do nothing else."""
    import firebrick as fb
    from firebrick.analog.normal_numbers import normal_block
    from firebrick.analog.typed_kernel import reads, results, typed_kernel

    types: dict[str, Any] = {"key": reads(fb.uint32, "4"), "n": int, "blocks": int}

    @typed_kernel("n", **types, out=results(fb.uint32, "n"))
    def words(key: Any, n: Any, blocks: Any, out: Any) -> None:
        i = fb.kernel.index()
        found = fb.kernel.random_bits(key, 4 * i)
        for k in range(blocks):
            for c in fb.kernel.unrolled(4):
                found = found ^ fb.kernel.random_bits(key, 4 * (k * n + i) + c)
        out[i] = found

    @typed_kernel("n", **types, out=results(fb.float32, "n"))
    def normals(key: Any, n: Any, blocks: Any, out: Any) -> None:
        i = fb.kernel.index()
        found = 0.0
        for k in range(blocks):
            a, b, c, d = normal_block(key, k * n + i)
            found = found + (a + b + c + d)
        out[i] = found

    items, blocks = NUMBERS
    key = fb.random.Generator(0).key()
    rates = {}
    for name, kernel in (("random words", words), ("normal numbers", normals)):
        took = statistics.median(seconds(lambda kernel=kernel: kernel(key, items, blocks).numpy(), rounds))
        rates[name] = 4.0 * items * blocks / took
    return rates


def tiles() -> dict[str, Any]:
    """A tile for each device and cell."""
    from firebrick import analog

    found = {}
    for name, kind in DEVICES.items():
        found[name] = analog.Tile(*SIZE, analog.RPUConfig(getattr(analog, kind)()), seed=0)
    for name in PRESETS:
        found[f"preset_{name}"] = analog.Tile(*SIZE, analog.RPUConfig(analog.preset(f"{name}PresetDevice")), seed=0)
    for name, (kind, settings) in CELLS.items():
        devices = (analog.SoftBoundsDevice(),) * (1 if kind == "MixedPrecisionCompound" else 2)
        found[f"compound {name}"] = analog.Tile(*SIZE, analog.RPUConfig(getattr(analog, kind)(devices, **settings)), seed=0)
    return found


def updates() -> Iterator[Case]:
    """Updates of tiles."""
    import firebrick as fb

    rng = np.random.default_rng(0)
    x, d = (fb.asarray(rng.normal(size=(BATCH, n)).astype(np.float32)) for n in (SIZE[1], SIZE[0]))
    for name, tile in tiles().items():
        for kind, errors in (("update, small gradient (d*.01)", d * 0.01), ("update, large gradient", d)):
            counts = tile.update(x, errors, RATE)
            pulses = int(np.sum(counts.numpy(), dtype=np.int64))
            yield Case(name, kind, lambda tile=tile, errors=errors: tile.update(x, errors, RATE).numpy(), pulses)  # type: ignore[misc]


def products() -> Iterator[Case]:
    """Forward and backward products."""
    import firebrick as fb
    from firebrick import analog

    rng = np.random.default_rng(1)
    x, d = (fb.asarray(rng.normal(size=(BATCH, n)).astype(np.float32)) for n in (SIZE[1], SIZE[0]))
    periphery = {
        "perfect": {"is_perfect": True}, "default": {},
        "no bound management": {"bound_management": analog.BoundManagementType.NONE},
        "ir_drop": {"ir_drop": 1.0}, "pcm_read noise": {"w_noise": 0.02, "w_noise_type": analog.WeightNoiseType.PCM_READ},
    }  # fmt: skip
    for name, settings in periphery.items():
        io = analog.IOParameters(**settings)
        device = analog.SoftBoundsDevice(w_max_dtod=0.0, w_min_dtod=0.0)
        tile = analog.Tile(*SIZE, analog.RPUConfig(device, io, io), seed=0)
        tile.set_weights(np.clip(0.1 * rng.normal(size=SIZE), -0.5, 0.5).astype(np.float32))
        for kind, call in (("forward", lambda t=tile: t(x)), ("backward", lambda t=tile: t.backward(d))):
            yield Case(f"{kind} {name}", "", lambda call=call: call().numpy(), calls=10)  # type: ignore[misc]


def training_step(device: Any) -> Callable[[], Any]:
    """A compiled training step of a LeNet of such devices at batch 64."""
    import firebrick as fb
    from firebrick import analog, nn

    rng = np.random.default_rng(2)
    x = fb.asarray(rng.normal(size=(64, 1, 28, 28)).astype(np.float32))
    y = fb.asarray(rng.integers(0, 10, 64))
    digital = nn.Sequential(
        nn.Conv2d(1, 16, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.Tanh(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(512, 128), nn.Tanh(), nn.Linear(128, 10),
    )  # fmt: skip
    model = analog.convert(digital, analog.RPUConfig(device), seed=0)
    optimizer = analog.SGD(model, lr=0.01)

    @fb.jit
    def step() -> Any:
        value, gradients = fb.value_and_grad(lambda m: fb.cross_entropy(m(x), y))(model)
        optimizer.update(model, gradients)
        return value

    return lambda: step().item()


def lenet() -> Iterator[Case]:
    """Training steps."""
    from firebrick import analog

    soft = analog.SoftBoundsDevice()
    kinds = {"ConstantStep": analog.ConstantStepDevice(), "SoftBounds": soft}
    kinds["Tiki-Taka, version 2"] = analog.BufferedTransferCompound((soft, soft))
    for name, device in kinds.items():
        yield Case(f"LeNet step batch 64, {name}", "", training_step(device))


def main() -> None:
    """Measure, print and write."""
    p = argparse.ArgumentParser("python -m benchmarks.analog", description=(__doc__ or "").partition("\n\n")[0])
    p.add_argument("--rounds", type=int, default=5, help="calls that count (5)")
    p.add_argument("--threads", type=int, default=2, help="threads (2)")
    p.add_argument("--only", nargs="*", default=[], help="parts of names of devices")
    p.add_argument("--kind", default="", help="part of the kinds of updates, such as small")
    p.add_argument("--processor-time", action="store_true", help="processor time of one thread, for a busy machine")
    p.add_argument("--figures", type=Path, help="JSON file of a reference simulator's seconds")
    p.add_argument("--peer", help="Python interpreter that has aihwkit, to be measured in turns")
    p.add_argument("--json", default="benchmarks/results/analog.json", help="file to write")
    args = p.parse_args()
    if args.processor_time:
        if args.peer:
            p.error("--peer measures the time that passes: leave out --processor-time")
        args.threads, CLOCK["of"] = 1, process_time
    os.environ["FIREBRICK_NUM_THREADS"] = str(args.threads)
    import firebrick as fb

    fb.config.load_environment()
    known = json.loads(args.figures.read_text())["results"] if args.figures else {}
    rates = generator(args.rounds)
    print(f"{args.threads} threads, load {measure.load()}")
    for name, rate in rates.items():
        print(f"{name}: {rate / 1e9:.2f} · 10⁹ a second")
    print(f"{'device':<42} {'kind':<32} {'ms':>9} {'Mpulses':>9} {'ns a pulse':>11} {'of normals':>11} {'ratio':>7}")
    rows: list[dict[str, Any]] = []

    peer = Peer(args.peer, args.threads) if args.peer else None
    small: list[float] = []  # ratios of updates with small gradients
    large: list[float] = []
    for case in itertools.chain(updates(), products(), lenet()):
        if args.kind not in case.kind or (args.only and not any(text in case.name for text in args.only)):
            continue
        ours, theirs = in_turns(case, args.rounds, peer)
        took = statistics.median(ours)
        figures = known.get(case.name, {})
        before = (figures.get(case.kind, {}) if case.kind else figures).get("median_s")
        reference = statistics.median(theirs) if theirs else before
        if reference and case.kind and not case.name.startswith("compound"):
            (small if "small" in case.kind else large).append(reference / took)
        ratio = f"{reference / took:7.1f}" if reference else " " * 7
        share = case.pulses / rates["normal numbers"] / took
        each = f"{took / case.pulses * 1e9:11.2f} {share:11.2f}" if case.pulses else " " * 23
        print(f"{case.name:<42} {case.kind:<32} {took * 1e3:9.3f} {case.pulses / 1e6:9.2f} {each} {ratio}", flush=True)
        quartiles = statistics.quantiles(ours, n=4) if len(ours) > 1 else []
        rows.append({
            "name": case.name, "kind": case.kind, "seconds": took, "quartiles": quartiles, "pulses": case.pulses,
            "reference_seconds": reference, "reference_measured_here": bool(theirs), "reference_elsewhere": before,
        })  # fmt: skip
    for text, ratios in (("small", small), ("large", large)):
        if ratios:
            print(
                f"{len(ratios)} devices, {text} gradients: geometric mean of the ratios {statistics.geometric_mean(ratios):.2f}"
            )
    path = Path(args.json)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"generator": rates, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
