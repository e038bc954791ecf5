"""``forms``: the intermediate representations of a graph, as text.

These are the graph, its groups, their specifications, the kernel IR of their naive forms, and the LLVM IR of their kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from textwrap import indent

from firebrick.backends.cpu.native import Proofs
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.kernel.ir import Function
from firebrick.compiler.naive import naive
from firebrick.compiler.spec.base import key
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.spec.text import printed
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.gpu_kernel import gpu_module
from firebrick.compiler.targets.llvm.host import emit_assembly
from firebrick.compiler.targets.llvm.lanes import lanes_kernel
from firebrick.compiler.targets.llvm.lower import kind_of, lower
from firebrick.compiler.targets.llvm.native import module_text
from firebrick.compiler.targets.llvm.target import Target
from firebrick.ir import Graph

FORMS = ("graph", "groups", "specs", "naive", "code")
"""Names of the representations, in the order of compilation."""


def forms(graph: Graph, which: tuple[str, ...] = FORMS[:3]) -> str:
    """The representations of a graph.

    Args:
        graph: The program.
        which: Names of ``FORMS``.
    """
    reasons: list[str] = []
    proofs = Proofs()
    fused = fuse(graph, kind_of, POLICY, reasons, proved=proofs)
    parts = [f"# Graph\n{graph}"] if "graph" in which else []
    if "groups" in which:
        parts.append(f"# Groups\n{fused}")
    bodies = [(n.first, n.params["body"]) for n in fused.nodes if n.op is FUSED]
    describing: dict[str, Callable[[Graph], str]] = {"specs": _spec, "naive": _naive, "code": _code}
    titles = {"specs": "Specifications", "naive": "Naive forms", "code": "LLVM IR"}
    for form, describe in describing.items():
        if form in which:
            found = [f"group %{first}:\n{indent(describe(body), '  ')}" for first, body in bodies]
            parts.append(f"# {titles[form]}\n" + ("\n".join(found) or "no groups: every operation runs on the host"))
    if reasons:
        parts.append("# Operations that are no groups\n" + "\n".join(dict.fromkeys(reasons)))
    if proofs.refused:
        parts.append("# Groups without a proof, which are not fused\n" + "\n".join(proofs.refused))
    return "\n\n".join(parts)


def _spec(body: Graph) -> str:
    spec = spec_of(body)
    return f"{printed(spec)}\nkey {key(spec)}"


def _naive(body: Graph) -> str:
    form = naive(spec_of(body))
    return "\n".join(str(step.function) for step in form.steps)


def _code(body: Graph) -> str:
    return lower(body, Target.host()).text


KERNEL_FORMS = ("ir", "code", "assembly")
"""Names of the representations of a function in the kernel language, in the order of compilation."""


def kernel_forms(function: Function, which: tuple[str, ...] = KERNEL_FORMS[:1], target: str = "") -> str:
    """The representations of a kernel of the kernel language, for any target.

    Args:
        function: Its kernel IR.
        which: Of ``KERNEL_FORMS``: kernel IR, LLVM IR and assembly.
        target: ``x86_64``, ``aarch64``, or a GPU such as ``sm_80`` or ``gfx90a``; this machine by default.
    """
    found = Target.named(target) if target else Target.host()
    texts = {"ir": str(function)}
    if set(which) - {"ir"}:
        gpu = found.arch in ("nvptx64", "amdgcn")
        texts["code"] = gpu_module([function], found) if gpu else module_text([lanes_kernel(function, found).kernel])
    if "assembly" in which:
        texts["assembly"] = emit_assembly(texts["code"], found)
    titles = {"ir": "Kernel IR", "code": f"LLVM IR for {found}", "assembly": f"Assembly for {found}"}
    return "\n\n".join(f"# {titles[form]}\n{texts[form].rstrip()}" for form in KERNEL_FORMS if form in which)
