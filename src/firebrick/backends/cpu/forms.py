"""``forms`` and ``kernel_forms``: the intermediate representations of a graph and of a kernel, with LLVM IR."""

from __future__ import annotations

from firebrick.backends.cpu.native import Proofs
from firebrick.compiler.forms import forms_text
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.kernel.ir import Function
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.gpu_kernel import gpu_module
from firebrick.compiler.targets.llvm.host import emit_assembly
from firebrick.compiler.targets.llvm.lanes import lanes_kernel
from firebrick.compiler.targets.llvm.lower import kind_of, lower
from firebrick.compiler.targets.llvm.native import module_text
from firebrick.compiler.targets.llvm.target import Target
from firebrick.ir import Graph


def forms(graph: Graph, which: tuple[str, ...]) -> str:
    """The representations of a graph.

    Args:
        graph: The program.
        which: Names of ``compiler.forms.FORMS``.
    """
    reasons: list[str] = []
    proofs = Proofs()
    fused = fuse(graph, kind_of, POLICY, reasons, proved=proofs)
    return forms_text(graph, fused, which, "LLVM IR", lambda body: lower(body, Target.host()).text, reasons, proofs.refused)


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
