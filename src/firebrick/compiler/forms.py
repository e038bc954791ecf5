"""``forms_text``: the intermediate representations of a graph, as text, for every target.

These are the graph, its groups, their specifications, the kernel IR of their naive forms, and the code of their kernels. An
engine gives its groups and what prints their code. Specifications are imported when some are printed: the command needs the
names of the forms when it starts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import indent

from firebrick.compiler.fusion.fused import FUSED
from firebrick.ir import Graph

FORMS = ("graph", "groups", "specs", "naive", "code")
"""Names of the representations, in the order of compilation."""


def forms_text(
    graph: Graph, fused: Graph, which: Sequence[str], language: str, code: Callable[[Graph], str], reasons: Sequence[str],
    refused: Sequence[str],
) -> str:  # fmt: skip
    """The representations of a graph.

    Args:
        graph: The program.
        fused: The program with its groups.
        which: Names of ``FORMS``.
        language: Of the code.
        code: The code of a group's kernels.
        reasons: A line for each operation that is in no group.
        refused: A line for each group that is not proved to be valid.
    """
    parts = [f"# Graph\n{graph}"] if "graph" in which else []
    if "groups" in which:
        parts.append(f"# Groups\n{fused}")
    bodies = [(n.first, n.params["body"]) for n in fused.nodes if n.op is FUSED]
    describing: dict[str, Callable[[Graph], str]] = {"specs": _spec, "naive": _naive, "code": code}
    titles = {"specs": "Specifications", "naive": "Naive forms", "code": language}
    for form, describe in describing.items():
        if form in which:
            found = [f"group %{first}:\n{indent(describe(body).rstrip(), '  ')}" for first, body in bodies]
            parts.append(f"# {titles[form]}\n" + ("\n".join(found) or "no groups"))
    if reasons:
        parts.append("# Operations that are no groups\n" + "\n".join(dict.fromkeys(reasons)))
    if refused:
        parts.append("# Groups without a proof, which are not fused\n" + "\n".join(refused))
    return "\n\n".join(parts)


def _spec(body: Graph) -> str:
    from firebrick.compiler.spec.base import key
    from firebrick.compiler.spec.kinds import spec_of
    from firebrick.compiler.spec.text import printed

    spec = spec_of(body)
    return f"{printed(spec)}\nkey {key(spec)}"


def _naive(body: Graph) -> str:
    from firebrick.compiler.naive import naive
    from firebrick.compiler.spec.kinds import spec_of

    form = naive(spec_of(body))
    return "\n".join(str(step.function) for step in form.steps)
