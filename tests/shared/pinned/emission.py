"""What the compiler decides of a program for a target, and the texts that it prints, as lines: nothing is compiled or run.

A target is data: no property of this machine has influence. What is memoised is forgotten before each program, so that its
lines, and the lines of the compiler that it executes, do not depend on the programs before it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from hashlib import blake2b
from typing import Any

import pytest

from firebrick.backends.cpu import engine as cpu_engine
from firebrick.backends.cpu import native
from firebrick.backends.registry import find_device
from firebrick.backends.webgpu import lowering as webgpu
from firebrick.backends.webgpu.probes import LONGEST, Measured
from firebrick.backends.webgpu.variants import variants as webgpu_variants
from firebrick.backends.webgpu.web_plan import PAGE, web_plan
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.naive import naive
from firebrick.compiler.program.launch import Launch
from firebrick.compiler.spec import kinds
from firebrick.compiler.spec.base import key, problem
from firebrick.compiler.spec.custom import Custom
from firebrick.compiler.spec.text import printed
from firebrick.compiler.targets.llvm import lower, naive_form
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.compiler.targets.llvm.gpu_kernel import gpu_module
from firebrick.compiler.targets.llvm.lowered import Lowered
from firebrick.compiler.targets.llvm.target import Target
from firebrick.compiler.targets.llvm.variants import variants as llvm_variants
from firebrick.compiler.tune.variant import problem_of
from firebrick.core.config import config
from firebrick.core.errors import FirebrickError
from firebrick.ir import Graph
from firebrick.scalar.capabilities import CONSERVATIVE_GPU

PROCESSORS = {
    "avx512": Target.named("x86_64", 512),
    "avx2": Target.named("x86_64", 256),
    "sse": Target.named("x86_64", 128),
    "neon": Target.named("aarch64"),
}
"""The last one cannot be run on an x86-64 machine."""
_MESA = replace(
    CONSERVATIVE_GPU, exact_division=True, exact_sqrt=True, denormals=True, group_items=1024, shared_bytes=32768,
    offset_alignment=32, buffers=31, float16=True, subgroup_sizes=(8, 8),
)  # fmt: skip
DRIVERS = {
    "page": PAGE,
    "processor": Measured(_MESA, contracts=False, facts={}, processor=True, float64=replace(_MESA, float64=True)),
    "exact": Measured(
        replace(
            CONSERVATIVE_GPU, exact_division=True, exact_sqrt=True, exact_fma=True, denormals=True, loop_iterations=LONGEST,
            group_items=1024, shared_bytes=49152, offset_alignment=64, binding_bytes=None, buffers=15, float16=True,
            subgroup_sizes=(32, 32),
        ),
        contracts=False, facts={},
    ),
}  # fmt: skip
"""Any driver of a page; Mesa's driver in software; a driver whose arithmetic is exact, which is not run."""
GPUS = {"nvidia": Target.named("sm_80"), "amd": Target.named("gfx90a")}
THREADS = 4
"""For which variants are offered."""
_ANY = replace(POLICY, one=0, two=0, more=0, reduced=0)
Texts = dict[str, str]
"""What the lines have hashes of, by the hash."""


def short(text: str, texts: Texts | None = None) -> str:
    """A hash of a text, without the places of Python's sources in it."""
    if ".py" in text:
        text = re.sub(r"(/[^\s/\"']+)*/(\w+\.py)(:\d+)?", r"\2", text)
    found = blake2b(text.encode(), digest_size=5).hexdigest()
    if texts is not None:
        texts[found] = text
    return found


def refused(e: FirebrickError) -> str:
    """A line about what is refused, without the place, which is another one on each machine."""
    text = re.sub(r",? ?(in `[^`]*` )?at \S*/\S+?:\d+[^.]*", "", " ".join(str(e).split()))
    return f"refused: {text}"[:200].rstrip()


@cache
def _memoised() -> tuple[Any, ...]:
    """The compiler's functions that keep results."""
    modules = [m for n, m in sys.modules.items() if n.startswith(("firebrick.compiler", "firebrick.scalar", "firebrick.ops"))]
    found = [v for m in modules for n, v in vars(m).items() if n != "_host" and hasattr(v, "cache_clear")]
    return tuple({id(v): v for v in found}.values())


def forget() -> None:
    """Forget what the compiler memoised."""
    for function in _memoised():
        function.cache_clear()
    lower.kept.clear()
    lower._lowered.clear()
    webgpu._shaders.clear()


