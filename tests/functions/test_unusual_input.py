"""Input that few programs give: nothing to work on, objects of other libraries, numbers too large, values not known yet."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb

V, M, I = fb.asarray([1.0, 2.0, 3.0]), fb.ones((2, 3)), fb.asarray([0, 1])  # noqa: E741
SCORES = fb.log_softmax(fb.ones((4, 1, 3)))


class Foreign:
    """An object with DLPack's methods, on a kind of device, that exports nothing."""

    def __init__(self, kind: int) -> None:
        self.kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, 0

    def __dlpack__(self, **_: Any) -> Any:
        raise BufferError("nothing to export")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: fb.chunk(V, 1.5), fb.ShapeError, "chunk: chunks is an int ≥ 1"),
        (lambda: fb.asarray(np.ma.masked_array([1.0, 2.0], [True, False])), fb.OperandError, "arrays without a mask"),
        (lambda: fb.asarray([fb.ones(2), fb.ones(3)]), fb.ShapeError, r"need equal shapes\nReceived: \(2,\), \(3,\)"),
        (lambda: fb.from_dlpack(Foreign(99)), fb.OperandError, "device type 99"),
        (lambda: fb.from_dlpack(Foreign(1), copy=False), BufferError, "nothing to export"),
        (lambda: fb.full(1, 10**400), fb.DTypeError, "fill_value must lie in the range of int64"),
        (lambda: fb.full(1, 10**400, dtype=fb.float32), fb.DTypeError, "must fit into a float\nReceived: an int of 1329 bits"),
        (lambda: fb.jit(lambda x: fb.full(2, x))(V), fb.OperandError, "fill_value is a number"),
        (lambda: fb.jit(lambda x: fb.full(2, x, dtype=fb.float32))(fb.asarray(1j)), fb.DTypeError, "need a complex dtype"),
        (lambda: fb.arange(1 << 58), fb.OutOfMemoryError, "arange"),
        (lambda: fb.ctc_loss(SCORES, fb.ones((1, 1)), [4], [1]), fb.DTypeError, "targets needs an integer dtype"),
        (lambda: fb.ctc_loss(SCORES, I[1:], fb.ones(1), [1]), fb.DTypeError, "input_lengths needs an integer dtype"),
        (lambda: fb.ctc_loss(SCORES, I[1:], [4], fb.ones(1)), fb.DTypeError, "target_lengths needs an integer dtype"),
        (
            lambda: fb.jit(lambda n: fb.ctc_loss(SCORES, I[1:], [4], n))(I[1:]),
            fb.FirebrickError,
            "where each target begins needs",
        ),
        (lambda: fb.jit(lambda n: fb.ctc_loss(SCORES, I[1:], [n], [1]))(4.0), fb.DTypeError, "input_lengths need an integer"),
        (
            lambda: fb.ctc_loss(SCORES.to("meta"), I[1:].to("meta"), [4], I[1:].to("meta")),
            fb.UnsupportedError,
            "on the meta device targets are",
        ),
        (lambda: fb.fft.fftn(M, s=4), fb.ShapeError, "fftn: s is a list with the length of each axis"),
        (lambda: fb.linalg.multi_dot([M, np.ones((3, 2))]), fb.OperandError, r"arrays\[1\]"),
        (lambda: fb.jit(lambda x, d: fb.huber_loss(x, x, delta=d))(V, 1.0), fb.FirebrickError, "huber_loss: delta"),
        (lambda: fb.linalg.pinv(M, rtol=I[0]), fb.DTypeError, "pinv: rtol needs a floating dtype"),
        (lambda: fb.moveaxis(M, (0, 1), (0,)), fb.ShapeError, "as many distinct destinations"),
        (lambda: fb.moveaxis(M, (0, 0), (0, 1)), fb.ShapeError, "as many distinct destinations"),
        (lambda: fb.moveaxis(M, (0, 1), (1, 1)), fb.ShapeError, "as many distinct destinations"),
        (lambda: fb.quantile(V, ["half"]), fb.OperandError, "quantile: q is a number"),
    ],
)
def test_it_is_refused_with_the_remedy(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_a_cast_may_move_too() -> None:
    moved = fb.astype(V, fb.float64, device="cpu:1")
    assert (moved.dtype, str(moved.device), moved.tolist()) == (fb.float64, "cpu:1", [1.0, 2.0, 3.0])


def test_a_value_may_have_more_axes_of_size_one_than_what_it_is_put_into(device: str) -> None:
    x = fb.zeros((2, 3), device=device)
    x[0] = fb.asarray([[[1.0, 2.0, 3.0]]], device=device)
    assert x.tolist() == [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]
    with pytest.raises(fb.ShapeError, match="value must broadcast"):
        x[0] = fb.ones((2, 1, 3), device=device)


def test_targets_that_are_all_empty_are_certain_after_blanks_alone(device: str) -> None:
    scores = fb.log_softmax(fb.asarray(np.random.default_rng(0).normal(size=(4, 2, 3)), device=device))
    none = fb.asarray(np.zeros(0, np.int64), device=device)
    losses = fb.ctc_loss(scores, none, [4, 2], [0, 0], reduction="none").numpy()
    host = scores.numpy()
    np.testing.assert_allclose(losses, [-host[:, 0, 0].sum(), -host[:2, 1, 0].sum()], rtol=1e-12)
    assert fb.ctc_loss(scores[:, :0], none, [], [], reduction="none").shape == (0,)


def test_checks_of_values_are_left_out_where_there_are_none() -> None:
    p = fb.ones(3).to("meta")
    assert fb.binary_cross_entropy(p * 2.0, p).shape == ()
    with pytest.raises(fb.OutOfRangeError, match=re.escape("the values of probability must be in [0, 1]")):
        fb.binary_cross_entropy(V, V)


def test_places_are_counted_on_a_device_whose_memory_the_host_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    x = fb.asarray([[0.0, 2.0], [3.0, 0.0]])
    want = [t.tolist() for t in fb.nonzero(x)]
    monkeypatch.setattr(type(x.device.backend), "host_memory", lambda self, device: False)
    assert [t.tolist() for t in fb.nonzero(x)] == want == [[0, 1], [1, 0]]
    assert fb.flatnonzero(x[:0, 0]).tolist() == []


def test_the_namespace_says_what_it_can_do() -> None:
    info = fb.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}
    assert fb.zeros((1,) * 64).ndim == 64


