"""``einsum`` and ``outer``: sums of products named by letters, mapped on ``matmul`` with batch axes.

A *plan* holds everything that subscripts and shapes decide: which diagonals to take, which pairs of operands to contract
in which order (chosen by opt_einsum), and how each is transposed and reshaped for it. Plans are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Never

from firebrick.core.autocast import narrow
from firebrick.core.aval import Shape
from firebrick.core.bind import bind
from firebrick.core.dtypes import no_common_dtype, promote
from firebrick.core.errors import ConfigError, OperandError, ShapeError
from firebrick.core.operands import check_devices, check_operand, describe
from firebrick.core.other_arguments import answers_arguments, unknown_argument
from firebrick.core.tensor import Tensor
from firebrick.functions.diagonals import diagonal
from firebrick.functions.elementwise import astype
from firebrick.functions.movement import permute_dims, reshape
from firebrick.ops import OPS

Labels = tuple[str, ...]


@dataclass(frozen=True)
class Prepared:
    """What happens to one operand first: diagonals of repeated labels, then a shape without broadcast axes of size 1."""

    diagonals: tuple[tuple[int, int], ...]
    shape: Shape


@dataclass(frozen=True)
class Side:
    """One operand of a contraction: axes to sum alone, then their order, then three axes (batch, rows, columns)."""

    summed: tuple[int, ...]
    order: tuple[int, ...]
    shape: Shape


@dataclass(frozen=True)
class Contraction:
    """Two operands (by their places in the list of what is left), and the shape of their product."""

    places: tuple[int, int]
    left: Side
    right: Side
    multiplies: bool
    shape: Shape


@dataclass(frozen=True)
class Plan:
    """How an einsum runs."""

    operands: tuple[Prepared, ...]
    steps: tuple[Contraction, ...]
    summed: tuple[int, ...]
    order: tuple[int, ...]


def einsum(subscripts: str, /, *operands: Tensor, **_other: Never) -> Tensor:
    """Sum of products of tensors over named axes: Einstein's convention.

    Each operand's axes have a letter; a letter that the result lacks is summed over. A letter that occurs twice in one
    operand takes its diagonal; ``...`` stands for any number of axes that broadcast.

    Args:
        subscripts: Such as ``"bij,bjk->bik"``. Without ``->`` the result has the axes of ``...``, then the letters that
            occur once, in alphabetical order.
        operands: Numeric tensors, which promote to their common dtype. Axes of size 1 broadcast.

    Returns:
        Tensor with the axes after ``->``.

    Raises:
        ConfigError: The subscripts are malformed.
        ShapeError: They do not fit the operands, or a letter has two sizes.

    Example:
        >>> import firebrick as fb
        >>> x = fb.asarray([[1.0, 2.0], [3.0, 4.0]])
        >>> fb.einsum("ij,jk->ik", x, x).tolist()
        [[7.0, 10.0], [15.0, 22.0]]
        >>> fb.einsum("ii", x).item()
        5.0

    Source: Smith, Gray, "opt_einsum", Journal of Open Source Software 3 (2018) 753, for the order of contractions.
    """
    if _other:
        raise unknown_argument(einsum, _other)
    if not isinstance(subscripts, str):
        raise OperandError("einsum: subscripts is a string", repr(subscripts)[:80], 'pass e.g. "ij,jk->ik"')
    for i, x in enumerate(operands):
        check_operand("einsum", x, "numeric", f"operands[{i}]")
    check_devices("einsum", operands=operands)
    operands = tuple(map(narrow, operands))
    plan = _plan(subscripts, tuple(x.shape for x in operands))
    goal = operands[0].dtype
    for i, x in enumerate(operands):
        common = promote(goal, x.dtype)
        if common is None:
            raise no_common_dtype("einsum", [(describe(f"operands[{k}]", operands[k]), operands[k].dtype) for k in (0, i)])
        goal = common
    left = [_prepare(astype(x, goal, copy=False), p) for x, p in zip(operands, plan.operands, strict=True)]
    for step in plan.steps:
        a, b = (left[k] for k in step.places)
        left = [x for k, x in enumerate(left) if k not in step.places]
        left.append(_contract(a, b, step))
    result = _permuted(_summed(left[0], plan.summed), plan.order)
    return reshape(result, result.shape) if result is operands[0] else result


def _prepare(x: Tensor, p: Prepared) -> Tensor:
    for a, b in p.diagonals:
        x = diagonal(x, axis1=a, axis2=b)
    return x if x.shape == p.shape else reshape(x, p.shape)


def _summed(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    return bind(OPS["sum"], (x,), {"axes": axes, "keepdims": False}) if axes else x


def _permuted(x: Tensor, order: tuple[int, ...]) -> Tensor:
    return x if order == tuple(range(x.ndim)) else permute_dims(x, order)


def _side(x: Tensor, s: Side) -> Tensor:
    x = _permuted(_summed(x, s.summed), s.order)
    return x if x.shape == s.shape else reshape(x, s.shape)


def _contract(a: Tensor, b: Tensor, step: Contraction) -> Tensor:
    op = OPS["multiply" if step.multiplies else "matmul"]
    y: Tensor = bind(op, (_side(a, step.left), _side(b, step.right)), {})
    return y if y.shape == step.shape else reshape(y, step.shape)


# planning


@lru_cache(maxsize=1024)
def _plan(subscripts: str, shapes: tuple[Shape, ...]) -> Plan:
    terms, output = _parse(subscripts, shapes)
    sizes = _sizes(subscripts, terms, shapes)
    prepared, current = [], []
    for labels, shape in zip(terms, shapes, strict=True):
        p, rest = _preparation(labels, shape, sizes)
        prepared.append(p)
        current.append(rest)
    steps = []
    for places in _order(current, output, sizes):
        a, b = (current[k] for k in places)
        current = [labels for k, labels in enumerate(current) if k not in places]
        needed = {*output, *(label for labels in current for label in labels)}
        step, labels = _contraction(places, a, b, needed, output if not current else None, sizes)
        steps.append(step)
        current.append(labels)
    last = current[0]
    kept = [label for label in last if label in output]
    return Plan(
        tuple(prepared),
        tuple(steps),
        tuple(k for k, label in enumerate(last) if label not in output),
        tuple(kept.index(label) for label in output),
    )


def _bad(expected: str, subscripts: str, remedy: str) -> ConfigError:
    return ConfigError(f"einsum: {expected}", repr(subscripts), remedy)


def _parse(subscripts: str, shapes: Sequence[Shape]) -> tuple[list[Labels], Labels]:
    """The labels of each operand and of the result. Axes of ``...`` are called ``.0``, ``.1`` … from the last on."""
    text = subscripts.replace(" ", "")
    inputs, arrow, result = text.partition("->")
    written = inputs.split(",")
    for term in (*written, result):
        if not all(c.isalpha() for c in term.replace("...", "", 1)):
            raise _bad("subscripts are letters, commas, one ... a term and one ->", subscripts, 'write e.g. "...ij,jk->...ik"')
    if len(written) != len(shapes):
        raise ShapeError(
            f"einsum: {subscripts!r} names {len(written)} operands", f"{len(shapes)} operands", "give each operand its term"
        )
    terms, widest = [], 0
    for i, (term, shape) in enumerate(zip(written, shapes, strict=True)):
        letters = len(term.replace("...", ""))
        spare = len(shape) - letters
        if spare < 0 or (spare and "..." not in term):
            raise ShapeError(
                f"einsum: term {term!r} of {subscripts!r} needs {'at least ' if '...' in term else ''}{letters} axes",
                f"operands[{i}] of shape {shape}",
                "name every axis once, or write ... for the rest",
            )
        terms.append(_spelt(term, spare))
        widest = max(widest, spare)
    if arrow:
        if "..." not in result and widest:
            raise _bad("the result must have the axes of ... too", subscripts, "write ... after ->, or name and sum the axes")
        output = _spelt(result, widest)
    else:
        counts: dict[str, int] = {}
        for label in (label for term in terms for label in term if label[0] != "."):
            counts[label] = counts.get(label, 0) + 1
        output = (*_spelt("...", widest), *sorted(label for label, n in counts.items() if n == 1))
    known = {label for term in terms for label in term}
    if len(set(output)) != len(output) or not known.issuperset(output):
        raise _bad("each letter of the result stands there once, and in an operand", subscripts, "check what follows ->")
    return terms, output


def _spelt(term: str, spare: int) -> Labels:
    """A term as labels, with ``spare`` ones for its ellipsis."""
    head, dots, tail = term.partition("...")
    return (*head, *(f".{k}" for k in reversed(range(spare)) if dots), *tail)


def _sizes(subscripts: str, terms: Sequence[Labels], shapes: Sequence[Shape]) -> dict[str, int]:
    """The size of each label; 1 broadcasts."""
    sizes: dict[str, int] = {}
    for i, (labels, shape) in enumerate(zip(terms, shapes, strict=True)):
        within: dict[str, int] = {}
        for label, n in zip(labels, shape, strict=True):
            if within.setdefault(label, n) != n or (n != 1 and sizes.get(label, 1) not in (1, n)):
                other = within[label] if within[label] != n else sizes[label]
                name = "an axis of ..." if label[0] == "." else f"{label!r}"
                raise ShapeError(
                    f"einsum: {name} of {subscripts!r} must have one size", f"{other} and {n} (operands[{i}] of shape {shape})",
                    "check the subscripts against the shapes",
                )  # fmt: skip
            if n != 1 or label not in sizes:
                sizes[label] = n
    return sizes


def _preparation(labels: Labels, shape: Shape, sizes: dict[str, int]) -> tuple[Prepared, Labels]:
    """The diagonals of repeated labels, and the axes that stay: those of size 1 that broadcast are dropped."""
    diagonals = []
    named = list(zip(labels, shape, strict=True))
    while True:
        seen = [label for label, _ in named]
        pair = next(((seen.index(label), k) for k, label in enumerate(seen) if seen.index(label) < k), None)
        if pair is None:
            break
        diagonals.append(pair)
        kept = named[pair[0]]
        named = [item for k, item in enumerate(named) if k not in pair] + [kept]
    stay = [(label, n) for label, n in named if n == sizes[label]]
    return Prepared(tuple(diagonals), tuple(n for _, n in stay)), tuple(label for label, _ in stay)


def _order(terms: Sequence[Labels], output: Labels, sizes: dict[str, int]) -> list[tuple[int, int]]:
    """Which two of the operands that are left to contract next; a product goes to the end of the list."""
    if len(terms) <= 2:
        return [(0, 1)] if len(terms) == 2 else []
    from opt_einsum import contract_path, get_symbol

    symbols = {label: get_symbol(k) for k, label in enumerate(sizes)}
    written = ",".join("".join(symbols[label] for label in labels) for labels in terms)
    equation = f"{written}->{''.join(symbols[label] for label in output)}"
    path = contract_path(equation, *(tuple(sizes[label] for label in labels) for labels in terms), shapes=True)[0]
    pairs = []
    count = len(terms)
    for places in path:
        rest = sorted(places)
        while len(rest) > 1:  # some paths contract several at once
            pairs.append((rest[0], rest[1]))
            count -= 1
            rest = [*(k - 2 for k in rest[2:]), count - 1]
    return pairs


def _contraction(
    places: tuple[int, int], a: Labels, b: Labels, needed: set[str], final: Labels | None, sizes: dict[str, int]
) -> tuple[Contraction, Labels]:
    """A product of two operands, and its labels: batch, then rows, then columns."""
    if final is not None and _leads(b, a, final):
        return _contraction((places[1], places[0]), b, a, needed, None, sizes)
    alone = [tuple(k for k, label in enumerate(x) if label not in needed and label not in y) for x, y in ((a, b), (b, a))]
    a, b = (tuple(label for k, label in enumerate(x) if k not in gone) for x, gone in ((a, alone[0]), (b, alone[1])))
    batch = [label for label in a if label in b and label in needed]
    shared = [label for label in a if label in b and label not in needed]
    rows = [label for label in a if label not in b]
    columns = [label for label in b if label not in a]

    def size(labels: Sequence[str]) -> int:
        return prod(sizes[label] for label in labels)

    lead = tuple(sizes[label] for label in batch)
    left = Side(alone[0], tuple(a.index(v) for v in (*batch, *rows, *shared)), (*lead, size(rows), size(shared)))
    right_labels = (*batch, *shared, *columns)
    right = Side(alone[1], tuple(b.index(v) for v in right_labels), (*lead, size(shared), size(columns)))
    labels = (*batch, *rows, *columns)
    shape = tuple(sizes[label] for label in labels)
    return Contraction(places, left, right, not shared, shape), labels


def _leads(b: Labels, a: Labels, output: Labels) -> bool:
    """Whether the result begins, after what both have, with what only ``b`` has: then ``b`` gives the rows."""
    own = [label for label in output if (label in a) != (label in b)]
    return bool(own) and own[0] in b


@answers_arguments
def outer(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Every product of an element of x1 with one of x2; both are flattened.

    Args:
        x1: Numeric tensor of n elements.
        x2: Numeric tensor of m elements.

    Returns:
        Tensor [n, m].

    Example:
        >>> import firebrick as fb
        >>> fb.outer(fb.asarray([1, 2]), fb.asarray([3, 4])).tolist()
        [[3, 4], [6, 8]]
    """
    check_operand("outer", x1, "numeric", "x1")
    check_operand("outer", x2, "numeric", "x2")
    check_devices("outer", x1=x1, x2=x2)
    if promote(x1.dtype, x2.dtype) is None:
        raise no_common_dtype("outer", [(describe("x1", x1), x1.dtype), (describe("x2", x2), x2.dtype)])
    return bind(OPS["multiply"], (reshape(x1, (x1.size, 1)), reshape(x2, (1, x2.size))), {})  # type: ignore[no-any-return]
