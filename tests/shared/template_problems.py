"""A problem for each GPU template: names of sizes and constants with values to draw from, and what NumPy or torch makes of it.

Of each tuple of values the first is that of the basic problem, which the template computes; with others it may not. Arrays are
made of the template's signature. ``agree`` runs a problem by the interpreter and compares all results with the reference, which
asserts what it expects of the operands' shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from firebrick.compiler.kernel.language.annotations import ArrayType, ConstantType
from firebrick.compiler.kernel.language.calls import HelperFunction
from firebrick.compiler.templates import (
    Template,
    TemplateProblem,
    attention,
    convolution,
    deltas,
    digit_counts,
    digit_scatter,
    input_gradient,
    key_gradients,
    product,
    query_gradient,
    row_reduction,
    scan,
    segmented_scatter,
    weight_gradient,
    window,
    with_operands,
)
from firebrick.compiler.templates.epilogues import add, larger
from firebrick.core.aval import Aval
from firebrick.core.dtypes import DType, dtype, float32

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
Constants = Mapping[str, Any]
SHARED = 48 << 10


@dataclass(frozen=True)
class Case:
    """A template with values to draw from.

    Attributes:
        template: The template.
        names: Values of the names of its sizes, and of numbers that sizes depend on.
        constants: Values of its constants.
        reference: (operands in float64 or as integers, constants, numbers that sizes depend on) → results.
        fill: Changes operands that are not just small whole numbers.
        tolerance: Relative; 0 where small whole numbers are computed exactly.
        whole: What of a result is compared.
        more: Constants that differ from the basic ones together.
    """

    template: Template = field(repr=False)
    names: dict[str, tuple[int, ...]]
    constants: dict[str, tuple[Any, ...]]
    reference: Callable[[Arrays, Constants, Mapping[str, int]], Arrays]
    fill: Callable[[np.random.Generator, Arrays, Constants], None] = lambda rng, arrays, constants: None
    tolerance: float = 0.0
    whole: Callable[[Array], Array] = lambda x: x
    more: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Posed:
    """Sizes, constants and dtypes of a problem.

    Attributes:
        case: Of the template.
        names: Values of sizes.
        constants: Values of constants.
        dtypes: Of the arrays that the signature gives none.
        shapes: Of arrays that have others than the sizes make them.
        alignment: Of addresses.
        shared_bytes: Of a group, at most.
    """

    case: Case = field(repr=False)
    names: dict[str, int]
    constants: dict[str, Any]
    dtypes: dict[str, str]
    shapes: dict[str, tuple[int, ...]]
    alignment: int = 16
    shared_bytes: int = SHARED

    @property
    def integers(self) -> dict[str, int]:
        return {n: self.names[n] for n in self.case.template.signature.static}

    def avals(self) -> dict[str, Aval]:
        """Shape and dtype of each array and number.

        Raises:
            ValueError: The sizes make none.
        """
        signature = self.case.template.signature
        known = {n: v for n, v in self.constants.items() if type(v) is int} | self.names
        found: dict[str, Aval] = {}
        for name, p in signature.parameters.items():
            if isinstance(p, ConstantType) or name in signature.static:
                continue
            own = p.dtype if p.dtype is not None else self.dtypes.get(name, "float32")
            of = own if isinstance(own, DType) else found[own].dtype if own in found else dtype(own)
            shape = self.shapes.get(name)
            if shape is None:
                shape = tuple(s.value(known) for s in p.sizes) if isinstance(p, ArrayType) else ()  # type: ignore[union-attr]
            if min(shape, default=0) < 0:
                raise ValueError(shape)
            found[name] = Aval(shape, of)
        return found

    def shaped(self) -> dict[str, tuple[int, ...]]:
        """The shapes of its arrays."""
        return {n: a.shape for n, a in self.avals().items()}

    def valid(self) -> bool:
        """Whether the template says that it computes it."""
        problem = TemplateProblem(self.avals(), self.integers, self.alignment, self.shared_bytes)
        return self.case.template.valid_for(problem, **self.constants)

    def operands(self, rng: np.random.Generator) -> Arrays:
        """Operands of small whole numbers, but those that the case fills."""
        made: Arrays = {}
        for name, a in self.avals().items():
            if name not in self.case.template.signature.results:
                low = 0 if a.dtype.kind in ("uint", "bool") else -3
                made[name] = rng.integers(low, 2 if a.dtype.kind == "bool" else 4, a.shape).astype(a.dtype.np)
        self.case.fill(rng, made, self.constants)
        return made

    def wanted(self, operands: Arrays) -> Arrays:
        """The results of the reference."""
        exact = {n: x.astype(np.float64) if dtype(x.dtype.name).kind == "float" else x for n, x in operands.items()}
        return self.case.reference(exact, self.constants, self.integers)

    def consistent(self, rng: np.random.Generator) -> bool:
        """Whether the reference takes the operands, and its results have the shapes that the problem has."""
        avals = self.avals()
        try:
            basic = replace(self, shapes={}).operands(rng)
            found = self.wanted({n: np.resize(x, avals[n].shape) for n, x in basic.items()})
        except (AssertionError, ValueError, RuntimeError, IndexError):
            return False
        return all(x.shape == avals[n].shape for n, x in found.items())

    def agree(self, rng: np.random.Generator) -> None:
        """Compare all results of the interpreter with those of the reference."""
        avals, operands = self.avals(), self.operands(rng)
        program = self.case.template.program({n: a.dtype.name for n, a in avals.items()}, **self.constants)
        found = program.interpreted(list(operands.values()), self.integers, checked=True)
        for (name, want), x in zip(self.wanted(operands).items(), found, strict=True):
            assert x.dtype == avals[name].dtype.np
            assert x.shape == avals[name].shape == want.shape
            rounded = want.astype(x.dtype).astype(np.float64)
            seen, expected = self.case.whole(x.astype(np.float64)), self.case.whole(rounded)
            np.testing.assert_allclose(seen, expected, self.case.tolerance, self.case.tolerance, err_msg=f"{name} of {self}")


def basic(case: Case) -> Posed:
    """The basic problem of a case."""
    return Posed(case, *({n: v[0] for n, v in values.items()} for values in (case.names, case.constants)), {}, {})


def drawn(case: Case, rng: np.random.Generator, constants: dict[str, Any] | None = None) -> Posed:
    """A problem of drawn sizes and drawn or given constants, most of which are the basic ones."""

    def one(values: tuple[Any, ...], often: float) -> Any:
        return values[0] if rng.random() < often else values[int(rng.integers(len(values)))]

    names = {n: one(v, 0.3) for n, v in case.names.items()}
    return Posed(case, names, constants or {n: one(v, 0.7) for n, v in case.constants.items()}, {}, {})


# references


def lined(x: Array, constants: Constants) -> Array:
    """An array whose last two axes are vectors, with one axis instead."""
    assert x.shape[-1] == constants["vector"]
    return x.reshape(*x.shape[:-2], x.shape[-2] * x.shape[-1])


def vectors(x: Array, constants: Constants) -> Array:
    """An array whose last axis is in vectors."""
    return x.reshape(*x.shape[:-1], x.shape[-1] // constants["vector"], constants["vector"])


def _row_reduction(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    return {"out": lined(a["x"], c).sum(1)}


def _scan(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    x = lined(a["x"], c)
    sums = np.cumsum(np.concatenate([a["start"][:, None], x], 1), 1)
    return {"out": vectors(sums[:, :-1] if c["exclusive"] else sums[:, 1:], c)}


def _matrices(x: Array, y: Array) -> Array:
    assert len(x) == len(y)
    return x @ y


def _product(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    return {"out": vectors(_matrices(lined(a["x"], c), lined(a["y"], c)), c)}


@HelperFunction
def scaled(value: Any, factor: Any) -> Any:
    return value * factor


@HelperFunction
def shifted(value: Any, by_row: Any, by_column: Any) -> Any:
    return value + by_row - by_column


@HelperFunction
def rectified(value: Any, bias: Any, residual: Any) -> Any:
    return max(value + bias, 0.0) + residual


def exactly(x: Array, *shape: int) -> Array:
    """An array that must have a shape."""
    assert x.shape == shape
    return x


def _product_of_operands(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    x, y = lined(a["x"], c), lined(a["y"], c)
    (batch, m, k), columns = x.shape, y.shape[2]
    left = x * exactly(a["row_scale"], m)[:, None]
    right = y + exactly(a["at_step"], k)[:, None] - exactly(lined(a["at_column"], c), columns)
    found = _matrices(left, right) + exactly(lined(a["bias"], c), columns)
    return {"out": vectors(np.maximum(found, 0) + exactly(lined(a["residual"], c), m, batch, columns).swapaxes(0, 1), c)}


def _geometry(c: Constants) -> dict[str, Any]:
    return {what: (c[f"{what}_h"], c[f"{what}_w"]) for what in ("stride", "padding", "dilation")}


def _convolved(x: Array, weight: Array, c: Constants) -> Array:
    shape = (weight.shape[0], x.shape[1], c["kernel_h"], c["kernel_w"])
    return torch.nn.functional.conv2d(torch.tensor(x), torch.tensor(weight.reshape(shape)), **_geometry(c)).numpy()


def _convolution(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    y = _convolved(a["x"], a["weight"], c)
    return {"out": y.reshape(*y.shape[:2], -1)}


def _convolution_of_operands(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    x = a["x"] * exactly(a["channel_scale"], a["x"].shape[1])[:, None, None]
    y = _convolved(x, a["weight"], c)
    y = y.reshape(*y.shape[:2], -1)
    return {"out": np.maximum(y + exactly(a["bias"], y.shape[1])[:, None], 0) + exactly(a["residual"], *y.shape)}


def _input_gradient(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    cotangent, weight = a["cotangent"], a["weight"]
    assert weight.shape[2] == c["kernel_h"] * c["kernel_w"]
    x = torch.zeros(len(cotangent), weight.shape[1], n["height"], n["width"], dtype=torch.float64, requires_grad=True)
    shape = (*weight.shape[:2], c["kernel_h"], c["kernel_w"])
    y = torch.nn.functional.conv2d(x, torch.tensor(weight.reshape(shape)), **_geometry(c))
    y.backward(torch.tensor(cotangent))
    assert x.grad is not None
    return {"out": x.grad.reshape(*x.shape[:2], -1).numpy()}


def _input_gradient_of_operands(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    found = _input_gradient(a, c, n)["out"]
    return {"out": found * exactly(a["channel_scale"], found.shape[1])[:, None]}


def _weight_gradient(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    x, cotangent = torch.tensor(a["x"]), a["cotangent"]
    weight = torch.zeros(cotangent.shape[1], x.shape[1], c["kernel_h"], c["kernel_w"], dtype=torch.float64, requires_grad=True)
    torch.nn.functional.conv2d(x, weight, **_geometry(c)).backward(torch.tensor(cotangent))
    assert weight.grad is not None
    out = np.zeros((c["splits"], len(weight), weight[0].numel()))
    out[0] = weight.grad.reshape(len(weight), -1).numpy()  # the other parts are added to it
    return {"out": out}


def _window(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    g, x = _geometry(c), a["x"]
    spread = [(d * (k - 1) + 1) for d, k in zip(g["dilation"], (c["kernel_h"], c["kernel_w"]), strict=True)]
    padded = np.pad(x, ((0, 0), *((p, p) for p in g["padding"])), constant_values=-9)
    view = np.lib.stride_tricks.sliding_window_view(padded, spread, (1, 2))
    view = view[:, :: g["stride"][0], :: g["stride"][1], :: g["dilation"][0], :: g["dilation"][1]]
    return {"out": view.max((3, 4)).reshape(len(x), -1)}


def _shown(a: Arrays, c: Constants) -> tuple[Array, Array]:
    """The scores of attention, and which of them a query sees."""
    query, key = lined(a["query"], c), lined(a["key"], c)
    assert len(query) == len(key)
    scores = query @ key.swapaxes(1, 2) * a["scale"]
    seen = np.broadcast_to(a["mask"], scores.shape)
    if c["causal"]:
        seen = seen & (np.arange(scores.shape[2]) <= np.arange(scores.shape[1])[:, None])
    return scores, seen


def _logarithms(a: Arrays, c: Constants) -> Array:
    scores, seen = _shown(a, c)
    with np.errstate(divide="ignore"):
        return np.log((np.exp(scores) * seen).sum(2))  # type: ignore[no-any-return]


def _attention(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    scores, seen = _shown(a, c)
    logarithms = _logarithms(a, c)
    weights = np.exp(scores - np.maximum(logarithms, -99)[..., None]) * seen
    return {"out": vectors(_matrices(weights, lined(a["value"], c)), c), "logarithms": logarithms}


def _slopes(a: Arrays, c: Constants) -> tuple[Array, Array]:
    """The weights of attention, and the gradients of the scores."""
    scores, seen = _shown(a, c)
    rows = scores.shape[:2]
    base, delta = exactly(a["logarithms"], *rows), exactly(a["delta"], *rows)
    weights = np.exp(scores - np.maximum(base, -99)[..., None]) * seen
    by_weight = _matrices(lined(a["cotangent"], c), lined(a["value"], c).swapaxes(1, 2))
    return weights, weights * (by_weight - delta[..., None]) * a["scale"]


def _query_gradient(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    return {"out": vectors(_slopes(a, c)[1] @ lined(a["key"], c), c)}


def _key_gradients(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    weights, slopes = (x.swapaxes(1, 2) for x in _slopes(a, c))
    by_key, by_value = slopes @ lined(a["query"], c), weights @ lined(a["cotangent"], c)
    return {"key_out": vectors(by_key, c), "value_out": vectors(by_value, c)}


def _deltas(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    _shown(a, c)
    exactly(a["logarithms"], *a["query"].shape[:2])
    assert a["value"].shape == (*a["key"].shape[:2], *a["result"].shape[2:])
    return {"out": (lined(a["cotangent"], c) * exactly(lined(a["result"], c), *lined(a["cotangent"], c).shape)).sum(2)}


def _scattered(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    out, values, order, starts = a["target"].copy(), a["values"], a["order"], a["starts"]
    assert (len(order), len(starts), values.shape[1]) == (len(values), len(out) + 1, out.shape[1])
    for row in range(len(out)):
        out[row] += values[order[starts[row] : starts[row + 1]]].sum(0)
    return {"out": out}


def _digits(keys: Array, c: Constants) -> tuple[Array, Array]:
    """The digit of each key, and how many of each a group has."""
    each = c["group_size"] * c["each"]
    found = (keys >> np.uint32(c["shift"])) & 15
    counts = np.zeros((16, -(-len(keys) // each)), np.int64)
    np.add.at(counts, (found, np.arange(len(keys)) // each), 1)
    return found, counts


def _digit_counts(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    return {"counts": _digits(a["keys"], c)[1]}


def _digit_scatter(a: Arrays, c: Constants, n: Mapping[str, int]) -> Arrays:
    found, counts = _digits(a["keys"], c)
    order = np.argsort(found, kind="stable")
    exactly(a["starts"], *counts.shape)
    return {"keys_out": a["keys"][order], "values_out": exactly(a["values"], len(order))[order]}


# operands that are no small whole numbers


def _heads(rng: np.random.Generator, a: Arrays, c: Constants) -> None:
    for name, x in a.items():
        if x.dtype != np.bool_ and x.ndim:
            a[name] = rng.normal(size=x.shape).astype(x.dtype)
    a["scale"][...] = 0.5
    if "logarithms" in a:
        exact = {n: x.astype(np.float64) if x.dtype != np.bool_ else x for n, x in a.items()}
        a["logarithms"] = _logarithms(exact, c).astype(a["logarithms"].dtype)


def _segments(rng: np.random.Generator, a: Arrays, c: Constants) -> None:
    items, rows = len(a["values"]), len(a["target"])
    a["order"] = rng.permutation(items)
    to = np.sort(rng.integers(0, max(1, rows), items))
    a["starts"] = np.searchsorted(to, np.arange(rows + 1))


def _keys(rng: np.random.Generator, a: Arrays, c: Constants) -> None:
    a["keys"] = rng.integers(0, 1 << 32, len(a["keys"]), np.uint32)
    if "starts" in a:
        counts = _digits(a["keys"], c)[1].ravel()
        a["starts"] = (np.cumsum(counts) - counts).astype(np.int32).reshape(a["starts"].shape)


_TILES = {
    "group_size": (16, 32, 64, 8), "tile_m": (16, 32, 24, 8), "tile_n": (16, 32, 24, 8), "tile_k": (4, 8, 6, 1),
    "rows": (4, 8, 2, 6), "columns": (4, 8, 2, 6), "of": (float32,),
}  # fmt: skip
_FOURS = ({"rows": 6, "tile_m": 24, "vector": 1}, {"columns": 6, "tile_n": 24, "vector": 1})
_LARGER = {"tile_m": 32, "tile_n": 32}
_VECTORS = (
    _LARGER | {"rows": 8, "columns": 8, "vector": 8, "tile_k": 8}, _LARGER | {"rows": 8, "columns": 8, "tile_k": 6},
    _LARGER | {"group_size": 64},
)  # fmt: skip
_GEOMETRY = {
    f"{what}_{axis}": values
    for axis in "hw"
    for what, values in (("kernel", (3, 1)), ("stride", (1, 2)), ("padding", (1, 0)), ("dilation", (1, 2)))
}
_VECTOR = {"vector": (4, 1, 2, 3, 8)}
_IMAGES = {"batch": (3, 1, 2), "channels": (3, 1, 5), "height": (6, 1, 9), "width": (5, 2, 8), "outputs": (4, 1, 17)}
_HEADS = {
    "group_size": (32, 16, 64, 48), "tile_m": (16, 32, 48, 8), "tile_n": (16, 32, 96, 24), "features": (16, 32, 96, 8),
    "vector": (1, 2, 4, 8), "causal": (False, True), "of": (float32,),
}  # fmt: skip
_FEATURES = (
    {"features": 64, "vector": 4}, {"features": 128, "vector": 8}, {"tile_m": 48, "group_size": 128},
    {"features": 48, "group_size": 96}, {"tile_m": 32, "group_size": 512},
    {"group_size": 24, "tile_m": 48, "features": 48},
)  # fmt: skip
_TOKENS = {
    "batch": (3, 1), "queries": (5, 1, 19), "keys": (6, 1, 34), "d_vectors": (5, 1, 12, 40), "e_vectors": (7, 1, 12),
    "mask_batch": (3, 1), "mask_queries": (5, 1), "mask_keys": (6, 1),
}  # fmt: skip
_DIGITS = {"group_size": (32, 64, 48, 128), "each": (3, 1, 2), "shift": (4, 0, 28, 3, 32)}
_MATRICES = {"batch": (3, 1, 2), "m": (5, 1, 18), "k_vectors": (3, 0, 1, 7), "n_vectors": (6, 1, 9)}
CASES = {
    "row reduction": Case(
        row_reduction(add, 0.0), {"rows": (5, 1, 33), "vectors": (7, 0, 1, 70)},
        {"group_size": (64, 32, 96, 48), "lanes": (32, 1, 8, 64, 48), "of": (float32,)} | _VECTOR, _row_reduction,
        more=({"group_size": 96, "lanes": 48},),
    ),
    "scan": Case(
        scan(add, 0.0), {"rows": (3, 1), "vectors": (9, 0, 1, 70)},
        {"group_size": (32, 64, 48, 16), "exclusive": (False, True), "of": (float32,)} | _VECTOR, _scan,
    ),
    "product": Case(product(), _MATRICES, _TILES | _VECTOR, _product, more=_FOURS + _VECTORS),
    "product with operands": Case(
        product(
            with_operands(scaled, row_scale="m"), with_operands(shifted, at_step="k", at_column="n_vectors, vector"),
            with_operands(rectified, bias="n_vectors, vector", residual="m, batch, n_vectors, vector"),
        ),
        _MATRICES, _TILES | _VECTOR, _product_of_operands,
    ),
    "convolution": Case(convolution(), _IMAGES, _TILES | _GEOMETRY, _convolution),
    "convolution with operands": Case(
        convolution(
            with_operands(scaled, channel_scale="channels"),
            with_operands(rectified, bias="outputs", residual="batch, outputs, positions"),
        ),
        _IMAGES, _TILES | _GEOMETRY, _convolution_of_operands,
    ),
    "gradient of a convolution by its input": Case(input_gradient(), _IMAGES, _TILES | _GEOMETRY, _input_gradient),
    "gradient of a convolution by its input, with operands": Case(
        input_gradient(with_operands(scaled, channel_scale="channels")), _IMAGES, _TILES | _GEOMETRY,
        _input_gradient_of_operands,
    ),
    "gradient of a convolution by its weight": Case(
        weight_gradient(), _IMAGES, _TILES | _GEOMETRY | {"splits": (2, 1, 5)}, _weight_gradient, whole=lambda x: x.sum(0),
    ),
    "window": Case(
        window(larger, -9.0), {"planes": (3, 1), "height": (6, 1, 9), "width": (5, 2, 8)},
        _GEOMETRY | {"group_size": (32, 1, 7), "of": (float32,)}, _window,
    ),
    "attention": Case(attention(), _TOKENS, _HEADS, _attention, _heads, 1e-5, more=_FEATURES),
    "gradient of attention by the query": Case(
        query_gradient(), _TOKENS, _HEADS, _query_gradient, _heads, 1e-5, more=_FEATURES
    ),
    "gradients of attention by key and value": Case(
        key_gradients(), _TOKENS, _HEADS, _key_gradients, _heads, 1e-5, more=_FEATURES
    ),
    "sums of cotangent times result": Case(
        deltas(), _TOKENS, {"group_size": (64, 32, 48), "causal": (False, True), "of": (float32,)} | _VECTOR, _deltas, _heads,
        1e-5,
    ),
    "segmented scatter": Case(
        segmented_scatter(add, 0.0), {"rows": (3, 1, 9), "columns": (5, 1, 40), "items": (8, 0, 50)},
        {"group_size": (32, 64, 16, 48), "across": (4, 1, 32, 64, 3), "of": (float32,)}, _scattered, _segments,
    ),
    "counts of digits": Case(digit_counts(), {"n": (150, 0, 1, 400)}, _DIGITS, _digit_counts, _keys),
    "scatter by digits": Case(digit_scatter(), {"n": (150, 0, 1, 400)}, _DIGITS, _digit_scatter, _keys),
}  # fmt: skip
"""Each template, by what it computes."""
