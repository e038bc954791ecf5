"""Validated fusion: what a generator is given is refused unless it is what the nodes mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from forced import kernels_of_any_size

import firebrick as fb
from firebrick.backends.decorators import VerificationError
from firebrick.compiler.fusion import groups as fusing
from firebrick.compiler.fusion.addressing import address_of
from firebrick.compiler.fusion.convolved import _injective, doubt_convolution
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.spec.base import structure, with_binding
from firebrick.compiler.spec.contract import Contract
from firebrick.compiler.spec.faults import Site
from firebrick.compiler.spec.kinds import spec_of
from firebrick.compiler.spec.nest import Fold, Map, Nest
from firebrick.compiler.targets.llvm import lower
from firebrick.compiler.targets.llvm.cpu_policy import POLICY
from firebrick.core.aval import Aval
from firebrick.core.errors import KernelCompileError
from firebrick.core.views import Digit, View, row_major, strided
from firebrick.ir import CONSTANT, Graph
from firebrick.ops import OPS
from firebrick.scalar.expr import load, walk

F, N = fb.float32, 64


def add(g: Graph, name: str, *inputs: int, **params: Any) -> int:
    return g.add(OPS[name], *inputs, **params)[0]


def body_of(*inputs: Aval, build: Callable[[Graph], tuple[int, ...]]) -> Graph:
    g = Graph(list(inputs))
    g.outputs = build(g)
    return g


def nest_of(body: Graph) -> Nest:
    """What the generator is given for a body."""
    found = spec_of(body)
    assert isinstance(found, Nest)
    return found


def contract_of(body: Graph) -> Contract:
    found = spec_of(body)
    assert isinstance(found, Contract)
    return found


def softmax_of_sums() -> Graph:
    """Rows of [N, N]: softmax, less the row's mean, times a vector aligned with columns."""

    def build(g: Graph) -> tuple[int, ...]:
        y = add(g, "softmax", add(g, "add", 0, 1), axis=1)
        centred = add(g, "subtract", y, add(g, "mean", y, axes=(1,), keepdims=True))
        return add(g, "multiply", centred, 2), add(g, "sum", y, axes=(1,), keepdims=False)

    return body_of(Aval((N, N), F), Aval((N, N), F), Aval((N,), F), build=build)


def test_a_description_of_the_nodes_is_proved() -> None:
    body = softmax_of_sums()
    assert doubt(body, nest_of(body)) == ""


def _other(reads: Any, k: int, **fields: Any) -> Any:
    return tuple(replace(r, **fields) if i == k else r for i, r in enumerate(reads))


def _instead(d: Nest, number: int, old: Any, new: Any) -> Nest:
    """Every load of ``old`` in a result replaced by ``new``."""
    from firebrick.compiler.targets.llvm.column import replaced

    w = d.results[number]
    known = {e: load(new, e.dtype) for e in walk([w.expression]) if e.op == "load" and e.value == old}
    changed = replace(w, expression=replaced(w.expression, known))
    return replace(d, results=tuple(changed if i == number else x for i, x in enumerate(d.results)))


def _square(strides: tuple[int, ...], offset: int = 0) -> View:
    return strided((N, N), strides, offset)


