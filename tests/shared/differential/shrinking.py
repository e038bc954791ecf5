"""Makes a failing program smaller: fewer outputs, fewer steps, plainer inputs, as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from differential.program import Input, Program, Step
from differential.rules import reduction
from differential.running import Failure, Judge, Way
from differential.truth import TruthError, Unstable


def smaller(program: Program, failure: Failure) -> tuple[Program, Failure]:
    """The smallest program found that fails in the same way, and how."""
    known = {program.source("fb")}
    while True:
        for candidate in _candidates(program, failure):
            source = candidate.source("fb")
            if source in known:
                continue
            known.add(source)
            found = _fails(candidate, failure)
            if found is not None:
                program, failure = candidate, found
                break
        else:
            return program, failure


def _fails(program: Program, failure: Failure) -> Failure | None:
    try:
        judge = Judge(program)
        if failure.what == "dtype":  # against another way
            judge.judge(Way("numpy", "eager", failure.way.gradients))
        found = judge.judge(failure.way)
    except (Unstable, TruthError, ValueError, TypeError, IndexError, RuntimeError):  # it means nothing any more
        return None
    same = found is not None and found.key == failure.key
    if same and failure.what == "raised":
        assert found is not None
        same = found.text.split(":")[0] == failure.text.split(":")[0]
    return found if same else None


def _candidates(program: Program, failure: Failure) -> Iterator[Program]:
    """Smaller programs, the smallest first."""
    n = len(program.inputs)
    if len(program.outputs) > 1:
        for v in program.outputs:
            yield replace(program, outputs=(v,)).pruned()
        for v in program.outputs:
            yield replace(program, outputs=tuple(o for o in program.outputs if o != v)).pruned()
    elif program.loss is not None and program.outputs != (program.loss,):
        yield replace(program, outputs=(program.loss,)).pruned()
    if program.loss is None:
        for v in range(n, n + len(program.steps) - 1):  # an earlier value instead of the last
            yield replace(program, outputs=(v,)).pruned()
    else:
        for v in range(n, program.loss):  # the mean of an earlier value as the loss
            if program.dtype(v) in ("float32", "float64", "float16", "bfloat16"):
                step = program.steps[v - n]
                mean = Step("sum", (v,), reduction(len(step.shape), None), step.dtype, ())
                if step.shape:
                    yield replace(
                        program, steps=(*program.steps[: v - n + 1], mean), outputs=(v + 1,), loss=v + 1
                    ).pruned()  # fmt: skip
                else:
                    yield replace(program, steps=program.steps[: v - n + 1], outputs=(v,), loss=v).pruned()
    for k in range(len(program.steps) - 1, -1, -1):
        for v in program.steps[k].operands:
            if program.dtype(v) == program.steps[k].dtype and _shape(program, v) == program.steps[k].shape:
                yield _replaced(program, n + k, v).pruned()
        for values in ("normal", "positive"):
            smaller_one = _as_input(program, k, values)
            if smaller_one is not None:
                yield smaller_one.pruned()
    for k, i in enumerate(program.inputs):
        if i.view != "{x}":
            yield _with_input(program, k, replace(i, view="{x}", shape=i.truth.shape))
        for j, other in enumerate(program.inputs[:k]):
            if other.dtype == i.dtype and other.truth.shape == i.truth.shape:
                yield _replaced(program, k, j).pruned()
        if i.values in ("shifted", "large", "small", "positive"):
            yield _with_input(program, k, replace(i, values="normal"))


def _shape(program: Program, value: int) -> tuple[int, ...]:
    n = len(program.inputs)
    return program.inputs[value].truth.shape if value < n else program.steps[value - n].shape


def _with_input(program: Program, k: int, made: Input) -> Program:
    return replace(program, inputs=(*program.inputs[:k], made, *program.inputs[k + 1 :]))


def _replaced(program: Program, value: int, by: int) -> Program:
    """Every use of a value made a use of another one before it."""
    steps = tuple(replace(s, operands=tuple(by if v == value else v for v in s.operands)) for s in program.steps)
    outputs = tuple(dict.fromkeys(by if v == value else v for v in program.outputs))
    return replace(program, steps=steps, outputs=outputs, loss=by if program.loss == value else program.loss)


def _as_input(program: Program, k: int, values: str) -> Program | None:
    """With step ``k`` made an input."""
    step, n = program.steps[k], len(program.inputs)
    if n + k == program.loss:
        return None
    values = {"int64": "whole", "bool": "truths"}.get(step.dtype, values)
    seed = int(np.random.default_rng([program.seed, n, k]).integers(1 << 30))
    made = Input(values, step.dtype, step.shape, "{x}", seed)

    def place(v: int) -> int:
        return n if v == n + k else v if v < n else v + 1

    steps = tuple(replace(s, operands=tuple(place(v) for v in s.operands)) for s in program.steps)
    outputs = tuple(place(v) for v in program.outputs)
    loss = None if program.loss is None else place(program.loss)
    return Program(program.seed, (*program.inputs, made), steps, outputs, loss)


def report(program: Program, failure: Failure) -> str:
    """A failing program as Python that runs: the inputs, the program, its ground truth, and both results."""
    way = failure.way
    names = [f"x{k}" for k in range(len(program.inputs))]
    lines = [
        f"# seed {program.seed // 64} of {way}: {failure.what}: {failure.text.splitlines()[0]}",
        "import numpy as np",
        "import firebrick as fb",
    ]
    if way.mode == "forced":
        lines += ["from firebrick.compiler import fuse", "fuse.ONE = fuse.TWO = fuse.THREE = fuse.REDUCED = 0"]
    lines += [f'fb.set_default_device("{way.device}")'] if way.device != "cpu" else []
    made: dict[Input, str] = {}
    for name, i in zip(names, program.inputs, strict=True):
        lines.append(f"{name} = {made.setdefault(i, i.source('fb')) if i not in made else made[i]}")
        made[i] = name
    lines += [program.source("fb", loss_first=way.gradients).rstrip()]
    wide = [
        f"{n}.numpy().astype(np.float64)" if i.is_float else f"{n}.numpy()" for n, i in zip(names, program.inputs, strict=True)
    ]
    if way.gradients:
        floats = ", ".join(n for n, i in zip(names, program.inputs, strict=True) if i.is_float)
        others = "".join(f", {n}" for n, i in zip(names, program.inputs, strict=True) if not i.is_float)
        plain, call = "fb.value_and_grad(program, has_aux=True)", f"([{floats}]{others})"
    else:
        plain, call = "program", f"({', '.join(names)})"
    fn = plain if way.mode == "eager" else f"fb.jit({plain})"
    lines += [f"print({fn}{call})"]
    if way.gradients:
        lines += [f"print({plain}{call})  # as it is without jit"] if way.mode != "eager" else []
    else:
        lines += [program.source("np").replace("def program", "def truth").rstrip(), f"print(truth({', '.join(wide)}))"]
    return "\n".join([*lines, ""])
