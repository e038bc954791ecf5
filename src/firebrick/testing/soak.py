"""The full conformance product: every op × dtype × sample × layout × destination on every engine, in shards, resumable.

The work is cut into units of one device, op and dtype. What a unit found is written to a file of its own, under a folder
named by a hash of the sources and of the libraries that compute; so a run that was stopped goes on where it was, several
processes or machines can share the work, and nothing found by other code is ever counted. Run it as
``python -m firebrick.testing.soak``; once all units are done it writes its part of ``docs/accuracy.md``.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

import click

from firebrick.core.op import Nondifferentiable
from firebrick.ops import OPS
from firebrick.testing.cases import EXCLUDED, chosen
from firebrick.testing.conformance import conformance
from firebrick.testing.engines import engines

_LIBRARIES = ("numpy", "ml_dtypes", "torch", "jax", "wgpu")
_MOST_SHOWN = 5  # failures of a unit that are kept


@dataclass(frozen=True)
class Unit:
    """A piece of the work: the cases of one op at one dtype on one device."""

    device: str
    op: str
    dtype: str

    @property
    def file(self) -> str:
        """Name of the file that its outcome is in."""
        return f"{self.device.replace(':', '_')}.{self.op}.{self.dtype}.json"


@dataclass
class Outcome:
    """What a unit found: cases, failures, the worst deviations in units of eps · scale, and the time it took."""

    device: str
    op: str
    dtype: str
    cases: int
    failed: int
    worst: float
    worst_gradient: float
    seconds: float
    fallback: bool
    failures: list[str] = field(default_factory=list)


def fingerprint(seed: int) -> str:
    """A hash of all that an outcome depends on: the sources, the libraries that compute, the processor and the seed."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256(f"{seed} {platform.machine()} {sorted(_versions().items())}".encode())
    for path in sorted(root.rglob("*.py")):
        part = path.relative_to(root)
        if part.parts[0] in ("core", "ops", "ir", "compiler", "backends", "autodiff", "graph", "testing"):
            digest.update(str(part).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _versions() -> dict[str, str]:
    found = {}
    for name in _LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def units(devices: Iterable[str], ops: Iterable[str] | None = None) -> list[Unit]:
    """All the work on some devices, in a fixed order."""
    return [Unit(d, op.name, dtype) for op in chosen(ops) for dtype in op.dtypes for d in devices]


def run_unit(unit: Unit, seed: int, folder: str) -> Outcome:
    """Do a piece of the work and write down what it found."""
    begun = perf_counter()
    report = conformance(unit.device, [unit.op], [unit.dtype], subset="full", seed=seed)
    found = Outcome(
        **asdict(unit),
        cases=report.checked,
        failed=len(report.failures),
        worst=report.worst.get(unit.op, 0.0),
        worst_gradient=report.worst_gradient.get(unit.op, 0.0),
        seconds=perf_counter() - begun,
        fallback=bool(report.fallbacks),
        failures=[str(v) for v in report.failures[:_MOST_SHOWN]],
    )
    goal = Path(folder) / unit.file
    partial = goal.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(asdict(found)), encoding="utf-8")
    partial.replace(goal)
    return found


