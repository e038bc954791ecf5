"""Samples of ops for GPU templates: those of the op table, and drawn ones at sizes that the table lacks.

``PYTHONPATH=src:tests/shared python -m template_samples`` computes all of them, and prints how many of each op the templates
take.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from template_launches import Launches, Unserved
from template_ops import FIRST_RESULT, OPS_BY_TEMPLATES

from firebrick.core.dtypes import dtype
from firebrick.core.op import Sample
from firebrick.ops import OPS
from firebrick.ops.accuracy import check_results, run_reference
from firebrick.ops.convolution import places_of
from firebrick.ops.declare import values
from firebrick.testing.cases import avals_of, samples_of

Array = np.ndarray[Any, Any]
_WITNESSED = 128
"""The interpreter computes samples of up to so many elements of operands."""


@dataclass(frozen=True)
class Posed:
    """A sample of an op; ``number`` is that of the constants, addresses and witnesses that it is computed with."""

    op: str
    dtype: str
    sample: Sample = field(repr=False)
    number: int

    @property
    def name(self) -> str:
        return f"{self.op} {self.dtype} '{self.sample.name}'"


_THIN = {
    "attention": ("float32",), "attention_gradient": ("float32",), "cumulative_prod": ("float32", "float16", "int32"),
    "cumulative_min": ("float64", "bfloat16", "int64"), "top_k": ("float32", "int8", "uint64"),
}  # fmt: skip
"""The dtypes of thinned samples, where compiling takes long, or where another op differs by the operation only."""
_STEPS = {"attention_gradient": 4}
"""Of the samples of this op, every fourth is in the thinned ones; of others every third."""

# drawn samples: operands' shapes and parameters, whatever the dtype

_ROWS = ((37, 41), (16, 16), (1, 53), (5, 256), (17, 1))
_MATRICES = (
    ((37, 41), (41, 29)), ((2, 16, 16), (2, 16, 16)), ((1, 53), (53, 1)), ((3, 0, 5), (3, 5, 7)), ((67, 1), (1, 64)),
    ((2, 5, 8), (8, 12)), ((32, 32), (32, 32)),
)  # fmt: skip
_IMAGES = (
    # image, weight, stride, padding, dilation
    ((2, 3, 17, 13), (5, 3, 3, 3), (1, 1), (1, 1), (1, 1)),
    ((1, 5, 7, 11), (17, 5, 1, 1), (2, 3), (0, 0), (1, 1)),
    ((4, 4, 4, 4), (4, 4, 4, 4), (1, 1), (3, 2), (1, 1)),
    ((1, 1, 19, 16), (16, 1, 3, 5), (2, 1), (2, 0), (3, 2)),
    ((3, 1, 1), (1, 1, 1), (1,), (0,), (1,)),
)
_HEADS = (
    # leading axes, queries, keys, features, features of values, causal
    ((2,), 17, 37, 19, 23, False),
    ((1,), 32, 32, 32, 32, True),
    ((2, 3), 16, 16, 16, 16, False),
    ((), 1, 1, 1, 1, True),
)
_WINDOWS = (
    ((1, 3, 17, 13), (3, 3), (2, 2), (1, 1)), ((2, 2, 8, 8), (8, 8), (8, 8), (0, 0)), ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0)),
    ((0, 2, 5, 5), (2, 2), (1, 1), (0, 0)), ((1, 2, 37), (5,), (3,), (2,)),
)  # fmt: skip


def _of_shapes(name: str, rng: np.random.Generator, of: str) -> Iterable[tuple[tuple[Array, ...], dict[str, Any]]]:
    """Operands and parameters."""
    if name == "matmul":
        for a, b in _MATRICES:
            yield (values(rng, of, a), values(rng, of, b)), {}
    elif name in ("conv", "conv_input", "conv_weight"):
        for xs, ws, stride, padding, dilation in _IMAGES:
            params = {"stride": stride, "padding": tuple((p, p) for p in padding), "dilation": dilation}
            places = places_of(xs[2:], ws[2:], *params.values())
            shapes = {"x": xs, "w": ws, "g": (xs[0], ws[0], *places)}
            which = {"conv": "xw", "conv_input": "gw", "conv_weight": "xg"}[name]
            more = {"conv": {}, "conv_input": {"size": xs[2:]}, "conv_weight": {"kernel": ws[2:]}}[name]
            yield tuple(values(rng, of, shapes[k], -1, 1) for k in which), params | {"groups": 1} | more
    elif name.startswith("attention"):
        for lead, n, m, d, e, causal in _HEADS:
            shapes = [(*lead, n, d), (*lead, m, d), (*lead, m, e)]
            shapes = [(*lead, n, e), *shapes] if name == "attention_gradient" else shapes
            mask = rng.random((n, m)) < 0.8
            yield (*(values(rng, of, s) for s in shapes), mask), {"scale": 0.3, "causal": causal}
    elif name in ("sum", "mean", "prod", "max", "min", "any", "all"):
        low, high = (0.99, 1.01) if name == "prod" else (-2.0, 2.0)
        for shape in _ROWS:
            yield (values(rng, of, shape, low, high),), {"axes": (1,), "keepdims": False}
    elif name.startswith("cumulative"):
        low, high = (0.99, 1.01) if name == "cumulative_prod" else (-2.0, 2.0)
        for k, shape in enumerate(_ROWS):
            yield (values(rng, of, shape, low, high),), {"axis": 1, "reverse": k % 2 == 1}
    elif name in ("sort", "top_k"):
        for k, shape in enumerate(((3, 97), (2, 96), (16, 16), (1, 1), (2, 0))):
            params = {"axis": 1, "descending": k % 2 == 1} if name == "sort" else {"k": shape[1] // 2, "axis": 1}
            yield (values(rng, of, shape),), params if name == "sort" else params | {"largest": k % 2 == 0}
    elif name == "index_add":
        for (rows, columns), items in (((17, 37), 41), ((32, 32), 32), ((1, 1), 1), ((3, 64), 0), ((2, 5), 151)):
            at = rng.integers(-rows, rows, items)
            yield (values(rng, of, (rows, columns)), at, values(rng, of, (items, columns))), {"axis": 0}
    elif name.startswith("scatter"):
        for rows, columns, items in ((5, 37, 61), (16, 16, 16), (1, 1, 1), (3, 7, 0), (1, 3, 101)):
            at = rng.integers(-columns, columns, (rows, items))
            params = {"axis": 1, "mode": "max"} if name == "scatter_reduce" else {"axis": 1}
            yield (values(rng, of, (rows, columns)), at, values(rng, of, (rows, items))), params
    else:
        for shape, kernel, stride, padding in _WINDOWS:
            params = {"kernel": kernel, "stride": stride, "padding": tuple((p, p) for p in padding)}
            x, ones = values(rng, of, shape), (1,) * len(kernel)
            if name == "max_pool_gradient":
                params |= {"dilation": ones}
                at = OPS["max_pool"].reference(x, **params)[1]
                yield (values(rng, of, at.shape), at), params | {"size": shape[2:]}
            else:
                yield (x,), params | ({"dilation": ones} if name == "max_pool" else {})


def drawn_samples(name: str, of: str) -> list[Sample]:
    """Samples of sizes that are 0, 1, equal, prime, multiples of tiles and not."""
    rng = np.random.default_rng(len(name))
    made = _of_shapes(name, rng, of)
    return [Sample(x, p, False, f"drawn, {', '.join(str(a.shape) for a in x)}") for x, p in made]


def posed(name: str, thin: bool) -> list[Posed]:
    """The samples of an op, at all dtypes, or thinned: some, at one dtype of each kind, which take turns."""
    op, found = OPS[name], []
    for k, of in enumerate(op.dtypes):
        kind = [d for d in _THIN.get(name, op.dtypes) if dtype(d).kind == dtype(of).kind] if thin else [of]
        for n, sample in enumerate([*samples_of(op, of, 0), *drawn_samples(name, of)]):
            turn, rest = divmod(n, _STEPS.get(name, 3) if thin else 1)
            if kind and not rest and kind[turn % len(kind)] == of:
                # not the number of the turn: so each dtype has every choice at some sample
                found.append(Posed(name, of, sample, 3 * n // 2 + (0 if thin else k)))
    return found


@dataclass
class Share:
    """How many samples of an op the templates compute.

    Attributes:
        computed: Number of those computed.
        refused: Number of those that are not, by reason.
        templates: Names of the templates that were launched.
    """

    computed: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    templates: set[str] = field(default_factory=set)


def compute(p: Posed, share: Share) -> None:
    """Compute a sample, compare it with the op's reference within the op's tolerance, and count it."""
    op, sample = OPS[p.op], p.sample
    small = sum(np.size(x) for x in sample.inputs) <= _WITNESSED
    launches = Launches(p.number if p.number % 4 == 1 else 0, p.number % 3 > 0, 2 if small and p.number % 4 == 0 else 0)
    try:
        found = OPS_BY_TEMPLATES[p.op](launches, sample.inputs, sample.params)
    except Unserved as e:
        share.refused[str(e)] = share.refused.get(str(e), 0) + 1
        return
    share.computed += 1
    share.templates |= launches.templates
    want, avals = run_reference(op, sample.inputs, sample.params), avals_of(op, sample)[1]
    count = 1 if p.op in FIRST_RESULT else len(want)
    assert len(found) == count, p.name
    for x, aval in zip(found, avals, strict=False):
        assert (x.shape, x.dtype) == (aval.shape, aval.dtype.np), p.name
    worst = check_results(op, sample.inputs, sample.params, found, want[:count], sample.edges)
    assert worst.ok, f"{p.name} is off by {worst}"


def share_of(name: str, thin: bool) -> Share:
    """Compute the samples of an op."""
    share = Share()
    for p in posed(name, thin):
        compute(p, share)
    return share


def size_classes(samples: Iterable[Sample]) -> Counter[str]:
    """How many samples have sizes of each class."""
    found: Counter[str] = Counter()
    for s in samples:
        shapes = [np.shape(x) for x in s.inputs]
        sizes = {n for shape in shapes for n in shape}
        found.update(
            what
            for what, holds in {
                "0": 0 in sizes,
                "1": 1 in sizes,
                "equal sizes": any(len([n for n in shape if n > 1]) > len({n for n in shape if n > 1}) for shape in shapes),
                "an odd prime": bool(sizes & {5, 7, 11, 13, 17, 19, 23, 29, 37, 41, 53, 67, 97, 101, 151}),
                "a multiple of 16": any(n % 16 == 0 < n for n in sizes),
                "no multiple of 16": any(n > 16 and n % 16 for n in sizes),
            }.items()
            if holds
        )
    return found


def main() -> int:
    """Print a row for each op: its templates, how many samples they compute, and how many not, by reason."""
    print("| op | templates | samples | not computed |\n| --- | --- | --: | --- |")
    for name in OPS_BY_TEMPLATES:
        s = share_of(name, "thin" in sys.argv)
        refused = ", ".join(f"{n} {reason}" for reason, n in s.refused.items())
        print(f"| `{name}` | {', '.join(f'`{t}`' for t in sorted(s.templates))} | {s.computed} | {refused} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