# gradients where there is little to differentiate


def f64(values: Any) -> fb.Tensor:
    return fb.asarray(np.asarray(values, np.float64))


@pytest.mark.parametrize(
    ("call", "x", "want"),
    [
        (lambda x: fb.max(x, axis=1), np.zeros((0, 3)), np.zeros((0, 3))),
        (lambda x: fb.min(x, axis=0), np.zeros((2, 0)), np.zeros((2, 0))),
        (lambda x: fb.cumulative_prod(x, axis=0), np.zeros(0), np.zeros(0)),
        (lambda x: fb.ops.OPS["cumulative_prod"](x, axis=0, reverse=True), [2.0, 3.0, 5.0], [15.0, 15.0, 10.0]),
        (lambda x: fb.scatter(x, fb.asarray(np.zeros(0, np.int64)), x[:0], reduce="mul"), [2.0], [1.0]),
        (lambda x: fb.scatter(x, I, x[:2], reduce="mul"), [2.0, 3.0, 5.0], [4.0, 6.0, 1.0]),
        (lambda x: fb.median(x, axis=1), np.zeros((0, 3)), np.zeros((0, 3))),
    ],
)
def test_gradients_of_few_elements(call: Callable[[fb.Tensor], fb.Tensor], x: Any, want: Any) -> None:
    got = fb.grad(lambda v: fb.sum(call(v)))(f64(x)).numpy()
    assert got.shape == np.shape(want)
    np.testing.assert_allclose(got, want)


def test_average_pooling_has_a_second_derivative() -> None:
    x = f64(np.random.default_rng(0).normal(size=(1, 1, 4, 3)))

    def slope(v: fb.Tensor) -> fb.Tensor:
        return fb.grad(lambda w: fb.sum(fb.avg_pool2d(w, 2, 1, padding=1) ** 3.0))(v)

    fb.gradcheck(lambda v: fb.sum(slope(v) * x), (x,))


@pytest.mark.parametrize(
    ("name", "shape", "more"),
    [
        ("layer_norm", (2, 0), ()), ("rms_norm", (2, 0), ()), ("batch_norm", (2, 3, 0), ()), ("instance_norm", (2, 3, 0), ()),
        ("group_norm", (2, 4, 0), (2,)),
    ],
)  # fmt: skip
def test_a_mean_over_nothing_is_refused_by_every_normalisation(name: str, shape: tuple[int, ...], more: Any) -> None:
    with pytest.raises(fb.ShapeError, match=f"{name}: (there must be values to take the mean of|.*more than one value)"):
        getattr(fb, name)(fb.ones(shape), *more)


def test_what_an_engine_cannot_borrow_is_copied_unless_that_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise BufferError("not this memory")

    device = fb.device("numpy")
    monkeypatch.setattr(type(device.backend), "from_dlpack", refuse)
    source = np.array([1.0, 2.0])
    for copy in (None, True):
        found = fb.from_dlpack(source, device=device, copy=copy)
        source[0] += 1.0
        assert found.tolist() == [source[0] - 1.0, 2.0]
    with pytest.raises(BufferError, match="not this memory"):
        fb.from_dlpack(source, device=device, copy=False)