@contextmanager
def emitting(target: Target | None = None) -> Iterator[None]:
    """Within, the cpu engine generates code for a target, and compiles and links none of it."""
    forget()
    with pytest.MonkeyPatch.context() as patch, config.scope(verify_graphs=False, tune="off", cache_plans=False):
        if target is not None:
            patch.setattr(Target, "host", staticmethod(lambda width_bits=0: target))
        patch.setattr(cpu_engine.CpuBackend, "compiles", True)  # or the pool of threads would be code for the target too
        patch.setattr(native, "compile_many", lambda texts, *args, **kwargs: None)
        patch.setattr(native, "Segment", lambda *args, **kwargs: lambda address: None)
        yield


# processors


def _buffer(at: Any) -> str:
    return f"{at[0]}+{at[1]}" if isinstance(at, tuple) else str(at)


def _site(site: Any) -> tuple[Any, ...]:
    """A check, without the line of the user's program."""
    return type(site).__name__, *(v for n, v in sorted(_fields(site).items()) if n not in ("line", "lines", "file"))


def _fields(x: Any) -> dict[str, Any]:
    return {f.name: getattr(x, f.name) for f in fields(x)}


def _launch(x: Launch) -> tuple[Any, ...]:
    """A launch, without the lines of its checks."""
    return (*(v for n, v in _fields(x).items() if n not in ("sites", "sequences")), len(x.sites),
            [[_launch(y) for y in part] for part in x.sequences])  # fmt: skip


def _us(cost: float) -> str:
    return f"{cost:.4g}"


def _kernel_text(found: Lowered, name: str) -> str:
    """The text of one kernel of a module."""
    parts = found.text.split(f"@{name}(", 1)
    return f"{parts[0].rpartition('define')[2]}{parts[1].partition(chr(10) + '}')[0]}" if len(parts) > 1 else found.text


def lowered_lines(found: Lowered, texts: Texts) -> Iterator[str]:
    """The lines of the kernels of a group: a head, and one for each."""
    over = "/".join("".join(map(str, sorted(o))) or "-" for o in found.over)
    temporary = ",".join(map(str, found.temporary)) or "-"
    yield f"over {over} temporary {temporary} us {_us(found.cost_us)} text {short(found.text, texts)}" + (
        f" doubt: {found.doubt}" if found.doubt else ""
    )
    for p in found.parts:
        k = p.kernel
        kind = re.sub(r"_[0-9a-f]{16,}", "", k.name)
        line = (
            f"  {kind} grid {k.grid}/{p.taken} scratch {k.scratch} us {_us(p.cost_us)} at {','.join(map(_buffer, p.buffers))}"
        )
        line += f" packs {p.packs}" if p.packs >= 0 else ""
        line += f" checks {short(repr([_site(s) for s in p.sites]))}" if p.sites else ""
        yield f"{line} {short(_kernel_text(found, k.name), texts)}"


def _spec_line(body: Graph, spec: Any) -> str:
    ops = ",".join(n.op.name for n in body.nodes)
    ops = ops if len(ops) < 60 else f"{ops[:50]}…{len(body.nodes)}"
    shapes = " ".join(str(a).replace(" ", "") for a in body.inputs)
    return f"{ops} [{shapes}] {type(spec).__name__} {key(spec)[:8]} {short(repr(problem(spec)))}"


def _groups(graph: Graph) -> list[Graph]:
    """The groups of a program, in the bodies of its loops and branches too, each once."""
    found: dict[int, Graph] = {}

    def walk(g: Graph) -> None:
        for n in g.nodes:
            for value in n.params.values():
                for x in value if isinstance(value, (tuple, list)) else (value,):
                    if isinstance(x, Graph):
                        if n.op is FUSED:
                            found.setdefault(id(x), x)
                        else:
                            walk(x)

    walk(graph)
    return list(found.values())


def _plan_line(program: Any, parts: Any, texts: Texts) -> str:
    plan = program.plan
    decided = (
        plan.order, sorted(plan.into.items()), sorted(plan.outs.items()), sorted(plan.dies.items()), plan.begin,
        sorted(plan.writes), sorted(plan.copied), plan.ready,
    )  # fmt: skip
    line = f"program of {len(plan.order)}: peak {plan.peak}/{plan.unplanned} reused {plan.reused} donated {plan.donated} "
    line += f"constants {plan.constants} plan {short(repr(decided), texts)} source {short(program.source, texts)}"
    if parts is not None:
        at = sorted(parts.at.items()), sorted(parts.temporary.items()), sorted(parts.skipped)
        segments = [(s.nodes, s.calls, list(s.arrays), s.results, s.into) for s in parts.segments]
        line += (
            f" segments {len(parts.segments)} {short(repr(segments), texts)} arena {parts.arena} at {short(repr(at), texts)}"
        )
    return line


