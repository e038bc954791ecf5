"""Many cases: ``PYTHONPATH=tests/shared python -m damaged_files --count 10000``, resumable and cumulative.

Seeds are run in blocks, each in a process of its own, so that a crash or a hang is one more failure of its seed. What a block
found is a file under a folder named by a hash of the sources and libraries: a run that was stopped goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from firebrick.testing.soak import fingerprint

BLOCK = 250


def folder_of(state: Path) -> Path:
    """Where outcomes of these sources are."""
    digest = hashlib.sha256(fingerprint(0).encode())
    digest.update(repr([version(p) for p in ("pillow", "pyarrow", "safetensors")]).encode())
    packages = Path(sys.modules["firebrick"].__file__ or "").parent
    parts = (packages / p for p in ("core", "data", "train", "ir", "cli", "nn", "optim", "compiler/cache.py"))
    for path in sorted(
        p for part in (Path(__file__).parent, *parts) for p in ([part] if part.is_file() else part.rglob("*.py"))
    ):
        digest.update(path.read_bytes())
    return state / f"damaged-{digest.hexdigest()[:16]}"


def run_block(seeds: list[int], goal: Path) -> None:
    """Run seeds and append a line of JSON for each; a seed that is begun and not ended has crashed."""
    from damaged_files import cases, watch

    watch.install()
    warm()
    with goal.open("a", encoding="utf-8") as out:
        for seed in seeds:
            out.write(json.dumps({"begun": seed}) + "\n")
            out.flush()
            start = perf_counter()
            found = cases.run(seed)
            assert found is not None
            out.write(json.dumps({**asdict(found), "seconds": round(perf_counter() - start, 4)}) + "\n")
            out.flush()


def warm() -> None:
    """Read an honest folder of each reader, so that libraries are loaded before anything is measured."""
    import tempfile
    from random import Random

    from damaged_files.readers import READERS

    for seed in range(3):
        for reader in READERS.values():
            with tempfile.TemporaryDirectory() as folder:
                reader.honest(Random(seed), Path(folder))
                reader.read(Path(folder))


def rows_of(file: Path) -> tuple[dict[int, dict[str, Any]], int | None]:
    """Outcomes by seed, and the seed that was begun last and not ended."""
    found: dict[int, dict[str, Any]] = {}
    begun = None
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue  # cut off
        if "begun" in row:
            begun = row["begun"]
        else:
            found[row["seed"]], begun = row, None
    return found, begun


def finish(seeds: list[int], file: Path) -> list[dict[str, Any]]:
    """Run what is left of a block, in as many processes as crash; its outcomes."""
    while True:
        found, _ = rows_of(file)
        left = [s for s in seeds if s not in found]
        if not left:
            return [found[s] for s in seeds]
        command = [sys.executable, "-m", "damaged_files", "--seeds", ",".join(map(str, left)), "--goal", str(file)]
        run = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
        if run.returncode:
            _, begun = rows_of(file)
            if begun is None:
                raise SystemExit(f"the process of a block ended with {run.returncode} before its first case:\n{run.stderr}")
            kind = f"crash or hang: exit {run.returncode}"
            row = {
                "seed": begun,
                "reader": "?",
                "damage": "?",
                "outcome": "",
                "failures": [(kind, run.stderr[-2000:])],
                "peak": 0,
                "seconds": 0,
            }
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")


def run_all(blocks: list[list[int]], folder: Path, jobs: int) -> Iterator[list[dict[str, Any]]]:
    """Blocks in ``jobs`` processes; outcomes as they are ready."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(finish, seeds, folder / f"{seeds[0]:08}-{len(seeds)}.jsonl") for seeds in blocks]
        try:
            for done in as_completed(waiting):
                yield done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


@click.command()
@click.option("--start", type=click.IntRange(0), default=0, show_default=True, help="First seed.")
@click.option("--count", type=click.IntRange(1), default=10_000, show_default=True, help="Cases in all.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--state", type=click.Path(path_type=Path), default=Path(".soak"), show_default=True, help="Folder of outcomes.")
@click.option("--faults", is_flag=True, help="Show that readers with planted faults are found out.")
@click.option("--large", is_flag=True, help="Show what large honest files take.")
@click.option("--seeds", hidden=True)
@click.option("--goal", hidden=True, type=click.Path(path_type=Path))
def main(
    start: int, count: int, jobs: int, state: Path, faults: bool, large: bool, seeds: str | None, goal: Path | None
) -> None:
    """Read damaged files. A run that was stopped goes on where it was."""
    if seeds is not None and goal is not None:
        run_block([int(s) for s in seeds.split(",")], goal)
        return
    if faults or large:
        from damaged_files import planted, watch

        watch.install()
        warm()
        for row in planted.hunt_all() if faults else planted.measure():
            click.echo(json.dumps(row))
        return
    folder, began = folder_of(state), perf_counter()
    blocks = [list(range(s, min(s + BLOCK, start + count))) for s in range(start, start + count, BLOCK)]
    total: Counter[str] = Counter()
    readers: dict[str, Counter[str]] = {}
    peak = 0
    for rows in run_all(blocks, folder, jobs):
        for row in rows:
            outcome = "failed" if row["failures"] else row["outcome"]
            total[outcome] += 1
            readers.setdefault(row["reader"], Counter())[outcome] += 1
            peak = max(peak, row["peak"])
            for kind, text in row["failures"]:
                click.echo(f"FAILED seed {row['seed']}, {row['reader']}, {row['damage']}: {kind}: {text}")
    for name, counts in sorted(readers.items()):
        click.echo(f"{name:<14}" + "".join(f"{counts[k]:>7,} {k}" for k in ("value", "refused", "failed")))
    click.echo(
        f"{total.total():,} cases: {total['refused']:,} refused, {total['value']:,} read, {total['failed']:,} failed; at most "
        f"{peak / 2**20:.0f} MiB; {perf_counter() - began:.0f} s now; outcomes in {folder}"
    )
    if total["failed"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
