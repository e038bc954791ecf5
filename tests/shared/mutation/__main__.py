"""Mutation testing: ``PYTHONPATH=tests/shared python -m mutation --count 600 --seed 0`` in the root of the tree.

First it is measured which tests execute which lines; then each mutant of the sample is given to the tests nearest to it.
All that is found is kept under ``.soak/mutation``: a run that was stopped goes on where it was, and a larger ``--count`` adds
to what is there. A survivor is a hole in the tests, or is equivalent: then it goes into ``equivalent.txt``, with the reason.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from random import Random
from time import monotonic, perf_counter
from typing import Any

import click

from mutation import collecting, forking, outcomes
from mutation.nearest import Map
from mutation.overlay import PACKAGE, Overlay
from mutation.points import Mutant
from mutation.running import Bench, row_of, test_of
from mutation.sampling import sample

_WITHOUT = ("compiler",)  # is rebuilt, and has its own run then


@click.command()
@click.option("--count", type=click.IntRange(0), default=600, show_default=True, help="Mutants.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sample.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--under", multiple=True, help="Folder or file of the package; all but compiler/ by default. Can be repeated.")
@click.option(
    "--limit", type=click.FloatRange(1), default=60.0, show_default=True, help="Processor time for a mutant, in seconds."
)
@click.option("--seconds", type=click.FloatRange(0), default=float("inf"), help="No mutant is begun after so long.")
@click.option("--patience", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds until a test hangs.")
@click.option(
    "--tests", multiple=True, default=("tests",), show_default=True, help="Test files that begin so. Can be repeated."
)
@click.option("--slow", is_flag=True, help="With the tests that are marked slow.")
@click.option("--collect/--no-collect", default=True, show_default=True, help="Measure tests that changed, or go without them.")
@click.option(
    "--state", type=click.Path(path_type=Path), default=Path(".soak/mutation"), show_default=True, help="Of outcomes."
)
@click.option(
    "--equivalent", type=click.Path(path_type=Path, exists=True), default=outcomes.EQUIVALENT, help="Judged by a person."
)
@click.option("--preload/--no-preload", default=True, hidden=True)
@click.option("--write", type=click.Path(path_type=Path, dir_okay=False), help="Document for the table.")
def main(
    count: int, seed: int, jobs: int, under: tuple[str, ...], limit: float, seconds: float, patience: float,
    tests: tuple[str, ...], slow: bool, collect: bool, state: Path, equivalent: Path, preload: bool, write: Path | None,
) -> None:  # fmt: skip
    """Mutate the sources at one point at a time, and run the tests nearest to each."""
    root, state = Path.cwd(), state.resolve()
    if not (root / PACKAGE).is_dir():
        raise click.UsageError(f"{root} has no {PACKAGE}: start this in the root of the tree")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that no process of a mutant is left
    judged = outcomes.equivalents(equivalent)
    if preload:
        forking.preload()
    plain = Overlay(root, state / "tree")  # never mutated; the sources of this run, whatever happens to the work tree meanwhile
    plain.update()
    slots = [state / f"slot-{n}" for n in range(jobs)]
    benches = [Bench(Overlay(plain.root, s / "tree"), s, state / "cache", limit, patience) for s in slots]
    for bench in benches:
        bench.overlay.update()
    known = _map(plain.root, state, tests, slow, collect, jobs)
    benches[0].begins(known.names)
    drawn = sample(plain.root / PACKAGE, count, seed, under, () if under else _WITHOUT)
    found = outcomes.Outcomes(state / "outcomes", plain.root)
    ends = monotonic() + seconds

    def outcome(m: Mutant) -> dict[str, Any] | None:
        return found.known(m, {t.file for t in known.nearest(m)}, known.never, limit)

    while True:
        todo = [m for m in drawn if outcome(m) is None]
        click.echo(f"{len(drawn)} mutants, {len(drawn) - len(todo)} known, {len(todo)} to do in {jobs} processes")
        _run(todo, found, known, benches, ends)
        false = _false_kills(drawn, found, known, Bench(plain, state / "control", state / "cache", limit, patience))
        if not false:
            break
        click.echo(f"these fail without a mutation too, and are not asked any more: {', '.join(sorted(false))}")
    rows = [row for m in drawn if (row := outcome(m)) is not None]
    left = [row for row in rows if outcomes.judged(row, judged) in ("survived", "not executed")]
    for row in left:
        click.echo(f"\n{_described(row)}")
    shown = outcomes.table(rows, judged)
    click.echo(f"\n{shown}\n\n{sum(row['seconds'] for row in rows) / 60:.0f} min, {len(left)} left to judge")
    if write is not None:
        from firebrick.testing.soak import write_part

        write_part(write, "mutation", shown)
    if left:
        raise SystemExit(1)


def _map(tree: Path, state: Path, tests: tuple[str, ...], slow: bool, collect: bool, jobs: int) -> Map:
    """Which tests execute which lines."""
    files = [f for f in collecting.test_files(tree) if f.startswith(tests)]
    marked = ["-m", "not soak and not ray" if slow else "not soak and not ray and not slow"]
    shards = []
    if collect:
        for shard, seconds in collecting.collect(tree, state, files, marked, jobs):
            shards.append(shard)
            if seconds:
                click.echo(f"measured {shard.file}: {len(shard.tests)} tests, {len(shard.failed)} failed, {seconds:.0f} s")
    else:
        shards = [s for f in files if (s := collecting.load(state, tree, f)) is not None]
    never = state / "never.txt"
    return Map(tree / PACKAGE, shards, never.read_text().splitlines() if never.exists() else ())


def _run(todo: list[Mutant], found: outcomes.Outcomes, known: Map, benches: list[Bench], ends: float) -> None:
    """Run mutants, in as many processes as there are places to run them in."""
    children = []
    for n, bench in enumerate(benches[1:], 1):
        if (pid := os.fork()) == 0:
            code = 1
            try:
                _run_some(todo[n :: len(benches)], found, known, bench, ends)
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    try:
        _run_some(todo[:: len(benches)], found, known, benches[0], ends)
    except BaseException:
        for pid in children:
            os.kill(pid, signal.SIGTERM)
        raise
    ended = [os.waitpid(pid, 0)[1] for pid in children]
    if any(ended):
        raise click.ClickException("a process of this run failed; its message is above")
    found.read()


def _run_some(todo: list[Mutant], found: outcomes.Outcomes, known: Map, bench: Bench, ends: float) -> None:
    for mutant in todo:
        if monotonic() > ends:
            return
        tests = known.nearest(mutant)
        verdict = bench.run(mutant, tests)
        if verdict.outcome == "survived" and not known.executed(mutant):
            verdict.outcome = "not executed"
        row = row_of(mutant, (bench.overlay.source / PACKAGE / mutant.path).read_text(encoding="utf-8"), verdict)
        found.add(row)
        click.echo(f"{_described(row)}\n  {verdict.seconds:.1f} s, {verdict.tests} of {len(tests)} tests {verdict.by}")
        sys.stdout.flush()


def _false_kills(drawn: list[Mutant], found: outcomes.Outcomes, known: Map, plain: Bench) -> set[str]:
    """Run the tests that noticed mutants once more without one; those that fail now are never asked again."""
    state = plain.folder.parent
    file = state / f"cleared-{found.file.stem}.txt"
    cleared = set(file.read_text().splitlines()) if file.exists() else set()
    rows = [row for m in drawn if (row := found.rows.get(outcomes.place(m))) is not None and row["outcome"] in outcomes.KILLED]
    names = sorted({t for row in rows if (t := test_of(row["by"])) is not None} - cleared - known.never)
    Random(0).shuffle(names)
    begun = perf_counter()
    false = plain.control(names)
    if names:
        click.echo(f"{len(names)} tests that noticed run without a mutation: {len(false)} fail; {perf_counter() - begun:.0f} s")
    known.never |= false
    with (state / "never.txt").open("a") as out:
        out.writelines(f"{n}\n" for n in sorted(false))
    with file.open("a") as out:
        out.writelines(f"{n}\n" for n in names if n not in false)
    return false


def _described(row: dict[str, Any]) -> str:
    place = f"{row['path']}:{row['line']}, in {row['function'] or 'the module'}"
    return f"{row['outcome'].upper()} {row['kind']}, {place}\n{row['diff']}"


if __name__ == "__main__":
    main()
