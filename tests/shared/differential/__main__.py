"""Runs random programs by their seeds: ``PYTHONPATH=tests/shared python -m differential --count 20000``.

The work is cut into blocks of consecutive seeds. The outcome of a block is a file, in a folder named by a hash of the sources.
So a run that was stopped goes on where it was, and nothing found by other code is counted. Without ``--start`` a run goes on
after the last seed that any run of this state folder has reached, under whatever sources: over time the seeds add up.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from itertools import count as counted
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter

import click

from differential.blocks import BLOCK, Outcome, run_block
from firebrick.testing.soak import fingerprint, write_part


def known(folder: Path, block: Outcome) -> Outcome | None:
    """The outcome of a block if it is known; a file that cannot be read counts as work to be done."""
    try:
        return Outcome(**json.loads((folder / block.file).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def sources() -> str:
    """A hash of all that an outcome depends on."""
    digest = hashlib.sha256(fingerprint(0).encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def table(folder: Path) -> str:
    """The figures of all blocks that these sources have run."""
    blocks = [Outcome(**json.loads(p.read_text(encoding="utf-8"))) for p in sorted(folder.glob("*.json"))]
    lines = [
        "| programs | engines | number | wrong | left out | processor time |",
        "|---|---|---|---|---|---|",
    ]
    kinds = sorted({(b.gradients, tuple(b.engines)) for b in blocks})
    for gradients, engines in kinds:
        mine = [b for b in blocks if (b.gradients, tuple(b.engines)) == (gradients, engines)]
        lines.append(
            f"| {'outputs and gradients' if gradients else 'outputs'} | {', '.join(f'`{e}`' for e in engines)} "
            f"| {sum(b.programs for b in mine):,} | {sum(len(b.failed) for b in mine)} | {sum(b.unstable for b in mine)} "
            f"| {sum(b.seconds for b in mine) / 60:.1f} min |"
        )
    return "\n".join(lines)


def reached(state: Path, like: Outcome) -> int:
    """The seed after the last one that any run has reached with these engines."""
    prefix = like.file.rsplit(".", 2)[0]
    starts = [int(p.name.rsplit(".", 2)[1]) for p in state.glob(f"*/{prefix}.*.json")]
    return max(starts, default=-BLOCK) + BLOCK


@click.command()
@click.option("--start", type=click.IntRange(0), help="First seed; after the last one reached by default.")
@click.option("--count", type=click.IntRange(1), default=20_000, show_default=True, help="Programs.")
@click.option("--seconds", type=click.FloatRange(0), help="No block begins after so long.")
@click.option("--gradients", is_flag=True, help="Programs that end in a loss, with its gradients.")
@click.option("--engine", "engines", multiple=True, default=("numpy", "cpu", "torch:cpu"), show_default=True, help="Engines.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--shrink/--no-shrink", default=True, show_default=True, help="Make failing programs smaller.")
@click.option(
    "--state", type=click.Path(path_type=Path), default=Path(".soak/programs"), show_default=True, help="Of outcomes."
)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File that failing programs are appended to.")
@click.option("--write", type=click.Path(path_type=Path, dir_okay=False), help="Document for the figures of these sources.")
def main(
    start: int | None, count: int, seconds: float | None, gradients: bool, engines: tuple[str, ...], jobs: int, shrink: bool,
    state: Path, out: Path | None, write: Path | None,
) -> None:  # fmt: skip
    """Hold random programs against NumPy and torch. A run that was stopped goes on where it was."""
    folder = state / sources()
    folder.mkdir(parents=True, exist_ok=True)
    first = reached(state, Outcome(0, gradients, list(engines))) if start is None else start
    blocks = [Outcome(s, gradients, list(engines)) for s in range(first, first + count, BLOCK)]
    done = [found for b in blocks if (found := known(folder, b)) is not None]
    todo = [b for b in blocks if known(folder, b) is None]
    click.echo(
        f"{len(blocks)} blocks of {BLOCK} from seed {first}, {len(done)} done before, {len(todo)} to do in {jobs} processes"
    )
    begun = shown = perf_counter()
    for number, found in zip(counted(1), _run(todo, str(folder), shrink, jobs, seconds), strict=False):
        done.append(found)
        for text in found.reports:
            click.echo(text)
            if out is not None:
                with out.open("a", encoding="utf-8") as file:
                    file.write(text + "\n")
        if perf_counter() - shown > 30:
            shown = perf_counter()
            click.echo(f"{number * BLOCK} programs, {shown - begun:.0f} s")
    programs, failed = sum(b.programs for b in done), sum(len(b.failed) for b in done)
    unstable, spent = sum(b.unstable for b in done), sum(b.seconds for b in done)
    click.echo(
        f"{programs:,} programs{' with gradients' if gradients else ''}, {failed} wrong, {unstable} that depend on rounding; "
        f"{spent / 60:.1f} min of processor time; {perf_counter() - begun:.0f} s now"
    )
    if write is not None:
        write_part(write, "programs", table(folder))
        click.echo(f"figures written to {write}")
    everything = sum(1 for _ in state.glob(f"*/{'gradients' if gradients else 'values'}.*.json")) * BLOCK
    click.echo(f"{everything:,} in this folder, by all sources")
    if failed:
        raise SystemExit(1)


def _run(todo: list[Outcome], folder: str, shrink: bool, jobs: int, seconds: float | None) -> Iterator[Outcome]:
    """Run blocks in processes; outcomes come as they are ready."""
    begun = perf_counter()
    late = lambda: seconds is not None and perf_counter() - begun > seconds  # noqa: E731
    if jobs == 1:
        for block in todo:
            if late():
                return
            yield run_block(block, folder, shrink)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the processes: together they have the cores
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting, rest = set(), iter(todo)
        try:
            while True:
                while len(waiting) < jobs and not late() and (block := next(rest, None)) is not None:
                    waiting.add(pool.submit(run_block, block, folder, shrink))
                if not waiting:
                    return
                ready, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in ready:
                    yield future.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


if __name__ == "__main__":
    main()
