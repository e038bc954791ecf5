"""Mutation testing: ``PYTHONPATH=tests/shared python -m mutation --count 600 --seed 0`` in the root of the tree.

First it is measured which tests execute which lines; then each mutant of the sample is given to the tests nearest to it.
All that is found is kept under ``.soak/mutation``: a run that was stopped goes on where it was, and a larger ``--count`` adds
to what is there. A survivor is a hole in the tests, or is equivalent: then it goes into ``equivalent.txt``, with the reason.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import click

from mutation import collecting, forking, outcomes
from mutation.nearest import Map
from mutation.overlay import PACKAGE, Overlay
from mutation.points import Mutant
from mutation.running import as_row, control, run, test_of
from mutation.sampling import sample

_WITHOUT = ("compiler",)  # is rebuilt, and has its own run then


@click.command()
@click.option("--count", type=click.IntRange(0), default=600, show_default=True, help="Mutants.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the sample.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--under", multiple=True, help="Folder or file of the package; all but compiler/ by default. Can be repeated.")
@click.option(
    "--limit", type=click.FloatRange(1), default=60.0, show_default=True, help="Seconds of processor time for a mutant."
)
@click.option(
    "--tests",
    multiple=True,
    default=("tests",),
    show_default=True,
    help="Only test files whose paths begin so. Can be repeated.",
)
@click.option("--slow", is_flag=True, help="With the tests that are marked slow.")
@click.option("--collect/--no-collect", default=True, show_default=True, help="Measure tests that changed, or go without them.")
@click.option(
    "--state", type=click.Path(path_type=Path), default=Path(".soak/mutation"), show_default=True, help="Of outcomes."
)
@click.option("--write", type=click.Path(path_type=Path, dir_okay=False), help="Document for the table.")
def main(
    count: int, seed: int, jobs: int, under: tuple[str, ...], limit: float, tests: tuple[str, ...], slow: bool, collect: bool,
    state: Path, write: Path | None,
) -> None:  # fmt: skip
    """Mutate the sources at one point at a time, and run the tests nearest to each."""
    root, state = Path.cwd(), state.resolve()
    if not (root / PACKAGE).is_dir():
        raise click.UsageError(f"{root} has no {PACKAGE}: start this in the root of the tree")
    forking.preload()
    plain = Overlay(root, state / "tree")  # is never mutated
    overlays = [Overlay(root, state / f"slot-{n}" / "tree") for n in range(jobs)]
    for overlay in (plain, *overlays):
        overlay.update()
    tree = plain.root
    known = _map(tree, state, tests, slow, collect)
    drawn = sample(tree / PACKAGE, count, seed, under, () if under else _WITHOUT)
    found = outcomes.Outcomes(state / "outcomes", tree)
    for _ in range(3):
        todo = _todo(drawn, found, known)
        click.echo(f"{len(drawn)} mutants, {len(drawn) - len(todo)} known, {len(todo)} to do in {jobs} processes")
        _run(todo, found, known, overlays, state, limit)
        false = _false_kills(drawn, found, known, tree, state)
        if not false:
            break
        click.echo(f"these tests fail without a mutation too, and are not asked any more: {', '.join(sorted(false))}")
    equivalent = outcomes.equivalents()
    rows = [row for m in drawn if (row := found.rows.get((m.path, m.start, m.end, m.text))) is not None]
    for row in rows:
        if outcomes.judged(row, equivalent) in ("survived", "not executed"):
            click.echo(f"\n{_described(row)}")
    click.echo("\n" + outcomes.table(rows, equivalent))
    if write is not None:
        from firebrick.testing.soak import write_part

        write_part(write, "mutation", outcomes.table(rows, equivalent))
    if any(outcomes.judged(row, equivalent) in ("survived", "not executed") for row in rows):
        raise SystemExit(1)


def _map(tree: Path, state: Path, tests: tuple[str, ...], slow: bool, collect: bool) -> Map:
    """Which tests execute which lines."""
    files = [f for f in collecting.test_files(tree) if f.startswith(tests)]
    marked = ["-m", "not soak and not ray" if slow else "not soak and not ray and not slow"]
    shards = []
    if collect:
        for shard, seconds in collecting.collect(tree, state, files, marked):
            shards.append(shard)
            if seconds:
                click.echo(f"measured {shard.file}: {len(shard.tests)} tests, {len(shard.failed)} failed, {seconds:.0f} s")
    else:
        shards = [s for f in files if (s := collecting.load(state, tree, f)) is not None]
    never = state / "never.txt"
    return Map(tree / PACKAGE, shards, never.read_text().splitlines() if never.exists() else ())


def _todo(drawn: list[Mutant], found: outcomes.Outcomes, known: Map) -> list[Mutant]:
    return [m for m in drawn if found.known(m, {t.file for t in known.nearest(m)}, known.never) is None]


def _run(
    todo: list[Mutant], found: outcomes.Outcomes, known: Map, overlays: list[Overlay], state: Path, limit: float
) -> None:  # fmt: skip
    """Run mutants, in as many processes as there are copies of the tree."""
    children = []
    for n, overlay in enumerate(overlays[1:], 1):
        if (pid := os.fork()) == 0:
            code = 1
            try:
                _run_some(todo[n :: len(overlays)], found, known, overlay, state, limit, f"slot-{n}")
                code = 0
            finally:
                os._exit(code)
        children.append(pid)
    _run_some(todo[:: len(overlays)], found, known, overlays[0], state, limit, "slot-0")
    for pid in children:
        if os.waitpid(pid, 0)[1] != 0:
            raise click.ClickException("a process of this run failed; its message is above")
    found.read()


def _run_some(
    todo: list[Mutant], found: outcomes.Outcomes, known: Map, overlay: Overlay, state: Path, limit: float, slot: str
) -> None:
    for mutant in todo:
        source = (overlay.source / PACKAGE / mutant.path).read_text(encoding="utf-8")
        tests = known.nearest(mutant)
        verdict = run(mutant, source, tests, overlay, state / slot, state / "cache", limit)
        verdict.files = sorted({t.file for t in tests})
        row: dict[str, Any] = as_row(mutant, source, verdict)
        found.add(row)
        click.echo(f"{_described(row)}\n  {verdict.seconds:.1f} s, {verdict.tests} of {len(tests)} tests {verdict.by}")
        sys.stdout.flush()


def _false_kills(drawn: list[Mutant], found: outcomes.Outcomes, known: Map, tree: Path, state: Path) -> set[str]:
    """Run the tests that noticed mutants once more without one; those that fail now are never asked again."""
    file = state / f"cleared-{found.file.stem}.txt"
    cleared = set(file.read_text().splitlines()) if file.exists() else set()
    rows = [found.rows.get((m.path, m.start, m.end, m.text)) for m in drawn]
    killers = {
        t for row in rows if row is not None and row["outcome"] in outcomes.KILLED and (t := test_of(row["by"])) is not None
    }
    names = sorted(n for n in killers - cleared - known.never if "::" in n)
    Random(0).shuffle(names)
    begun = perf_counter()
    false = control(names, tree, state / "control", state / "cache")
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
