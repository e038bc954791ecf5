"""Pinned programs by name: ``family:name @ way``, such as ``product:17 @ avx2`` or ``template:attention 0 @ shader page``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from firebrick.core.errors import FirebrickError
from pinned import emission, functions, graphs, others
from pinned.drawn import Drawn
from pinned.emission import Texts, refused


@lru_cache(maxsize=4)
def graph_of(program: str) -> Drawn:
    """The graph of a program."""
    family, _, name = program.partition(":")
    return graphs.FAMILIES[family](name)


def is_graph(program: str) -> bool:
    """Whether a program is a graph."""
    return program.partition(":")[0] in graphs.FAMILIES


def lines_of(unit: str, texts: Texts | None = None) -> list[str]:
    """The lines of a program in one way.

    Args:
        unit: Its name.
        texts: Gets the texts that the lines have hashes of.
    """
    texts = {} if texts is None else texts
    program, _, way = unit.partition(" @ ")
    family, _, name = program.partition(":")
    if family in functions.FAMILIES:
        return functions.lines(family, name, way, texts)
    if family in others.FAMILIES:
        return others.FAMILIES[family](name, texts)
    emission.forget()
    found = graph_of(program)
    try:
        return emission.WAYS[way].lines(found.graph, found.donate, texts)
    except FirebrickError as e:
        return [refused(e)]


def ways_of(program: str) -> tuple[str, ...]:
    """The ways in which a program may be emitted."""
    family = program.partition(":")[0]
    if family in others.FAMILIES:
        return ("text",)
    return tuple(functions.WAYS if family in functions.FAMILIES else emission.WAYS)


def candidates(seeds: int) -> Iterator[str]:
    """Names of all programs to choose from."""
    yield from others.candidates()
    yield from graphs.candidates(seeds)
    yield from functions.candidates()
