"""Kernels of ``Contract``: products of matrices, convolutions and their gradients, with their epilogues."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from hashlib import blake2b
from math import prod

from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.convolution import FORWARD, INPUT, Convolution
from firebrick.compiler.targets.llvm.contract import (
    DEFAULT,
    Alternative,
    Contraction,
    Epilogue,
    choose,
    contraction,
    forward,
    input_gradient,
    matrix_layout,
    problem_of,
    weight_gradient,
)
from firebrick.compiler.targets.llvm.contract.choose import PHASE
from firebrick.compiler.targets.llvm.contract.dot import LONGEST
from firebrick.compiler.targets.llvm.contract.problem import simplified_result
from firebrick.compiler.targets.llvm.contract.sides import oriented
from firebrick.compiler.targets.llvm.lowered import BYTES_PER_US, STEPS_PER_US, Lowered, contracted
from firebrick.compiler.targets.llvm.native import NAME
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.scalar.expr import walk

DTYPES = ("float32", "float64", "float16", "bfloat16")
"""Supported dtypes."""


def lowered(
    spec: Contract, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target, how: Alternative = DEFAULT
) -> Lowered:
    """The kernels of a specification; arguments as for ``loop_kernels.lowered``, and the alternative to implement."""
    g, first = spec.convolution, spec.parts[0]
    factors = first.left.source, first.right.source
    if g is not None and g.direction != FORWARD:
        return contracted([(c, factors) for c in _gradient(g, target, how)], len(inputs))
    epilogue = Epilogue(
        tuple(matrix_layout(x.dtype, x.view) for x in spec.operands),
        tuple((r.expression, matrix_layout(r.dtype, r.view)) for r in spec.results),
    )
    if g is not None:
        # without an epilogue, special algorithms (depthwise) may be chosen
        plain = epilogue.plain and epilogue.results[0][1].dtype == g.dtype
        made = _named(forward(g, target, NAME, None if plain else epilogue, how), "conv")
    else:
        made = _named(contraction(problem_of(first), target, NAME, epilogue, adjusted=how.adjusted), "matmul")
    extra_inputs = [x.source for x in spec.operands]
    exprs = [r.expression for r in spec.results]
    steps = sum(e.op not in ("load", "const") for e in walk(exprs)) * prod(first.domain)
    result_bytes = prod(first.domain) * outputs[0].dtype.itemsize if g is None and len(outputs) == 1 else outputs[0].nbytes
    moved = sum(min(inputs[i].nbytes, result_bytes) for i in extra_inputs) + sum(a.nbytes for a in outputs)
    cost = steps / STEPS_PER_US + moved / BYTES_PER_US if steps else 0.0
    lowered_contraction = contracted([(made, (*factors, *extra_inputs))], len(inputs), len(exprs), cost)
    return replace(lowered_contraction, over=tuple(_over(spec, made, inputs, a) for a in outputs))


def packed_once(
    spec: Contract, inputs: Sequence[Aval], outputs: Sequence[Aval], target: Target, constant: Collection[int]
) -> Lowered | None:
    """The kernels of a product in a loop, of which one factor is the same in all steps: a separate kernel packs it.

    The loop runs that kernel before its first step only.

    Args:
        spec: The specification.
        inputs: The group's inputs.
        outputs: Its results.
        target: Processor to generate for.
        constant: Numbers of the inputs that are the same in all steps.

    Returns:
        The kernels; None if no factor is to be packed, or both.
    """
    if spec.convolution is not None:
        return None
    first, result = spec.parts[0], spec.results[0]
    p, transposed = oriented(problem_of(first), simplified_result(matrix_layout(result.dtype, result.view)))
    sources = (first.right.source, first.left.source) if transposed else (first.left.source, first.right.source)
    packed: tuple[tuple[str, int | str | bool], ...] = tuple(
        (side, PHASE) for side, source in zip("ab", sources, strict=True) if source in constant
    )
    if len(packed) != 1 or p.empty or choose(p, target).dots:
        return None
    # one block of k, where sums are short enough: what follows the product is then computed in registers
    whole = (("kc", p.k),) if p.k <= LONGEST else ()
    return lowered(spec, inputs, outputs, target, Alternative("packed once", blocks=packed + whole))


def _over(spec: Contract, made: Contraction, inputs: Sequence[Aval], result: Aval) -> frozenset[int]:
    """The inputs whose elements are read only to compute the result's element at the same position."""
    first = spec.parts[0]
    if not made.in_place:
        return frozenset()
    views = [(x.source, x.view) for x in spec.operands]
    others = [i for i, x in enumerate(inputs) if x.dtype == result.dtype and i not in (first.left.source, first.right.source)]
    return frozenset(i for i in others if [view for j, view in views if j == i] == [first.result])


def _gradient(g: Convolution, target: Target, how: Alternative) -> list[Contraction]:
    text = f"{g} {target}" if how is DEFAULT else f"{g} {target} {how}"
    name = f"conv_{g.direction}_{blake2b(text.encode(), digest_size=12).hexdigest()}"
    return input_gradient(g, target, name, how) if g.direction == INPUT else [weight_gradient(g, target, name, how)]


def _named(c: Contraction, kind: str) -> Contraction:
    """The same contraction, its functions named after a hash of their text."""
    name = f"{kind}_{blake2b(repr(c.functions).encode(), digest_size=12).hexdigest()}"
    functions = {k.replace(NAME, name): text.replace(f"@{NAME}", f"@{name}") for k, text in c.functions.items()}
    return replace(c, functions=functions, kernels=tuple(replace(k, name=k.name.replace(NAME, name)) for k in c.kernels))
