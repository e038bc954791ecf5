"""Pinned compilations: ``PYTHONPATH=src:tests/shared python -m pinned`` compares them, ``--write`` records what changed.

What changed is run first, and compared with interpreters; only what computes the same is recorded.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from time import process_time

import click

from pinned import records
from pinned.programs import lines_of
from pinned.records import Records


@click.command()
@click.option("--write", is_flag=True, help="Verify programs whose lines changed, and record them.")
@click.option("--all", "everything", is_flag=True, help="With --write: verify all programs anew.")
@click.option("--show", metavar="PROGRAM", help="Print the lines of a program and the texts that they have hashes of.")
@click.option("--add", multiple=True, metavar="PROGRAM", help="Pin another program, such as 'product:17 @ avx2'.")
@click.option("--choose", type=float, metavar="SECONDS", help="Choose the programs by what they execute, anew.")
@click.option("--more", type=float, metavar="SECONDS", help="Choose further programs, which execute more than those pinned.")
@click.option("--seed", default=0, show_default=True, help="Of the order in which candidates are tried.")
@click.option("--seeds", default=150, show_default=True, help="Drawn programs of each class to choose from.")
@click.option("--only", default="", help="Programs whose names begin so, separated by commas; of --more, those that are tried.")
def main(
    write: bool, everything: bool, show: str | None, add: tuple[str, ...], choose: float | None, more: float | None, seed: int,
    seeds: int, only: str,
) -> None:  # fmt: skip
    """Compare the lines of all pinned programs with the records."""
    if show:
        texts: dict[str, str] = {}
        for line in lines_of(show, texts):
            click.echo(line)
        for name, text in texts.items():
            click.echo(f"\n== {name}\n{text}")
        return
    known = records.read()
    names = [*known, *(unit for unit in add if unit not in known)]
    if choose is not None or more is not None:
        from pinned.choosing import choose as chosen_of
        from pinned.choosing import units

        kept = [] if choose is not None else names
        names, executed, arcs = chosen_of(
            [u for u in units(seeds, Random(seed)) if u.startswith(tuple(only.split(",")))], choose or more or 0.0, kept
        )
        seconds, size = (sum(getattr(executed[n], f) for n in names) for f in ("seconds", "size"))
        click.echo(f"{len(names)} programs, {seconds:.1f} s, {size:,} characters, {len(arcs.numbers):,} branches and lines")
    changed = _changed(known, [n for n in names if more or n.startswith(tuple(only.split(",")))], everything)
    if not write:
        for unit, lines in changed.items():
            click.echo(records.difference(unit, known[unit][1] if unit in known else [], lines))
        sys.exit(bool(changed))
    wrong = _record(known, changed, {*names})
    click.echo(f"{len(changed)} of {len(names)} programs changed, {len(wrong)} of them are wrong and not recorded")
    sys.exit(bool(wrong))


def _changed(known: Records, names: list[str], everything: bool) -> dict[str, list[str]]:
    """Programs whose lines are not those that are recorded, with their lines."""
    found, begun = {}, process_time()
    for unit in names:
        lines = lines_of(unit)
        if everything or unit not in known or known[unit][1] != lines:
            found[unit] = lines
    click.echo(f"{len(names)} programs emitted in {process_time() - begun:.1f} s of processor time")
    return found


def _record(known: Records, changed: dict[str, list[str]], names: set[str]) -> list[str]:
    """Record what changed, where it is verified; the names of the others."""
    from pinned.verification import explained, verify

    kept: Records = {unit: found for unit, found in known.items() if unit in names}
    wrong = []
    for unit, lines in changed.items():
        try:
            kept[unit] = verify(unit), lines
        except Exception as e:  # noqa: BLE001 - whatever it is, the program does not compute what it must
            wrong.append(unit)
            click.echo(f"WRONG {unit}: {explained(e)}")
    records.write(kept, Path(records.FOLDER))
    return wrong


if __name__ == "__main__":
    main()