def outcomes(folder: Path, wanted: Iterable[Unit]) -> dict[Unit, Outcome]:
    """What is known already. A file that cannot be read, or holds anything else, counts as work to be done."""
    known = {}
    for unit in wanted:
        try:
            found = Outcome(**json.loads((folder / unit.file).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            continue
        counts = (found.cases, found.failed, found.worst, found.worst_gradient, found.seconds)
        whole = all(isinstance(v, (int, float)) for v in counts) and isinstance(found.failures, list)
        if whole and Unit(found.device, found.op, found.dtype) == unit:
            known[unit] = found
    return known


def run(folder: Path, wanted: list[Unit], seed: int, jobs: int) -> Iterator[Outcome]:
    """Do units in ``jobs`` processes; outcomes come as they are ready."""
    folder.mkdir(parents=True, exist_ok=True)
    if jobs == 1:
        for unit in wanted:
            yield run_unit(unit, seed, str(folder))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes: together they have the cores
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(run_unit, unit, seed, str(folder)) for unit in wanted]
        try:
            for done in as_completed(waiting):
                yield done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


# the document


def write_part(path: Path, part: str, text: str) -> None:
    """Write a generated part of a document; the rest of the document stays as it is.

    Args:
        path: The document; it is made if it is not there.
        part: Name of the part. It stands between comments with that name, at the end of a document that has none.
        text: The part, in Markdown.
    """
    begin, end = f"<!-- {part}: generated, do not edit -->", f"<!-- end of {part} -->"
    old = path.read_text(encoding="utf-8") if path.exists() else "# Accuracy\n"
    before, found, rest = old.partition(begin)
    _, _, after = rest.partition(end)
    if not found:
        before, after = f"{old.rstrip()}\n\n", "\n"
    path.write_text(f"{before}{begin}\n\n{text.strip()}\n\n{end}{after}", encoding="utf-8")


def document(found: Iterable[Outcome], seed: int) -> str:
    """The part of ``docs/accuracy.md`` on ops: the figures of a whole run."""
    rows = list(found)
    devices = list(dict.fromkeys(r.device for r in rows))
    libraries = ", ".join(f"{n} {v}" for n, v in _versions().items())
    lines = [
        "Every op of the table on every engine, held against its reference in float64 (exactly, for integers and bool): all",
        "combinations of dtype, sample, memory layout and destination. An error is given in units of the dtype's precision,",
        "error / (eps · scale), where scale is the size of the exact result or what the op's entry in the op table says, such",
        "as the size of the terms of a sum. A result may err by k units. A gradient may err by 8 · max(k, 1), since its rule",
        "composes several ops; it is measured by its largest element, or by its terms where they cancel. Gradients are held",
        "against the same rule in float64 on `numpy`, and the rules themselves against central differences (`make test`).",
        "",
        f"`make soak`, seed {seed}, Python {platform.python_version()} on {platform.machine()}, {libraries}.",
        "",
        "| engine | cases | failed | ops | dtypes | processor time |",
        "|---|---|---|---|---|---|",
    ]
    for d in devices:
        mine = [r for r in rows if r.device == d]
        lines.append(
            f"| `{d}` | {sum(r.cases for r in mine):,} | {sum(r.failed for r in mine)} | {len({r.op for r in mine})} "
            f"| {len({r.dtype for r in mine if r.cases})} | {sum(r.seconds for r in mine) / 60:.1f} min |"
        )
    lines += [
        "",
        "Worst error of each op in results and gradients, with the dtype where it was met; `exact`: none beyond rounding.",
        "",
        "| op | k | " + " | ".join(f"`{d}` | gradient" for d in devices) + " | gradient rule |",
        "|---" * (3 + 2 * len(devices)) + "|",
    ]
    for name in dict.fromkeys(r.op for r in rows):
        op = OPS[name]
        cells = []
        for d in devices:
            mine = [r for r in rows if r.op == name and r.device == d and r.cases]
            cells += [_worst(mine, "worst"), _worst(mine, "worst_gradient") if op.differentiable else ""]
        rule = op.vjp.reason if isinstance(op.vjp, Nondifferentiable) else "checked"
        k = f"{op.tolerance:g}" + (f", complex {op.complex_tolerance:g}" if op.complex_tolerance != op.tolerance else "")
        lines.append(f"| {name} | {k} | " + " | ".join(cells) + f" | {rule} |")
    failed = [r for r in rows if r.failed]
    if failed:
        lines += ["", "Failures:", ""]
        lines += [f"- `{r.device}` {r.op} {r.dtype}: {r.failed} of {r.cases}, such as {r.failures[0]}" for r in failed]
    lines += ["", "Without cases here: " + "; ".join(f"{n} ({why})" for n, why in EXCLUDED.items()) + ".", ""]
    return "\n".join(lines)


def _worst(rows: list[Outcome], what: str) -> str:
    if not rows:
        return "none stored"
    if any(r.failed for r in rows):
        return "**failed**"
    top = max(rows, key=lambda r: getattr(r, what))
    value: float = getattr(top, what)
    mark = "*" if any(r.fallback for r in rows) else ""
    return (f"{value:.2g} {top.dtype}" if value else "exact") + mark


# the command


def _part(text: str) -> tuple[int, int]:
    try:
        i, n = (int(v) for v in text.split("/"))
    except ValueError:
        i, n = 0, 0
    if not 1 <= i <= n:
        raise click.BadParameter(f"expected i/n with 1 ≤ i ≤ n, such as 2/4; received {text!r}")
    return i, n


@click.command()
@click.option("--device", "devices", multiple=True, help="Device to test; one of each engine that can be used by default.")
@click.option("--op", "ops", multiple=True, help="Op to test; all by default.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--shard", default="1/1", show_default=True, help="Part i of n of the work, for n machines that share a folder.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the samples.")
@click.option("--state", type=click.Path(path_type=Path), default=Path(".soak"), show_default=True, help="Folder of outcomes.")
@click.option("--write", type=click.Path(dir_okay=False, path_type=Path), help="File for the figures once all is done.")
def main(
    devices: tuple[str, ...], ops: tuple[str, ...], jobs: int, shard: str, seed: int, state: Path, write: Path | None
) -> None:  # fmt: skip
    """Test the full product of cases. A run that was stopped goes on where it was."""
    if write is not None and not write.absolute().parent.is_dir():
        raise click.BadParameter(f"the folder of {write} must exist, to write the figures to")
    usable = engines()
    for name, why in usable.missing.items() if not devices else ():
        click.echo(f"engine {name} is not tested: {why}")
    everything = units(devices or usable.usable, ops or None)
    part, parts = _part(shard)
    folder = state / fingerprint(seed)
    known = outcomes(folder, everything)
    todo = [u for i, u in enumerate(everything) if i % parts == part - 1 and u not in known]
    click.echo(f"{len(everything)} units, {len(known)} done before, {len(todo)} to do in {jobs} processes")
    begun = shown = perf_counter()
    for count, found in enumerate(run(folder, todo, seed, jobs), 1):
        known[Unit(found.device, found.op, found.dtype)] = found
        if found.failed:
            click.echo(f"FAILED {found.device} {found.op} {found.dtype}: {found.failed} of {found.cases}")
            for line in found.failures:
                click.echo(f"  {line}")
        if perf_counter() - shown > 15:
            shown = perf_counter()
            click.echo(f"{count} of {len(todo)} units, {shown - begun:.0f} s")
    failed = sum(o.failed for o in known.values())
    cases = sum(o.cases for o in known.values())
    missing = len(everything) - len(known)
    rest = f"; {missing} units are left to other shards" if missing else ""
    click.echo(f"{cases:,} cases, {failed} failed{rest}; {perf_counter() - begun:.0f} s now")
    if write is not None and not missing:
        write_part(write, "ops", document((known[u] for u in everything), seed))
        click.echo(f"figures written to {write}")
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