def _fewer(d: Nest) -> Nest:
    half = (N // 2, N)
    operands = [replace(x, view=strided(half, x.view.strides or ())) for x in d.operands]
    results = [replace(x, view=strided(half, x.view.strides or ())) for x in d.results]
    return replace(d, domain=half, operands=tuple(operands), results=tuple(results))


WRONG: dict[str, Callable[[Nest], Nest]] = {
    "another axis for a vector": lambda d: replace(d, operands=_other(d.operands, 2, view=_square((1, 0)))),
    "a broadcast dropped": lambda d: replace(d, operands=_other(d.operands, 2, view=_square((N, 1)))),
    "a transposed operand": lambda d: replace(d, operands=_other(d.operands, 0, view=_square((1, N)))),
    "an operand from its second row on": lambda d: replace(d, operands=_other(d.operands, 1, view=_square((N, 1), N))),
    "another operand": lambda d: replace(d, operands=_other(d.operands, 0, source=1)),
    "another dtype": lambda d: replace(d, operands=_other(d.operands, 0, dtype="int32")),
    "reductions along the other axis": lambda d: Fold(d.domain, (0,), d.operands, d.results),
    "no reductions": lambda d: Map(d.domain, (), d.operands, d.results),
    "a transposed result": lambda d: replace(d, results=_other(d.results, 0, view=_square((1, N)))),
    "a result written over itself": lambda d: replace(d, results=_other(d.results, 0, view=_square((0, 1)))),
    "a result written to half of its elements": lambda d: replace(d, results=_other(d.results, 0, view=_square((N // 2, 1)))),
    "a result from its second element on": lambda d: replace(d, results=_other(d.results, 0, view=_square((N, 1), 1))),
    "a result of another dtype": lambda d: replace(d, results=_other(d.results, 1, dtype="float64")),
    "one operand for another": lambda d: _instead(d, 0, 1, 0),
    "results exchanged": lambda d: replace(d, results=(d.results[0], replace(d.results[1], expression=load(0, "float32")))),
    "fewer rows": _fewer,
    "a view of another shape than the domain": lambda d: replace(d, operands=_other(d.operands, 0, view=row_major((N, N, 1)))),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_description_is_refused(name: str) -> None:
    body = softmax_of_sums()
    assert doubt(body, WRONG[name](nest_of(body)))


def test_a_mean_of_another_count_is_refused() -> None:
    body = body_of(Aval((N, 4, N), F), build=lambda g: (add(g, "mean", 0, axes=(0, 2), keepdims=False),))
    other = body_of(Aval((N, N, 4), F), build=lambda g: (add(g, "mean", 0, axes=(0, 2), keepdims=False),))
    assert doubt(body, nest_of(body)) == ""
    assert doubt(other, with_binding(nest_of(body), structure(nest_of(other))[1]))


def test_a_read_at_an_index_names_the_axis_and_the_line_of_its_fault() -> None:
    body = body_of(Aval((N, N), F), Aval((N,), fb.int64), build=lambda g: (add(g, "exp", add(g, "take", 0, 1, axis=0)),))
    d = nest_of(body)
    assert doubt(body, d) == ""
    assert doubt(body, replace(d, sites=(Site("take", N, "elsewhere"),)))
    assert doubt(body, replace(d, sites=()))
    columns = body_of(Aval((N, N), F), Aval((N,), fb.int64), build=lambda g: (add(g, "exp", add(g, "take", 0, 1, axis=1)),))
    assert doubt(columns, nest_of(columns)) == ""
    assert doubt(columns, d)


def test_views_that_end_at_the_same_elements_are_proved_and_others_are_not() -> None:
    def build(g: Graph) -> tuple[int, ...]:
        turned = add(g, "reshape", add(g, "permute", 0, axes=(1, 0)), shape=(8, 8, 1, N))
        back = add(g, "flip", add(g, "reshape", turned, shape=(N, N)), axes=(1,))
        return (add(g, "add", back, back),)

    body = body_of(Aval((N, N), F), build=build)
    d = nest_of(body)
    assert d.operands[0].view.strides == (1, -N)
    assert doubt(body, d) == ""
    assert doubt(body, replace(d, operands=_other(d.operands, 0, view=_square((-1, N), N - 1))))


def linear() -> Graph:
    """relu(x @ wᵀ + bias) of square matrices, and the product itself."""

    def build(g: Graph) -> tuple[int, ...]:
        y = add(g, "matmul", 0, add(g, "permute", 1, axes=(1, 0)))
        return y, add(g, "relu", add(g, "add", y, 2))

    return body_of(Aval((N, N), F), Aval((N, N), F), Aval((N,), F), build=build)


def _part(d: Contract, **fields: Any) -> Contract:
    return replace(d, parts=(replace(d.parts[0], **fields),))


def _turned(d: Contract, side: str) -> Contract:
    factor = getattr(d.parts[0], side)
    return _part(d, **{side: replace(factor, view=factor.view.permuted((1, 0)))})


WRONG_CONTRACTIONS: dict[str, Callable[[Contract], Contract]] = {
    "a transposed left operand": lambda d: _turned(d, "left"),
    "a right operand that is not transposed": lambda d: _turned(d, "right"),
    "operands exchanged": lambda d: _part(d, left=d.parts[0].right, right=d.parts[0].left),
    "a bias of rows": lambda d: replace(d, operands=_other(d.operands, 0, view=_square((1, 0)))),
    "another bias": lambda d: replace(d, operands=_other(d.operands, 0, view=_square((0, 1), 1))),
    "a transposed result": lambda d: replace(d, results=_other(d.results, 1, view=_square((1, N)))),
    "the epilogue before its bias": lambda d: replace(d, results=_other(d.results, 1, expression=d.results[0].expression)),
    "results exchanged": lambda d: replace(d, results=(
        replace(d.results[0], expression=d.results[1].expression), replace(d.results[1], expression=d.results[0].expression)
    )),
    "fewer rows": lambda d: _part(d, m=N // 2),
    "fewer terms": lambda d: _part(d, k=N // 2),
}  # fmt: skip


def test_a_contraction_and_what_follows_it_are_proved() -> None:
    body = linear()
    assert doubt(body, contract_of(body)) == ""


@pytest.mark.parametrize("name", WRONG_CONTRACTIONS)
def test_a_wrong_contraction_is_refused(name: str) -> None:
    body = linear()
    assert doubt(body, WRONG_CONTRACTIONS[name](contract_of(body)))


# convolutions of equal sizes: three images of three channels and 3 × 3 elements, three kernels of as many

CONV = {"stride": (1, 2), "padding": ((1, 1), (0, 2)), "dilation": (2, 1), "groups": 1}
OTHERS = {"conv": {}, "conv_input": {"size": (6, 6)}, "conv_weight": {"kernel": (2, 3)}}


def convolution(name: str, **changes: Any) -> Graph:
    """A convolution, or one of its gradients; ``changes`` of its parameters."""
    params = CONV | changes
    image, weight = Aval((3, 3, 6, 6), F), Aval((3, 3, 2, 3), F)
    result = OPS["conv"].infer(image, weight, **params)
    operands = {"conv": (image, weight), "conv_input": (result, weight), "conv_weight": (image, result)}[name]
    return body_of(*operands, build=lambda g: (add(g, name, 0, 1, **params, **OTHERS[name]),))


def _factor(d: Contract, number: int, side: str, **fields: Any) -> Contract:
    parts = list(d.parts)
    parts[number] = replace(parts[number], **{side: replace(getattr(parts[number], side), **fields)})
    return replace(d, parts=tuple(parts))


WRONG_CONVOLUTIONS: dict[str, Callable[[Contract], Contract]] = {
    "no bounds": lambda d: _factor(d, 0, "right", bounds=()),
    "a bound of another size": lambda d: _factor(
        d, 0, "right", bounds=(replace(d.parts[0].right.bounds[0], size=7), *d.parts[0].right.bounds[1:])
    ),
    "an image from its second element on": lambda d: _factor(
        d, 0, "right", view=replace(d.parts[0].right.view, offset=d.parts[0].right.view.offset + 1)
    ),
    "another element of the weight": lambda d: _factor(d, 0, "left", view=replace(d.parts[0].left.view, offset=1)),
    "operands exchanged": lambda d: _factor(_factor(d, 0, "left", source=0), 0, "right", source=1),
    "fewer terms": lambda d: replace(d, parts=(replace(d.parts[0], k=d.parts[0].k - 1), *d.parts[1:])),
    "a part twice": lambda d: replace(d, parts=(*d.parts, d.parts[0])),
    "another dtype": lambda d: _factor(d, 0, "left", dtype="float64"),
    "arithmetic of another dtype": lambda d: replace(d, dtype="float64"),
    "something else of the elements": lambda d: replace(d, results=_other(d.results, 0, expression=-load(0, "float32"))),
    "no geometry": lambda d: replace(d, convolution=None),
    "the geometry of another stride": lambda d: replace(d, convolution=replace(d.convolution, stride=(1, 1))),
    "the geometry of another padding": lambda d: replace(d, convolution=replace(d.convolution, padding=((1, 1), (1, 1)))),
    "the geometry of another dtype": lambda d: replace(d, convolution=replace(d.convolution, dtype="float64")),
}  # fmt: skip


def _one_part(d: Contract, number: int, **fields: Any) -> Contract:
    return replace(d, parts=tuple(replace(p, **fields) if k == number else p for k, p in enumerate(d.parts)))


def _bounds(d: Contract, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Contract:
    return _factor(d, 0, "right", bounds=change(d.parts[0].right.bounds))


def _fewer_terms(d: Contract) -> Contract:
    """The sum over the first index alone of its first digit that has several."""
    number = next(k for k, x in enumerate(d.parts[0].left.view.axes[-1]) if x.size > 1)
    size = d.parts[0].left.view.axes[-1][number].size
    for side in ("left", "right"):
        view = getattr(d.parts[0], side).view
        last = tuple(x._replace(size=1) if k == number else x for k, x in enumerate(view.axes[-1]))
        d = _factor(d, 0, side, view=replace(view, axes=(*view.axes[:-1], last)))
    return _one_part(d, 0, k=d.parts[0].k // size)


WRONG_PARTS: dict[str, Callable[[Contract], Contract]] = {
    "nothing": lambda d: d,
    "a part less": lambda d: replace(d, parts=d.parts[1:]),
    "other products omitted": lambda d: _one_part(d, 0, omits=not d.parts[0].omits),
    "two groups": lambda d: _one_part(d, 0, batch=(2,)),
    "fewer rows": lambda d: _one_part(d, 0, m=1),
    "a result one further": lambda d: _one_part(
        d, 0, result=replace(d.parts[0].result, offset=d.parts[0].result.offset + 1)
    ),
    "a result over itself": lambda d: _one_part(d, 0, result=replace(
        d.parts[0].result, axes=tuple(tuple(x._replace(stride=0) for x in axis) for axis in d.parts[0].result.axes)
    )),
    "no terms": lambda d: _one_part(d, 0, k=0),
    "the last part of no terms": lambda d: _one_part(
        _factor(_factor(d, len(d.parts) - 1, "left", view=row_major((1, d.parts[-1].m, 0))), len(d.parts) - 1, "right",
                view=row_major((1, d.parts[-1].n, 0)), bounds=()), len(d.parts) - 1, k=0,
    ),
    "fewer of the first of several sums": _fewer_terms,
    "a bound less": lambda d: _bounds(d, lambda b: b[1:]),
    "the last bound less": lambda d: _bounds(d, lambda b: b[:-1]),
    "a bound twice": lambda d: _bounds(d, lambda b: (*b, b[0])),
    "a bound that begins elsewhere": lambda d: _bounds(d, lambda b: (replace(b[0], start=b[0].start + 1), *b[1:])),
    "bounds in another order": lambda d: _bounds(d, lambda b: b[::-1]),
    "the image for the weight": lambda d: _factor(d, 0, "left", view=d.parts[0].right.view),
    "parts in another order": lambda d: replace(d, parts=d.parts[::-1]),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_a_convolution_is_proved_and_another_one_is_not(name: str) -> None:
    body = convolution(name)
    assert doubt(body, contract_of(body)) == ""
    for change in ({"stride": (2, 1)}, {"dilation": (1, 1), "padding": ((1, 0), (0, 2))}, {"padding": ((0, 2), (0, 2))}):
        other = convolution(name, **change)
        assert doubt(other, contract_of(other)) == ""
        assert doubt(body, contract_of(other))


@pytest.mark.parametrize("wrong", WRONG_CONVOLUTIONS)
@pytest.mark.parametrize("name", OTHERS)
def test_a_wrong_convolution_is_refused(name: str, wrong: str) -> None:
    body = convolution(name)
    assert doubt(body, WRONG_CONVOLUTIONS[wrong](contract_of(body)))


def reasons() -> str:
    """What is said of each wrong specification."""
    nest, contraction = softmax_of_sums(), linear()
    found = [f"{name}: {doubt(nest, change(nest_of(nest)))}" for name, change in WRONG.items()]
    found += [f"{name}: {doubt(contraction, change(contract_of(contraction)))}" for name, change in WRONG_CONTRACTIONS.items()]
    for name, wrong in product(OTHERS, WRONG_CONVOLUTIONS):
        body = convolution(name)
        found.append(f"{name}, {wrong}: {doubt(body, WRONG_CONVOLUTIONS[wrong](contract_of(body)))}")
    # the parts alone, as if a geometry had them
    for name, (wrong, change) in product(OTHERS, {**WRONG_CONVOLUTIONS, **WRONG_PARTS}.items()):
        body = convolution(name)
        n, d = body.nodes[-1], change(contract_of(body))
        found.append(f"parts of {name}, {wrong}: {doubt_convolution(n, [a.shape for a in body.inputs], d, address_of)}")
        for other in ({"stride": (2, 1)}, {"dilation": (1, 1), "padding": ((1, 0), (0, 2))}, {"padding": ((0, 2), (0, 2))}):
            if wrong == "no bounds":
                d = contract_of(convolution(name, **other))
                found.append(f"parts of {name}, {other}: {doubt_convolution(n, [a.shape for a in body.inputs], d, address_of)}")
    return "\n".join(found) + "\n"


def test_the_reason_is_what_is_wrong() -> None:
    assert reasons() == Path(__file__).with_name("reasons.txt").read_text(encoding="utf-8")


def test_digits_that_reach_an_address_twice_are_not_distinct() -> None:
    """Each pair and triple of digits of small sizes and strides, against all of its addresses."""
    choices = [Digit(n, s) for n in (1, 2, 3, 4) for s in (-3, -2, -1, 0, 1, 2, 3, 4, 6, 8)]
    distinct = 0
    for some in [*product(choices, repeat=2), *product(choices[::3], repeat=3)]:
        addresses = [
            sum(i * d.stride for i, d in zip(index, some, strict=True)) for index in np.ndindex(*(d.size for d in some))
        ]
        if _injective(some):
            distinct += 1
            assert len(set(addresses)) == len(addresses), some
    assert distinct > 400
    assert _injective((Digit(3, 12), Digit(4, 3), Digit(3, 1)))


def _with_float8(g: Graph) -> tuple[int, ...]:
    (number,) = g.add(CONSTANT, value=np.ones((), ml_dtypes.float8_e4m3fn))
    return (add(g, "multiply", 0, add(g, "cast", number, dtype=F)),)


def unknown() -> dict[str, tuple[Graph, Graph]]:
    """Groups without a proof, by the reason, and the groups whose specifications they are held against."""
    x, at = Aval((N, N), F), Aval((2, N), fb.int64)
    exp = body_of(x, build=lambda g: (add(g, "exp", 0),))
    several = body_of(x, at, Aval((2, N), F), build=lambda g: (add(g, "scatter_add", 0, 1, 2, axis=0),))
    return {
        "sort has no index map": (body_of(x, build=lambda g: g.add(OPS["sort"], 0, axis=1, descending=False)[:1]), exp),
        "a constant of several elements": (
            body_of(x, build=lambda g: (add(g, "add", 0, g.add(CONSTANT, value=np.ones(N, np.float32))[0]),)), exp
        ),
        "scatter_add with several updates of one row": (several, exp),
        "no scalar expressions of float8_e4m3fn": (body_of(x, build=_with_float8), exp),
    }  # fmt: skip


REASONS = (
    "sort has no index map", "a constant of several elements", "scatter_add with several updates of one row",
    "no scalar expressions of float8_e4m3fn",
)  # fmt: skip


@pytest.mark.parametrize("reason", REASONS)
def test_what_the_checker_does_not_know_is_not_proved(reason: str) -> None:
    body, other = unknown()[reason]
    assert reason in doubt(body, spec_of(other))


# in the engine


@contextmanager
def joined_by_shape_alone() -> Iterator[None]:
    """Fusion as it was when it mistook rows for columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fusing._Groups, "_aligned", lambda *_: True)
        yield


def square() -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).normal(size=(N, N)).astype(np.float32)


def test_a_group_that_means_another_axis_is_an_error_in_the_tests_that_names_the_nodes() -> None:
    with (
        joined_by_shape_alone(),
        pytest.raises(KernelCompileError, match=r"sum, divide: result 0 .* that of divide .* differs by"),
    ):
        fb.jit(lambda t: t / fb.sum(t, axis=1))(fb.asarray(square()))


def test_elsewhere_it_is_not_fused_and_explained() -> None:
    x = square()
    wide = x.astype(np.float64)
    with joined_by_shape_alone(), fb.config.scope(verify_graphs=False):
        f = fb.jit(lambda t: t - fb.max(t * t, axis=1))
        np.testing.assert_allclose(f(fb.asarray(x)).numpy(), wide - (wide * wide).max(axis=1), rtol=1e-6, atol=1e-6)
        text = f.explain(fb.asarray(x))
    assert "groups not fused, without a proof: 1" in text
    assert "multiply, max, subtract: result 0 (float32[64,64]) is not proved to be that of subtract" in text


def test_what_is_proved_is_not_listed() -> None:
    f = fb.jit(lambda t: t / fb.sum(t, axis=1, keepdims=True))
    assert "want of a proof" not in f.explain(fb.asarray(square()))


def test_nodes_of_a_refused_group_become_kernels_one_by_one_or_stay_operations() -> None:
    g = Graph([Aval((N, N), F)])
    g.outputs = (add(g, "exp", add(g, "add", 0, 0)),)
    one_by_one = fuse(g, lower.kind_of, POLICY, proved=lambda body: len(body.nodes) == 1)
    with kernels_of_any_size():
        one_by_one = fuse(g, lower.kind_of, POLICY, proved=lambda body: len(body.nodes) == 1)
        assert [n.op for n in one_by_one.nodes] == [FUSED, FUSED]
        assert [n.op.name for n in fuse(g, lower.kind_of, POLICY, proved=lambda body: False).nodes] == ["add", "exp"]


def test_verify_names_the_group_that_is_wrong_and_the_lines_that_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lower, "doubt", lambda *_: "")  # a checker that trusts

    def f(t: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        u = fb.exp(t)
        return u - fb.sum(u, axis=1), u @ t

    with joined_by_shape_alone(), fb.verify("cpu"), pytest.raises(VerificationError) as caught:
        fb.jit(f)(fb.asarray(square()))
    text = str(caught.value)
    assert "wrong is result 1 of the group exp (" in text
    assert "test_validate.py" in text
    assert "its kernel is wrong" in text
