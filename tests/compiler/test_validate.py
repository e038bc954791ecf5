"""Validated fusion: what a generator is given is refused unless it is what the nodes mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from forced import kernels_of_any_size

import firebrick as fb
from firebrick.backends.decorators import VerificationError
from firebrick.compiler.fusion import groups as fusing
from firebrick.compiler.fusion.fused import FUSED
from firebrick.compiler.fusion.groups import fuse
from firebrick.compiler.fusion.validate import doubt
from firebrick.compiler.spec.description import LoopNest, Product
from firebrick.compiler.targets.llvm import following, lower
from firebrick.compiler.targets.llvm.target import Target
from firebrick.core.aval import Aval
from firebrick.core.errors import KernelCompileError
from firebrick.ir import Graph
from firebrick.ops import OPS
from firebrick.scalar.expr import load, walk

F, N = fb.float32, 64


def add(g: Graph, name: str, *inputs: int, **params: Any) -> int:
    return g.add(OPS[name], *inputs, **params)[0]


def body_of(*inputs: Aval, build: Callable[[Graph], tuple[int, ...]]) -> Graph:
    g = Graph(list(inputs))
    g.outputs = build(g)
    return g


def described(body: Graph) -> LoopNest:
    """What the generator is given for a body."""
    return lower._Lowering(body).described()


def product_of(body: Graph, monkeypatch: pytest.MonkeyPatch) -> Product:
    found: list[Product] = []

    def keep(b: Graph, d: Product) -> str:
        found.append(d)
        return doubt(b, d)

    with monkeypatch.context() as patch:
        patch.setattr(following, "doubt", keep)
        following.lowered(body, Target.host())
    return found[0]


def softmax_of_sums() -> Graph:
    """Rows of [N, N]: softmax, less the row's mean, times a vector aligned with columns."""

    def build(g: Graph) -> tuple[int, ...]:
        y = add(g, "softmax", add(g, "add", 0, 1), axis=1)
        centred = add(g, "subtract", y, add(g, "mean", y, axes=(1,), keepdims=True))
        return add(g, "multiply", centred, 2), add(g, "sum", y, axes=(1,), keepdims=False)

    return body_of(Aval((N, N), F), Aval((N, N), F), Aval((N,), F), build=build)


def test_a_description_of_the_nodes_is_proved() -> None:
    body = softmax_of_sums()
    assert doubt(body, described(body)) == ""


def _other(reads: Any, k: int, **fields: Any) -> Any:
    return tuple(replace(r, **fields) if i == k else r for i, r in enumerate(reads))


def _instead(d: LoopNest, number: int, old: Any, new: Any) -> LoopNest:
    """Every load of ``old`` in a result replaced by ``new``."""
    from firebrick.compiler.targets.llvm.column import replaced

    w = d.writes[number]
    known = {e: load(new, e.dtype) for e in walk([w.expression]) if e.op == "load" and e.value == old}
    changed = replace(w, expression=replaced(w.expression, known))
    return replace(d, writes=tuple(changed if i == number else x for i, x in enumerate(d.writes)))


