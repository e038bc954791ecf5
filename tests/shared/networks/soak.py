"""Many random networks: ``python -m networks.soak --count 2000``, resumable and cumulative.

Seeds are run in blocks, each in a process of its own, so that a crash is one more failure of its seed. What a block found is
a file under a folder named by a hash of the sources, the libraries and the processor: a run that was stopped goes on where it
was, and a larger ``--count`` adds to what is there. ``src`` and ``tests/shared`` must be on the path.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from firebrick.testing.soak import fingerprint

BLOCK = 20


def folder_of(state: Path) -> Path:
    """Where outcomes of these sources are."""
    digest = hashlib.sha256(fingerprint(0).encode())
    root = Path(__file__).parents[1]
    packages = Path(sys.modules["firebrick"].__file__ or "").parent
    for path in (root / "rounding.py", root / "forced.py", *sorted((root / "networks").glob("*.py"))):
        digest.update(path.read_bytes())
    for path in sorted(
        [*(packages / "nn").rglob("*.py"), *(packages / "optim").rglob("*.py"), *(packages / "functions").rglob("*.py")]
    ):
        digest.update(path.read_bytes())
    return state / f"networks-{digest.hexdigest()[:16]}"


def run_block(seeds: list[int], goal: Path) -> None:
    """Run seeds and append a line of JSON for each; a seed that is begun and not ended has crashed."""
    from networks.running import check

    with goal.open("a", encoding="utf-8") as out:
        for seed in seeds:
            out.write(json.dumps({"begun": seed}) + "\n")
            out.flush()
            start = perf_counter()
            v = check(seed)
            row = {
                "seed": seed, "ways": v.ways, "unusable": v.unusable, "seconds": round(perf_counter() - start, 3),
                "failures": [{"kind": f.kind, "way": str(f.way), "text": f.text, "program": f.program()} for f in v.failures],
            }  # fmt: skip
            out.write(json.dumps(row) + "\n")
            out.flush()


def rows_of(file: Path) -> tuple[dict[int, dict[str, Any]], int | None]:
    """Outcomes by seed, and the seed that was begun last and not ended."""
    found: dict[int, dict[str, Any]] = {}
    begun = None
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue  # cut off
            if "begun" in row:
                begun = row["begun"]
            else:
                found[row["seed"]], begun = row, None
    return found, begun


def finish(block: int, folder: Path) -> list[dict[str, Any]]:
    """Run what is left of a block, in as many processes as crash; its outcomes."""
    file = folder / f"{block:06}.jsonl"
    seeds = range(block * BLOCK, (block + 1) * BLOCK)
    while True:
        found, _ = rows_of(file)
        left = [s for s in seeds if s not in found]
        if not left:
            return [found[s] for s in seeds]
        command = [sys.executable, "-m", "networks.soak", "--seeds", ",".join(map(str, left)), "--goal", str(file)]
        run = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
        if run.returncode < 0 or run.returncode > 128 or run.returncode == 1:
            _, begun = rows_of(file)
            kind = f"exit {run.returncode}"
            text = run.stderr[-2000:]
            seed = left[0] if begun is None else begun
            program = f"from networks.running import check\ncheck({seed})"
            failure = {"kind": kind, "way": "", "text": text, "program": program}
            row = {"seed": seed, "ways": 0, "unusable": 0, "seconds": 0.0, "failures": [failure]}
            with file.open("a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")


def run(blocks: list[int], folder: Path, jobs: int) -> Iterator[list[dict[str, Any]]]:
    """Blocks in ``jobs`` processes; outcomes as they are ready."""
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        waiting = [pool.submit(finish, b, folder) for b in blocks]
        try:
            for done in as_completed(waiting):
                yield done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


@click.command()
@click.option("--count", type=click.IntRange(1), default=2000, show_default=True, help="Networks in all.")
@click.option("--jobs", type=click.IntRange(1), default=os.cpu_count() or 1, show_default=True, help="Processes.")
@click.option("--state", type=click.Path(path_type=Path), default=Path(".soak"), show_default=True, help="Folder of outcomes.")
@click.option("--seeds", hidden=True)
@click.option("--goal", hidden=True, type=click.Path(path_type=Path))
def main(count: int, jobs: int, state: Path, seeds: str | None, goal: Path | None) -> None:
    """Train random networks beside torch's. A run that was stopped goes on where it was."""
    if seeds is not None and goal is not None:
        run_block([int(s) for s in seeds.split(",")], goal)
        return
    folder = folder_of(state)
    begun = perf_counter()
    total = dict.fromkeys(("networks", "ways", "unusable", "failures"), 0)
    for k, rows in enumerate(run(list(range(-(-count // BLOCK))), folder, jobs)):
        for row in rows:
            total["networks"] += 1
            total["ways"] += row["ways"]
            total["unusable"] += row["unusable"]
            for failure in row["failures"]:
                total["failures"] += 1
                click.echo(f"FAILED seed {row['seed']}: {failure['kind']} in {failure['way']}\n{failure['program']}")
        if k % 10 == 9:
            click.echo(f"{total['networks']} networks, {perf_counter() - begun:.0f} s")
    shown = ", ".join(f"{n:,} {name}" for name, n in total.items())
    click.echo(f"{shown}; {perf_counter() - begun:.0f} s now; outcomes in {folder}")
    if total["failures"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