def processor_lines(graph: Graph, donate: Sequence[int], target: Target, texts: Texts, any_size: bool = True) -> list[str]:
    """What a program becomes on a processor."""
    seen: list[Any] = []
    with emitting(target), pytest.MonkeyPatch.context() as patch:
        compiled = native.compiled

        def kept(*args: Any) -> Any:
            seen.append(compiled(*args))
            return seen[-1]

        patch.setattr(cpu_engine, "compiled", kept)
        home = find_device("cpu")
        policy = _ANY if any_size else POLICY
        program = home.backend._compiled(graph, home, tuple(donate), (), None, policy)  # type: ignore[attr-defined]
        linked = seen[-1] if seen else None
        lines = [_plan_line(program, None if linked is None else linked.segment_plan, texts)]
        lines[0] += f" explain {short(program.explain(), texts)}"
        if linked is not None:
            lines[0] += f" launches {short(repr([[_launch(x) for x in s] for s in linked.launches]), texts)}"
        for body in _groups(program.graph):
            spec = kinds.spec_of(body)
            head, *more = lowered_lines(lower.lower(body, target), texts)
            lines += [f"{_spec_line(body, spec)} {head}", *more]
    return lines


def variant_lines(graph: Graph, target: Target, texts: Texts) -> list[str]:
    """The variants of each group on a processor."""
    lines: list[str] = []
    with emitting(target):
        for body in _groups(fuse(graph, lower.kind_of, _ANY)):
            spec, outputs = kinds.spec_of(body), [body.avals[v] for v in body.outputs]
            default = lower.lower(body, target)
            lines.append(_spec_line(body, spec) + f" problem {problem_of(body, spec, 'device', THREADS).id[:8]}")
            for v in llvm_variants(spec, body.inputs, outputs, target, default, THREADS):
                made = v.build()
                taken = ",".join(str(p.taken) for p in made.parts)
                lines.append(f"  {v.name} order {v.order} us {_us(v.cost_us)} takes {taken} {short(made.text, texts)}")
    return lines


def naive_lines(graph: Graph, target: Target, texts: Texts) -> list[str]:
    """The naive form of each group: its kernel IR, and its code for a processor and for two GPUs."""
    lines: list[str] = []
    with emitting(target):
        for body in _groups(fuse(graph, lower.kind_of, _ANY)):
            spec, outputs = kinds.spec_of(body), [body.avals[v] for v in body.outputs]
            lines.append(f"{_spec_line(body, spec)} printed {short(printed(spec), texts)}")
            form = naive(spec)
            for s in form.steps:
                line = f"  {s.function.name.rsplit('_', 1)[0]} grid {s.grid} of {short(repr((s.buffers, s.scalars)))}"
                line += f" ir {short(str(s.function), texts)}"
                for name, gpu in GPUS.items():
                    line += f" {name} {short(gpu_module([s.function], gpu), texts)}"
                lines.append(line)
            if not isinstance(spec, Custom):
                head, *more = lowered_lines(naive_form.lowered(spec, body.inputs, outputs, target), texts)
                lines += [f"  {head}", *(f"  {m}" for m in more)]
    return lines


# drivers


def group_lines(made: webgpu.LoweredGroup, texts: Texts) -> Iterator[str]:
    """The lines of a group's launches: a head, and one for each."""
    yield f"temporaries {' '.join(str(a).replace(' ', '') for a in made.temporaries) or '-'} checks {len(made.sites)}"
    for s in made.launches:
        numbers = short(repr((s.sizes, s.scalars, s.shader.access)), texts)
        groups = "×".join(map(str, s.shader.workgroups(s.grid)))
        yield f"  grid {'×'.join(map(str, s.grid))} groups {groups} at {s.arrays} of {numbers} {short(s.shader.text, texts)}"


