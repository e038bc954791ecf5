"""Blocks of consecutive seeds: the programs of one, the ways in which they run, and its outcome as a file.

What a process of a pool is given is here, since a process that is started anew cannot import a ``__main__``.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter

from differential.drawing import draw
from differential.running import Judge, Way
from differential.shrinking import report, smaller
from differential.truth import TruthError, Unstable

BLOCK = 100


@dataclass
class Outcome:
    """What a block of seeds gave."""

    start: int
    gradients: bool
    engines: list[str]
    programs: int = 0
    unstable: int = 0
    failed: list[int] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def file(self) -> str:
        engines = "-".join(self.engines).replace(":", "_")
        return f"{'gradients' if self.gradients else 'values'}.{engines}.{self.start}.json"


def ways(seed: int, engines: list[str], gradients: bool) -> list[Way]:
    """How the program of a seed is run: by ``cpu`` in all its ways, and one in four under ``jit`` by the others."""
    found = []
    if "numpy" in engines:
        found.append(Way("numpy", "eager", gradients))
        found += [Way("numpy", "jit", gradients)] if seed % 4 == 0 else []
    if "cpu" in engines:
        found += [Way("cpu", mode, gradients) for mode in ("eager", "jit", "forced")]
    if "torch:cpu" in engines:
        found += [Way("torch:cpu", mode, gradients) for mode in ("eager", "jit")] if seed % 4 == 1 else []
    return found


def run_block(block: Outcome, folder: str, shrink: bool) -> Outcome:
    """Run the programs of a block and write down what they gave."""
    begun = perf_counter()
    for seed in range(block.start, block.start + BLOCK):
        program = draw(seed, block.gradients)
        judge = Judge(program)
        block.programs += 1
        try:
            failures = [f for w in ways(seed, block.engines, block.gradients) if (f := judge.judge(w)) is not None]
        except Unstable:
            block.unstable += 1
            continue
        except TruthError as e:
            block.failed.append(seed)
            block.reports.append(f"## seed {seed}: {e}")
            continue
        if failures:
            block.failed.append(seed)
            names = ", ".join(str(f.way) for f in failures)
            text = report(*smaller(program, failures[0])) if shrink else program.source("fb")
            block.reports.append(f"## seed {seed}: {names}: {failures[0].what}\n{text}")
    block.seconds = perf_counter() - begun
    goal = Path(folder) / block.file
    partial = goal.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(asdict(block)), encoding="utf-8")
    partial.replace(goal)
    return block