WRONG: dict[str, Callable[[LoopNest], LoopNest]] = {
    "another axis for a vector": lambda d: replace(d, reads=_other(d.reads, 2, strides=(1, 0))),
    "a broadcast dropped": lambda d: replace(d, reads=_other(d.reads, 2, strides=(N, 1))),
    "a transposed operand": lambda d: replace(d, reads=_other(d.reads, 0, strides=(1, N))),
    "an operand from its second row on": lambda d: replace(d, reads=_other(d.reads, 1, offset=N)),
    "another operand": lambda d: replace(d, reads=_other(d.reads, 0, source=1)),
    "another dtype": lambda d: replace(d, reads=_other(d.reads, 0, dtype="int32")),
    "reductions along the other axis": lambda d: replace(d, axes=(0,)),
    "a transposed result": lambda d: replace(d, writes=_other(d.writes, 0, strides=(1, N))),
    "a result written over itself": lambda d: replace(d, writes=_other(d.writes, 0, strides=(0, 1))),
    "a result written to half of its places": lambda d: replace(d, writes=_other(d.writes, 0, strides=(N // 2, 1))),
    "a result of another dtype": lambda d: replace(d, writes=_other(d.writes, 1, dtype="float64")),
    "one operand for another": lambda d: _instead(d, 0, 1, 0),
    "results exchanged": lambda d: replace(d, writes=(d.writes[0], replace(d.writes[1], expression=load(0, "float32")))),
    "fewer rows": lambda d: replace(d, shape=(N // 2, N)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_description_is_refused(name: str) -> None:
    body = softmax_of_sums()
    assert doubt(body, WRONG[name](described(body))) != ""


def test_a_mean_of_another_count_is_refused() -> None:
    body = body_of(Aval((N, 4, N), F), build=lambda g: (add(g, "mean", 0, axes=(0, 2), keepdims=False),))
    other = body_of(Aval((N, N, 4), F), build=lambda g: (add(g, "mean", 0, axes=(0, 2), keepdims=False),))
    assert doubt(body, described(body)) == ""
    assert doubt(other, replace(described(body), shape=(N, N, 4))) != ""


def test_a_read_at_an_index_names_the_axis_and_the_line_of_its_fault() -> None:
    body = body_of(Aval((N, N), F), Aval((N,), fb.int64), build=lambda g: (add(g, "exp", add(g, "take", 0, 1, axis=0)),))
    d = described(body)
    assert doubt(body, d) == ""
    assert doubt(body, replace(d, faults=((N, "elsewhere"),))) != ""
    assert doubt(body, replace(d, faults=())) != ""
    columns = body_of(Aval((N, N), F), Aval((N,), fb.int64), build=lambda g: (add(g, "exp", add(g, "take", 0, 1, axis=1)),))
    assert doubt(columns, described(columns)) == ""
    assert doubt(columns, d) != ""


def test_views_that_end_at_the_same_elements_are_proved_and_others_are_not() -> None:
    def build(g: Graph) -> tuple[int, ...]:
        turned = add(g, "reshape", add(g, "permute", 0, axes=(1, 0)), shape=(8, 8, 1, N))
        back = add(g, "flip", add(g, "reshape", turned, shape=(N, N)), axes=(1,))
        return (add(g, "add", back, back),)

    body = body_of(Aval((N, N), F), build=build)
    d = described(body)
    assert d.reads[0].strides == (1, -N)
    assert doubt(body, d) == ""
    assert doubt(body, replace(d, reads=_other(d.reads, 0, strides=(-1, N), offset=N - 1))) != ""


def linear() -> Graph:
    """relu(x @ wᵀ + bias) of square matrices, and the product itself."""

    def build(g: Graph) -> tuple[int, ...]:
        y = add(g, "matmul", 0, add(g, "permute", 1, axes=(1, 0)))
        return y, add(g, "relu", add(g, "add", y, 2))

    return body_of(Aval((N, N), F), Aval((N, N), F), Aval((N,), F), build=build)


def _tile(d: Product, **fields: Any) -> Product:
    return replace(d, reads=(replace(d.reads[0], **fields),))


WRONG_PRODUCTS: dict[str, Callable[[Product], Product]] = {
    "a transposed left operand": lambda d: replace(d, left=replace(d.left, rows=((N, 1),), columns=((N, N),))),
    "a right operand that is not transposed": lambda d: replace(d, right=replace(d.right, rows=((N, 1),), columns=((N, N),))),
    "operands exchanged": lambda d: replace(d, left=d.right, right=d.left),
    "a bias of rows": lambda d: _tile(d, rows=((N, 1),), columns=((N, 0),)),
    "another bias": lambda d: _tile(d, offset=1),
    "a transposed result": lambda d: replace(
        d, writes=(d.writes[0], (d.writes[1][0], replace(d.writes[1][1], rows=((N, 1),), columns=((N, N),))))
    ),
    "the epilogue before its bias": lambda d: replace(d, writes=(d.writes[0], (d.writes[0][0], d.writes[1][1]))),
    "results exchanged": lambda d: replace(
        d, writes=((d.writes[1][0], d.writes[0][1]), (d.writes[0][0], d.writes[1][1]))
    ),
    "fewer rows": lambda d: replace(d, m=N // 2),
}  # fmt: skip


def test_a_contraction_and_what_follows_it_are_proved(monkeypatch: pytest.MonkeyPatch) -> None:
    body = linear()
    assert doubt(body, product_of(body, monkeypatch)) == ""


@pytest.mark.parametrize("name", WRONG_PRODUCTS)
def test_a_wrong_contraction_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = linear()
    assert doubt(body, WRONG_PRODUCTS[name](product_of(body, monkeypatch))) != ""


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
    assert "groups not fused for want of a proof: 1" in text
    assert "multiply, max, subtract: result 0 (float32[64,64]) is not proved to be that of subtract" in text


def test_what_is_proved_is_not_listed() -> None:
    f = fb.jit(lambda t: t / fb.sum(t, axis=1, keepdims=True))
    assert "want of a proof" not in f.explain(fb.asarray(square()))


def test_nodes_of_a_refused_group_become_kernels_one_by_one_or_stay_operations() -> None:
    g = Graph([Aval((N, N), F)])
    g.outputs = (add(g, "exp", add(g, "add", 0, 0)),)
    one_by_one = fuse(g, lower.kind_of, proved=lambda body: len(body.nodes) == 1)
    with kernels_of_any_size():
        one_by_one = fuse(g, lower.kind_of, proved=lambda body: len(body.nodes) == 1)
        assert [n.op for n in one_by_one.nodes] == [FUSED, FUSED]
        assert [n.op.name for n in fuse(g, lower.kind_of, proved=lambda body: False).nodes] == ["add", "exp"]


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