def driver_lines(graph: Graph, driver: Measured, texts: Texts) -> list[str]:
    """What a program becomes on an adapter."""
    made: dict[int, webgpu.LoweredGroup | str] = {}
    kept: list[Graph] = []

    def proved(body: Graph) -> bool:
        kept.append(body)
        made[id(body)] = _lowered(body, driver)
        return not isinstance(made[id(body)], str)

    reasons: list[str] = []
    refusals: list[str] = []
    lines: list[str] = []
    with emitting():
        fused = fuse(graph, webgpu.kind_of, webgpu.POLICY, reasons, proved=proved)
        lines.append(f"groups {short(str(fused), texts)} reasons {short(repr(reasons), texts)}")
        for body in [*kept, *(b for b in _groups(fused) if id(b) not in made)]:
            found = made[id(body)] if id(body) in made else _lowered(body, driver)
            if isinstance(found, str):
                refusals.append(f"{','.join(n.op.name for n in body.nodes)}: {found}")
                continue
            head, *more = group_lines(found, texts)
            lines += [f"{_spec_line(body, kinds.spec_of(body))} {head}", *more]
    if refusals:
        lines.append(f"refused {len(refusals)}, first {refusals[0][:120]} {short(chr(10).join(refusals), texts)}")
    return lines


def _lowered(body: Graph, driver: Measured) -> webgpu.LoweredGroup | str:
    try:
        return webgpu.lowered_body(body, driver)
    except FirebrickError as e:
        return refused(e)


def driver_variant_lines(graph: Graph, driver: Measured, texts: Texts) -> list[str]:
    """The variants of each group on an adapter."""
    lines: list[str] = []
    with emitting():
        for body in _groups(fuse(graph, webgpu.kind_of, webgpu.POLICY)):
            spec, outputs = kinds.spec_of(body), [body.avals[v] for v in body.outputs]
            lines.append(_spec_line(body, spec))
            asked = problem_of(body, spec, "device")
            for v in webgpu_variants(spec, driver):
                try:
                    found = webgpu.lowered(v.build(), body.inputs, outputs, driver)
                    text = short("\n".join(s.shader.text for s in found.launches), texts)
                except FirebrickError as e:
                    text = refused(e)[:80]
                lines.append(f"  {v.name} order {v.order} us {_us(v.cost_us)} valid {v.valid_for(asked)} {text}")
    return lines


def page_lines(graph: Graph, texts: Texts) -> list[str]:
    """The plan of a program for a page."""
    with emitting():
        try:
            plan = web_plan(graph)
        except FirebrickError as e:
            return [refused(e)]
    lines = [
        f"buffers {short(repr(plan.buffers), texts)} inputs {plan.inputs} outputs {plan.outputs} "
        f"constants {sorted(plan.constants)} checks {len(plan.sites)} steps {short(repr(plan.steps), texts)}"
    ]
    return lines + [f"  kernel {short(k.text, texts)} {k.access}" for k in plan.kernels]


@dataclass(frozen=True)
class Way:
    """A way to emit a graph.

    Attributes:
        lines: (graph, donated inputs, texts) → its lines.
        runs: Whether what is emitted is run before it is recorded; other targets are not here.
    """

    lines: Callable[[Graph, Sequence[int], Texts], list[str]]
    runs: bool = False


_MINE, _OTHER = PROCESSORS["avx512"], PROCESSORS["avx2"]
WAYS: Mapping[str, Way] = {
    "avx512": Way(lambda g, d, texts: processor_lines(g, d, _MINE, texts), True),
    "avx2": Way(lambda g, d, texts: processor_lines(g, d, _OTHER, texts), True),
    "sse": Way(lambda g, d, texts: processor_lines(g, d, PROCESSORS["sse"], texts), True),
    "neon": Way(lambda g, d, texts: processor_lines(g, d, PROCESSORS["neon"], texts)),
    "avx512 small": Way(lambda g, d, texts: processor_lines(g, d, _MINE, texts, False), True),
    "avx512 variants": Way(lambda g, d, texts: variant_lines(g, _MINE, texts), True),
    "avx2 variants": Way(lambda g, d, texts: variant_lines(g, _OTHER, texts), True),
    "naive": Way(lambda g, d, texts: naive_lines(g, _MINE, texts), True),
    "page": Way(lambda g, d, texts: driver_lines(g, DRIVERS["page"], texts), True),
    "processor": Way(lambda g, d, texts: driver_lines(g, DRIVERS["processor"], texts), True),
    "exact": Way(lambda g, d, texts: driver_lines(g, DRIVERS["exact"], texts)),
    "exact variants": Way(lambda g, d, texts: driver_variant_lines(g, DRIVERS["exact"], texts)),
    "processor variants": Way(lambda g, d, texts: driver_variant_lines(g, DRIVERS["processor"], texts), True),
    "page plan": Way(lambda g, d, texts: page_lines(g, texts)),
}  # fmt: skip
"""How graphs are emitted, by name."""
