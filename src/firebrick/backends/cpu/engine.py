"""``CpuBackend``: eager operations run on NumPy's kernels, expensive ones on compiled kernels (``eager``); graphs run on
compiled kernels where these are faster.

Nodes with compiled kernels are fused, all kernels of a graph are linked at once, and the program runs consecutive kernels in
one native call; other nodes are calls of NumPy. If the system does not allow generated code, the engine warns once and uses
NumPy's kernels only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from weakref import ref

import numpy as np

from firebrick.backends.cpu import eager, restored
from firebrick.backends.cpu.branches import control_kernel
from firebrick.backends.cpu.explained import explained
from firebrick.backends.cpu.native import ARENAS, Proofs, compiled, kinds_of, native_kernel
from firebrick.backends.cpu.runtime.pool import native as native_pool
from firebrick.backends.cpu.runtime.pool import release_scratch
from firebrick.backends.cpu.runtime.results import LEAST, RESULTS
from firebrick.backends.numpy.engine import HostBackend, loud_ufunc
from firebrick.compiler import Executable, Kernel, call, choose, plan_memory, write
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.fusion.loop_views import views_inside
from firebrick.compiler.fusion.policy import FusionPolicy
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.loaded import loaded
from firebrick.compiler.targets.llvm.lower import kind_of
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.tune import choice
from firebrick.compiler.tune.compared import collected, compare, untuned
from firebrick.compiler.tune.whole_programs import keep_if_faster
from firebrick.core.aval import Aval
from firebrick.core.config import config
from firebrick.core.device import Device
from firebrick.core.dtypes import DType, dtype
from firebrick.core.errors import KernelCompileError, ShapeError, UnsupportedError
from firebrick.core.lines import warn
from firebrick.core.op import Op
from firebrick.ir import Graph


class CompiledWarning(UserWarning):
    """Compiled kernels cannot be used on this system."""


class CpuBackend(HostBackend):
    """Firebrick's own CPU engine."""

    engine = "cpu"
    platforms = ("cpu",)
    expensive = frozenset({*eager.ESTIMATES, "solve"})

    def __init__(self) -> None:
        super().__init__()
        self._usable: bool | None = None
        self._eager = eager.EagerKernels(self.compile_operation)

    @property
    def compiles(self) -> bool:
        """Whether graphs are compiled to native kernels."""
        if not config.cpu_compile:
            return False
        if self._usable is None:
            try:
                native_pool()
                self._usable = True
            except (KernelCompileError, ImportError, OSError) as e:
                self._usable = False
                warn(f"the cpu engine runs compiled graphs on NumPy's kernels: {e}", CompiledWarning)
        return self._usable

    def compile(
        self, graph: Graph, device: Device | None = None, donate: Iterable[int] = (), ready: Iterable[int] = ()
    ) -> Executable:
        if not self.compiles:
            return super().compile(graph, device, donate, ready)
        device = device or self.first_device()
        given = tuple(donate)
        if any(not 0 <= i < len(graph.inputs) for i in given):
            raise ShapeError(f"donated inputs are numbers below {len(graph.inputs)}", str(given), "donate inputs only")
        wanted = tuple(ready)
        form = restored.form_of(graph, given, wanted)
        if form is not None:
            found = restored.find(form, self, graph, device, lambda: self._compiled(graph, device, given, wanted, None))
            if found is not None:
                return found
        return self._compiled(graph, device, given, wanted, form)

    def _compiled(
        self, graph: Graph, device: Device, given: tuple[int, ...], ready: tuple[int, ...], form: restored.Form | None,
        policy: FusionPolicy = POLICY,
    ) -> Executable:  # fmt: skip
        reasons: list[str] = []
        proofs = Proofs()
        fused = fuse(views_inside(graph), kind_of, policy, reasons, proved=proofs)
        with collected() as tuned:
            kernels = choose(self, fused, device, lambda n: control_kernel(self, n, device, proofs))
        kinds = kinds_of(fused, kernels)
        linked = compiled(kinds, kernels, plan_memory(fused, kernels, given, ready, kinds.arrange))
        # a program with other bits than the default's is chosen in each process, which a checkpoint records
        if form is not None and all(same for _, _, same in tuned):
            restored.keep(form, fused, kernels, linked)
        program = write(self, fused, kernels, linked.segment_plan.plan, device, linked.functions)
        program.notes += explained(kinds, kernels, linked.segment_plan, reasons, proofs.refused)
        program.notes += [f"tuned: {name!r} computes {problem.text}" for problem, name, _ in tuned]
        if tuned and config.verify_every:
            compare(program, config.verify_every, tuned, lambda: self._untuned(graph, device, given, ready))
        if tuned and choice.measures():
            keep_if_faster(program, tuned, lambda: self._untuned(graph, device, given, ready))
        return program

    def _untuned(self, graph: Graph, device: Device, given: tuple[int, ...], ready: tuple[int, ...]) -> Executable:
        with untuned():
            return self._compiled(graph, device, given, ready, None)

    def replay(self, graph: Graph, device: Device, large: bool) -> Executable:
        if large and self.compiles and eager.is_expensive_graph(graph):
            return self.compile(graph, device)
        return super().replay(graph, device, large)

    def compile_operation(self, graph: Graph) -> Executable:
        """A program of a graph of one operation, which has a kernel whatever its size."""
        if not self.compiles:
            return super().compile(graph)
        return self._compiled(graph, self.first_device(), (), (), None, replace(POLICY, one=0, two=0, more=0, reduced=0))

    def from_host(self, array: np.ndarray[Any, Any], device: Device) -> np.ndarray[Any, Any]:
        return self.copy(array, device)

    def copy(self, native: np.ndarray[Any, Any], device: Device | None = None) -> np.ndarray[Any, Any]:
        if native.nbytes < LEAST:
            return super().copy(native, device)
        out = RESULTS.empty(native.shape, native.dtype, native.nbytes)
        np.copyto(out, native)
        return out

    def destination(self, op: Op, inputs: tuple[np.ndarray[Any, Any], ...]) -> np.ndarray[Any, Any] | None:
        if inputs[0].nbytes < eager.LARGE and inputs[-1].nbytes < eager.LARGE:
            return None
        return eager.destination(loud_ufunc(op), inputs)

    def fast_kernel(self, op: Op, dtypes: tuple[DType, ...]) -> Callable[..., Any] | None:
        return None if super().fast_kernel(op, dtypes) is None else eager.into_reused_memory(loud_ufunc(op))

    def forms(self, graph: Graph, which: tuple[str, ...], device: Device | None = None) -> str:
        from firebrick.backends.cpu.forms import forms  # imported here, since nothing else needs the modules of the forms

        return forms(graph, which)

    def kernel_forms(self, function: Any, which: tuple[str, ...], target: str = "") -> str:
        """The representations of a kernel of the kernel language: ``ir``, ``code`` and ``assembly``, for any target."""
        from firebrick.backends.cpu.forms import kernel_forms

        return kernel_forms(function, which, target)

    def run_expensive(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if op.name == "solve":
            if not self.compiles or not eager.are_many_systems(*inputs):
                return None
            from firebrick.backends.cpu.linear_systems import solved  # imported here, since few programs solve many systems

            return solved(*inputs)
        if not eager.is_expensive(op.name, inputs, params) or not self.compiles:
            return None
        return self._eager.run(op, inputs, params)

    def run_kernel(self, op: Op, inputs: tuple[Any, ...], params: dict[str, Any]) -> Any:
        if not self.compiles:
            return super().run_kernel(op, inputs, params)
        from firebrick.backends.cpu import custom  # imported here, since few programs have kernels of their own

        program = op.program.program([dtype(x.dtype) for x in inputs], params)
        results = custom.run(program, inputs[: len(program.operands)], dict(params["statics"]))
        return results if len(results) > 1 else results[0]

    def _kept_launch(self, op: Op, operands: tuple[Aval, ...], params: dict[str, Any]) -> Callable[..., Any]:
        """The kernel of an operation in the kernel language. It does not keep the code: an op keeps that of a number of
        kernels only."""
        from firebrick.backends.cpu import custom  # see ``run_kernel``

        made = op.program.program([a.dtype for a in operands], params)
        held, count, statics = ref(made), len(made.operands), dict(params["statics"])

        def run(*natives: Any) -> Any:
            program = held()
            if program is None:  # many others have been translated since
                raise ReferenceError("the kernel is no longer kept")
            results = custom.run(program, natives[:count], statics)
            return results if len(results) > 1 else results[0]

        return run

    def kernel(
        self,
        op: Op,
        operands: tuple[Aval, ...],
        params: dict[str, Any],
        results: tuple[Aval, ...],
        device: Device | None,
        known: tuple[np.ndarray[Any, Any] | None, ...],
    ) -> Kernel:
        if op is FUSED:
            if self.compiles:
                return native_kernel(params["body"])
            return call(lambda *natives: self.execute(op, natives, params), len(operands), {})
        if op.name == "solve" and self.compiles and eager.are_many_systems(*operands):
            return call(lambda *natives: self.execute(op, natives, params), len(operands), {})
        if op.name in eager.ESTIMATES and self.compiles and eager.is_expensive(op.name, operands, params):
            run = self._eager.kernel(op, operands, params)

            def compiled_or_not(*natives: Any) -> Any:
                found = run(*natives)
                return self.execute(op, natives, params) if found is None else found

            return call(compiled_or_not, len(operands), {})
        return super().kernel(op, operands, params, results, device, known)

    def kept_kernel(
        self, op: Op, operands: tuple[Aval, ...], params: dict[str, Any], results: tuple[Aval, ...], device: Device
    ) -> Callable[..., Any] | None:  # fmt: skip
        if op.program is not None:
            return self._kept_launch(op, operands, params) if self.compiles else None
        if any(a.nbytes >= eager.LARGE for a in operands):  # for which ``execute`` has reused memory
            return None
        return super().kept_kernel(op, operands, params, results, device)

    def properties(self, device: Device) -> dict[str, Any]:
        facts = super().properties(device)
        if config.cpu_compile:
            # without LLVM, or with a width that this machine lacks, compiling a kernel reports the reason
            with suppress(ImportError, UnsupportedError):
                facts["target"] = str(Target.host())
        return facts

    def memory_stats(self, device: Device) -> dict[str, int]:
        """Memory other than that of tensors, of all of the engine's devices: ``arenas``, of programs, in use or idle;
        ``results``, that of tensors that are gone, for new ones; ``code``, the objects of compiled kernels."""
        held = ARENAS.stats()
        more = {"arenas": held["live"] + held["kept"], "results": RESULTS.kept, "code": loaded().nbytes}
        return {**super().memory_stats(device), **more}

    def memory_cleanup(self, device: Device) -> None:
        super().memory_cleanup(device)
        self._eager.clear()
        ARENAS.release()
        RESULTS.release()
        release_scratch()
