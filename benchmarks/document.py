"""The figures of docs/performance.md, made from the JSON of a run, between two marks in the document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.compare import OURS, duration
from benchmarks.measure import described

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
GROUPS = {
    "train": ("Training steps", "`train/…/batch`"),
    "eager": ("Training steps without `jit`", "`eager/…/batch`"),
    "infer": ("Inference", "`infer/…/batch`"),
    "rows": ("Functions of 4096 × 1024 elements", "`rows/…`"),
    "functions": ("Other functions", "`functions/…`"),
    "gemm": ("Products of matrices", "`gemm/…`, the time of all products of a call"),
    "chain": ("A chain of elementwise operations on 8 M elements", "`chain/…`"),
}
"""Titles of the tables, and how their work is named for ``--only``."""


def write(source: Path, document: Path) -> None:
    """Put the figures of a run into a document, in place of those between its marks.

    Raises:
        ValueError: The document lacks the marks.
    """
    text = document.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"{document} has no line {BEGIN} and {END}")
    head, _, rest = text.partition(BEGIN)
    figures = "\n".join(tables(json.loads(source.read_text(encoding="utf-8"))))
    document.write_text(f"{head}{BEGIN}\n{figures}\n{END}{rest.partition(END)[2]}", encoding="utf-8")


def tables(run: dict[str, Any]) -> Iterator[str]:
    """A run as lines of Markdown."""
    how = f"{run['threads']} thread{'s' * (run['threads'] > 1)}, {run['rounds']} rounds, load {run['load']} before it"
    yield f"`python -m benchmarks` on {described(run['machine'])}: {how}; {run['begun']}."
    if "rates" in run:
        yield from ("", *_rates(run["rates"]))
    for group, (title, names) in GROUPS.items():
        if rows := [w for w in run.get("work", []) if w["name"].split("/")[0] == group]:
            yield from ("", f"### {title}", f"{names}.", "", *_compared(rows))
    if "compile" in run:
        yield from ("", "### Compiling the transformer's step", "", *_compiled(run["compile"]))
    if "memory" in run:
        yield from ("", "### Peak memory of training steps", "", *_memory(run["memory"]))
    if "taken core" in run:
        yield from ("", "### With a core taken by another process", "", *_taken(run["taken core"]))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    head = list(head)
    yield f"| {' | '.join(head)} |"
    yield f"|{' --- |' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def _rates(rates: dict[str, Any]) -> Iterator[str]:
    sizes = sorted({int(size) for row in rates["copy"].values() for size in row})
    head = ["measured rates", "products", *(f"copy in {_size(s)}" for s in sizes)]
    yield from _table(
        head,
        (
            [
                f"{threads} thread{'s' if int(threads) > 1 else ''}",
                f"{float(gemm) / 1e9:.0f} GFLOP/s ({rates['gemm by'][threads]})",
                *(f"{rates['copy'][threads][str(s)] / 1e9:.0f} GB/s" for s in sizes),
            ]
            for threads, gemm in rates["gemm"].items()
        ),
    )


def _size(nbytes: float) -> str:
    return f"{nbytes / 2**20:.3g} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:.0f} KiB"


def _compared(work: list[dict[str, Any]]) -> Iterator[str]:
    peers = list(dict.fromkeys(n for w in work for n in w["contenders"] if n != OURS))
    head = ["work", "Firebrick (quartiles)", *peers, "× best peer", "target", "× roofline", "bound", ""]

    def row(w: dict[str, Any]) -> Iterator[str]:
        ours = w["contenders"].get(OURS, {})
        yield w["name"].partition("/")[2]
        low, high = (duration(q) for q in ours.get("quartiles", (float("nan"),) * 2))
        yield f"{duration(ours['median'])} ({low} – {high})" if "median" in ours else "failed"
        for p in peers:
            yield _median(w["contenders"].get(p, {}))
        yield f"{w['against']:.2f}" if w["against"] is not None else "–"
        yield f"{w['ratio']:.2f}" if w["ratio"] is not None else "75 % of the copy" if w["limit"] is not None else "–"
        known = w["roofline"] and "median" in ours
        yield f"{ours['median'] / w['roofline']:.1f}" if known else "–"
        yield w["bound"] or "–"
        yield {True: "met", False: "not met", None: "–"}[w["met"]]

    yield from _table(head, (row(w) for w in work))


def _median(contender: dict[str, Any]) -> str:
    if "median" not in contender:
        return "failed" if contender.get("error") else "–"
    return duration(contender["median"]) + (f" ({contender['form']})" if contender["form"] else "")


def _compiled(found: dict[str, Any]) -> Iterator[str]:
    rows = (
        [n, *([r["error"], ""] if "error" in r else [f"{r['cold']:.2f} s", f"{r['cached']:.2f} s"])] for n, r in found.items()
    )
    yield from _table(["contender", "empty cache", "from the cache"], rows)


def _memory(found: dict[str, Any]) -> Iterator[str]:
    rows = (
        [work, name, *([r["error"], ""] if "error" in r else [_size(r["process"]), _size(r["batch"])])]
        for work, row in found.items()
        for name, r in row.items()
    )
    yield from _table(["step", "contender", "process", "grows with the batch"], rows)


def _taken(found: dict[str, Any]) -> Iterator[str]:
    rows = (
        [
            work,
            name,
            *([r["error"], "", ""] if "error" in r else [duration(r["free"]), duration(r["taken"]), f"{r['slower']:.2f} ×"]),
        ]
        for work, row in found.items()
        for name, r in row.items()
    )
    yield from _table(["step", "contender", "free", "a core taken", "slower"], rows)
