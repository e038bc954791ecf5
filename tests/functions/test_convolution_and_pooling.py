"""Convolution, pooling, interpolation and attention against torch's functions in float64, and what they refuse."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import firebrick as fb
from firebrick.core.errors import ConfigError, DTypeError, OutOfRangeError, ShapeError

SHAPES = {1: (2, 4, 9), 2: (2, 4, 7, 9), 3: (2, 4, 5, 4, 6)}


def _torch() -> Any:
    return pytest.importorskip("torch", reason="torch, to compare with")


def _drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def alike(
    ours: Callable[..., Any], theirs: Callable[..., Any], *arrays: np.ndarray, device: str = "numpy", tol: float = 1e-10
) -> None:
    """Values, and the gradients of Σ result · weights, are torch's."""
    torch = _torch()
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    want = theirs(*leaves)
    weights = np.random.default_rng(9).normal(size=tuple(want.shape))
    (want * torch.asarray(weights)).sum().backward()
    got, pull = fb.vjp(ours, *(fb.asarray(a, device=device) for a in arrays))
    assert got.shape == tuple(want.shape)
    np.testing.assert_allclose(got.numpy(), want.detach().numpy(), rtol=tol, atol=tol)
    for mine, leaf in zip(pull(fb.asarray(weights, device=device)), leaves, strict=True):
        np.testing.assert_allclose(mine.numpy(), leaf.grad.numpy(), rtol=tol, atol=tol)


CONV = [
    (1, {}),
    (1, {"stride": 2, "padding": 2, "dilation": 2}),
    (1, {"padding": "same", "dilation": 2, "groups": 2}),
    (2, {"stride": (2, 1), "padding": (1, 0)}),
    (2, {"padding": "same", "dilation": (1, 2)}),
    (2, {"padding": "valid", "groups": 4}),
    (3, {"stride": (1, 2, 1), "padding": (0, 1, 1), "groups": 2}),
    (3, {"padding": "same"}),
]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize(("rank", "settings"), CONV, ids=str)
def test_convolutions_equal_torchs(rank: int, settings: dict[str, Any], device: str) -> None:
    torch = _torch()
    kernel = (3, 2, 2)[:rank] if rank > 1 else (4,)
    arrays = (_drawn(*SHAPES[rank]), _drawn(8, 4 // settings.get("groups", 1), *kernel, seed=1), _drawn(8, seed=2))
    theirs = getattr(torch.nn.functional, f"conv{rank}d")
    alike(lambda *a: getattr(fb, f"conv{rank}d")(*a, **settings), lambda *a: theirs(*a, **settings), *arrays, device=device)


TRANSPOSED = [
    (1, {}),
    (1, {"stride": 3, "padding": 1, "output_padding": 2}),
    (2, {"stride": (2, 3), "padding": (1, 2), "output_padding": (1, 0), "dilation": (2, 1)}),
    (2, {"groups": 2, "stride": 2}),
    (3, {"stride": (1, 2, 2), "padding": 1, "output_padding": (0, 1, 1)}),
    (1, {"dilation": 3, "output_padding": 2}),  # at least the stride
    (1, {"dilation": 3, "output_padding": 2, "padding": 1}),
    (1, {"dilation": 4, "stride": 2, "output_padding": 3, "padding": 3}),
    (2, {"dilation": (3, 1), "stride": (2, 3), "output_padding": (2, 1), "padding": (1, 2)}),
]


@pytest.mark.parametrize(("rank", "settings"), TRANSPOSED, ids=str)
def test_transposed_convolutions_equal_torchs(rank: int, settings: dict[str, Any], device: str) -> None:
    torch = _torch()
    out = 6 // settings.get("groups", 1)
    arrays = (_drawn(*SHAPES[rank]), _drawn(4, out, *(3, 2, 3)[:rank], seed=1), _drawn(6, seed=2))
    theirs = getattr(torch.nn.functional, f"conv_transpose{rank}d")
    name = f"conv_transpose{rank}d"
    alike(lambda *a: getattr(fb, name)(*a, **settings), lambda *a: theirs(*a, **settings), *arrays, device=device)


def test_convolution_holds_the_columns_of_few_images_at_once() -> None:
    x, w = fb.ones((64, 4, 32, 32), device="numpy"), fb.ones((4, 4, 5, 5), device="numpy")
    columns = x.size * 25 * 4
    tracemalloc.start()
    try:
        y, pull = fb.vjp(lambda x, w: fb.conv2d(x, w, padding=2), x, w)
        gx, gw = pull(fb.ones_like(y))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < columns / 2
    # many parts, and the last of them smaller, make one whole
    assert y.numpy()[:, :, 2:-2, 2:-2].min() == y.numpy().max() == gx.numpy().max() == 100
    assert gw.numpy().max() == 64 * 32 * 32


def test_bias_and_stride_have_torchs_places() -> None:
    x, w, b = (fb.asarray(_drawn(*shape)) for shape in ((1, 2, 4, 4), (3, 2, 2, 2), (3,)))
    assert fb.conv2d(x, w, bias=b).tolist() == fb.conv2d(x, w, b).tolist()
    assert fb.max_pool2d(x, 3, 1).tolist() == fb.max_pool2d(x, 3, stride=1).tolist()


def test_padding_differs_by_side() -> None:
    torch = _torch()
    x, w = _drawn(1, 2, 5, 6), _drawn(3, 2, 2, 2, seed=1)
    pad = torch.nn.functional.pad
    alike(lambda x, w: fb.conv2d(x, w, padding=((1, 0), (0, 2))),
          lambda x, w: torch.conv2d(pad(x, (0, 2, 1, 0)), w), x, w)  # fmt: skip
    signal, kernel = fb.asarray(_drawn(1, 2, 5)), fb.asarray(_drawn(2, 1, 3))
    full = fb.conv_transpose1d(signal, kernel).numpy()
    cut = fb.conv_transpose1d(signal, kernel, padding=((1, 0),)).numpy()
    np.testing.assert_array_equal(cut, full[:, :, 1:])


MAX = [
    (1, 2, {}),
    (1, 3, {"stride": 2, "padding": 1, "ceil_mode": True}),
    (1, 3, {"dilation": 2, "stride": 1}),
    (2, (3, 2), {"stride": (2, 3), "padding": (1, 0)}),
    (2, 2, {"ceil_mode": True}),
    (2, 3, {"stride": 2, "dilation": (2, 1), "padding": 1, "ceil_mode": True}),
    (2, 2, {"stride": 4, "ceil_mode": True}),
    (3, 2, {}),
    (3, (2, 3, 2), {"stride": (1, 2, 2), "padding": (1, 1, 0), "ceil_mode": True}),
]


@pytest.mark.parametrize(("rank", "kernel", "settings"), MAX, ids=str)
def test_max_pools_equal_torchs(rank: int, kernel: Any, settings: dict[str, Any], device: str) -> None:
    torch = _torch()
    x, name = _drawn(*SHAPES[rank]), f"max_pool{rank}d"
    theirs = getattr(torch.nn.functional, name)
    alike(lambda x: getattr(fb, name)(x, kernel, **settings), lambda x: theirs(x, kernel, **settings), x, device=device)
    _, places = getattr(fb, name)(fb.asarray(x, device=device), kernel, return_indices=True, **settings)
    np.testing.assert_array_equal(places.numpy(), theirs(torch.asarray(x), kernel, return_indices=True, **settings)[1].numpy())


AVG = [
    (1, 2, {}),
    (1, 3, {"stride": 2, "padding": 1, "ceil_mode": True}),
    (1, 3, {"stride": 2, "padding": 1, "ceil_mode": True, "count_include_pad": False}),
    (2, (3, 2), {"stride": (2, 3), "padding": (1, 0)}),
    (2, 3, {"padding": 1, "count_include_pad": False}),
    (2, 4, {"stride": 3, "padding": 2, "ceil_mode": True}),
    (2, 2, {"stride": 4, "ceil_mode": True}),
    (3, (2, 3, 2), {"stride": (1, 2, 2), "padding": (1, 1, 0), "ceil_mode": True}),
    (3, 2, {"padding": 1, "count_include_pad": False}),
]


@pytest.mark.parametrize(("rank", "kernel", "settings"), AVG, ids=str)
def test_average_pools_equal_torchs(rank: int, kernel: Any, settings: dict[str, Any], device: str) -> None:
    theirs = getattr(_torch().nn.functional, f"avg_pool{rank}d")
    ours = getattr(fb, f"avg_pool{rank}d")
    alike(lambda x: ours(x, kernel, **settings), lambda x: theirs(x, kernel, **settings), _drawn(*SHAPES[rank]), device=device)


ADAPTIVE = [(1, 3), (1, 4), (1, 12), (2, 1), (2, (3, 4)), (2, (None, 3)), (2, (7, 2)), (3, (2, 3, 4)), (3, 1)]


@pytest.mark.parametrize(("rank", "size"), ADAPTIVE, ids=str)
def test_adaptive_pools_equal_torchs(rank: int, size: Any, device: str) -> None:
    functional = _torch().nn.functional
    x = _drawn(*SHAPES[rank])
    for kind in ("avg", "max"):
        ours, theirs = (getattr(m, f"adaptive_{kind}_pool{rank}d") for m in (fb, functional))
        alike(lambda x, ours=ours: ours(x, size), lambda x, theirs=theirs: theirs(x, size), x, device=device)
    places = ours(fb.asarray(x, device=device), size, return_indices=True)[1]
    np.testing.assert_array_equal(places.numpy(), theirs(_torch().asarray(x), size, return_indices=True)[1].numpy())


@pytest.mark.parametrize("size", [1, 2, 3, 5, 9])
def test_an_infinity_stays_in_the_windows_that_cover_it(size: int, device: str) -> None:
    x = np.asarray([[[1.0, np.inf, 3.0, 4.0, np.inf, 6.0, 7.0]]])
    got = fb.adaptive_avg_pool1d(fb.asarray(x, device=device), size).numpy()
    np.testing.assert_array_equal(got, _torch().nn.functional.adaptive_avg_pool1d(_torch().asarray(x), size).numpy())


@pytest.mark.parametrize("size", [1, 3, 7])
def test_adaptive_pools_of_no_images_are_empty(size: int, device: str) -> None:
    x = fb.ones((0, 2, 5, 5), device=device)
    values, places = fb.adaptive_max_pool2d(x, size, return_indices=True)
    assert fb.adaptive_avg_pool2d(x, size).shape == values.shape == places.shape == (0, 2, size, size)


def test_the_first_maximum_takes_the_gradient() -> None:
    x = fb.ones((1, 1, 5, 5))
    for pool in (lambda x: fb.max_pool2d(x, 2, ceil_mode=True), lambda x: fb.adaptive_max_pool2d(x, 3)):
        g = fb.grad(lambda x, pool=pool: fb.sum(pool(x)))(x).numpy()[0, 0]
        at = (0, 2, 4) if g[4, 4] else (0, 1, 3)
        want = np.zeros((5, 5), np.float32)
        want[np.ix_(at, at)] = 1
        np.testing.assert_array_equal(g, want)


def test_values_return_to_their_places(device: str) -> None:
    torch = _torch()
    x = _drawn(*SHAPES[2])
    found, places = fb.max_pool2d(fb.asarray(x, device=device), 2, return_indices=True)
    theirs, at = torch.nn.functional.max_pool2d(torch.asarray(x), 2, return_indices=True)
    want = torch.nn.functional.max_unpool2d(theirs, at, 2, output_size=(7, 9)).numpy()
    np.testing.assert_array_equal(fb.max_unpool(found, places, (7, 9)).numpy(), want)
    g = fb.grad(lambda v: fb.sum(fb.max_unpool(v, places, (7, 9)) ** 2.0))(found)
    np.testing.assert_allclose(g.numpy(), 2 * found.numpy())


MODES = [(1, "nearest"), (1, "nearest-exact"), (1, "linear"), (1, "area"), (2, "nearest"), (2, "nearest-exact"),
         (2, "bilinear"), (2, "bicubic"), (2, "area"), (3, "nearest"), (3, "trilinear"), (3, "area")]  # fmt: skip
SIZES: dict[int, list[Any]] = {1: [18, 4, 1, 9, 13], 2: [(14, 5), (3, 18), 1, (7, 9)], 3: [(10, 3, 6), (2, 8, 1)]}


@pytest.mark.parametrize(("rank", "mode"), MODES, ids=str)
def test_interpolation_equals_torchs(rank: int, mode: str, device: str) -> None:
    theirs = _torch().nn.functional.interpolate
    x = _drawn(*SHAPES[rank])
    corners = [False, True] if "linear" in mode or mode == "bicubic" else [None]
    for c in corners:
        ours = {} if c is None else {"align_corners": c}
        other = {"mode": mode, "align_corners": c}
        for size in SIZES[rank]:
            alike(lambda x, size=size, ours=ours: fb.interpolate(x, size, mode=mode, **ours),
                  lambda x, size=size, other=other: theirs(x, size, **other), x, device=device)  # fmt: skip
        for factor in (2.0, 1.5, 0.6, 2.3):
            if mode == "area":
                continue
            alike(lambda x, factor=factor, ours=ours: fb.interpolate(x, scale_factor=factor, mode=mode, **ours),
                  lambda x, factor=factor, other=other: theirs(x, scale_factor=factor, **other), x, device=device)  # fmt: skip


@pytest.mark.parametrize(("old", "new"), [(a, b) for a in (3, 7, 49, 100) for b in (5, 21, 98, 147, 999)] + [(2, 49)])
def test_nearest_neighbours_are_exact(old: int, new: int) -> None:
    got = fb.interpolate(fb.arange(old, dtype=fb.float64).reshape(1, 1, old), new).numpy().reshape(-1)
    np.testing.assert_array_equal(got, np.arange(new) * old // new)
    got = fb.interpolate(fb.arange(old, dtype=fb.float64).reshape(1, 1, old), new, mode="nearest-exact").numpy().reshape(-1)
    np.testing.assert_array_equal(got, (2 * np.arange(new) + 1) * old // (2 * new))


def test_pixels_move_as_torchs(device: str) -> None:
    functional = _torch().nn.functional
    x = _drawn(2, 12, 3, 4)
    alike(lambda x: fb.pixel_shuffle(x, 2), lambda x: functional.pixel_shuffle(x, 2), x, device=device)
    y = _drawn(2, 3, 6, 9)
    alike(lambda x: fb.pixel_unshuffle(x, 3), lambda x: functional.pixel_unshuffle(x, 3), y, device=device)


# attention

Q, K, V = _drawn(2, 4, 5, 8), _drawn(2, 4, 7, 8, seed=1), _drawn(2, 4, 7, 6, seed=2)


@pytest.mark.parametrize("shape", [None, (5, 7), (2, 1, 5, 7), (4, 1, 7)], ids=str)
@pytest.mark.parametrize("kind", ["mask", "bias"])
def test_masks_and_biases_equal_torchs(shape: Any, kind: str, device: str) -> None:
    torch = _torch()
    theirs = torch.nn.functional.scaled_dot_product_attention
    if shape is None:
        for scale in (None, 0.3):
            alike(lambda q, k, v, s=scale: fb.scaled_dot_product_attention(q, k, v, scale=s),
                  lambda q, k, v, s=scale: theirs(q, k, v, scale=s), Q, K, V, device=device)  # fmt: skip
        return
    m = _drawn(*shape, seed=3)
    if kind == "mask":
        m = m > 0
        m[..., 2] = True
    own = {kind: fb.asarray(m, device=device)}
    alike(lambda q, k, v: fb.scaled_dot_product_attention(q, k, v, **own),
          lambda q, k, v: theirs(q, k, v, attn_mask=torch.asarray(m)), Q, K, V, device=device)  # fmt: skip


@pytest.mark.parametrize("n", [3, 7, 9])
def test_causal_order_is_torchs(n: int, device: str) -> None:
    theirs = _torch().nn.functional.scaled_dot_product_attention
    q = _drawn(2, 4, n, 8)
    alike(lambda q, k, v: fb.scaled_dot_product_attention(q, k, v, causal=True),
          lambda q, k, v: theirs(q, k, v, is_causal=True), q, K, V, device=device)  # fmt: skip


@pytest.mark.parametrize("heads", [1, 2])
def test_heads_share_keys_as_torchs(heads: int, device: str) -> None:
    theirs = _torch().nn.functional.scaled_dot_product_attention
    alike(lambda q, k, v: fb.scaled_dot_product_attention(q, k, v),
          lambda q, k, v: theirs(q, k, v, enable_gqa=True), Q, K[:, :heads], V[:, :heads], device=device)  # fmt: skip


def test_heads_share_keys_whatever_the_batch(device: str) -> None:
    q, k, v = (fb.asarray(a, device=device) for a in (Q, K[:, :2], V[:, :2]))
    both = fb.scaled_dot_product_attention(q, k, v).numpy()
    one = fb.scaled_dot_product_attention(q[:1], k[:1], v[:1]).numpy()
    np.testing.assert_allclose(one, both[:1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("how", ["mask", "bias"])
def test_a_query_that_may_look_nowhere_gets_zero_and_no_nan_gradient(how: str, device: str) -> None:
    allowed = np.ones((5, 7), np.bool_)
    allowed[2] = False
    value = allowed if how == "mask" else np.where(allowed, 0.0, -np.inf)
    own = {how: fb.asarray(value, device=device)}
    q, k, v = (fb.asarray(a, device=device) for a in (Q, K, V))
    y, pull = fb.vjp(lambda q, k, v: fb.scaled_dot_product_attention(q, k, v, **own), q, k, v)
    assert not y.numpy()[:, :, 2].any()
    grads = [g.numpy() for g in pull(y)]
    assert all(np.isfinite(g).all() for g in grads)
    assert not grads[0][:, :, 2].any()


def test_what_causal_order_hides_weighs_nothing_beside_the_lowest_bias(device: str) -> None:
    lowest = np.finfo(np.float32).min
    bias = np.where(np.arange(4) < 2, lowest, 0.0).astype(np.float32)  # queries 0 and 1 have only such keys before them
    q, k, v = (fb.asarray(_drawn(1, 4, 3, seed=s).astype(np.float32), device=device) for s in range(3))
    y = fb.scaled_dot_product_attention(q, k, v, bias=fb.asarray(bias, device=device), causal=True).numpy()
    np.testing.assert_allclose(y[:, 0], v.numpy()[:, 0], rtol=1e-6)
    np.testing.assert_allclose(y[:, 1], v.numpy()[:, :2].mean(1), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("size", [3.0, 300.0])
def test_large_scores_in_half_precision_keep_their_order(dtype: str, size: float, device: str) -> None:
    narrow = [fb.astype(fb.asarray(_drawn(2, 5, 16, seed=s) * size, device=device), getattr(fb, dtype)) for s in range(4)]
    attend = fb.scaled_dot_product_attention
    y, pull = fb.vjp(attend, *narrow[:3])
    wide = [fb.astype(t, fb.float64) for t in narrow]
    want, pull64 = fb.vjp(attend, *wide[:3])
    assert y.dtype is narrow[0].dtype
    for mine, theirs in zip((y, *pull(narrow[3])), (want, *pull64(wide[3])), strict=True):
        error = np.abs(fb.astype(mine, fb.float64).numpy() - theirs.numpy()).max()
        assert error <= y.dtype.eps * max(1.0, np.abs(theirs.numpy()).max())


def test_dropout_of_attention_draws_from_its_generator() -> None:
    q, k, v = map(fb.asarray, (Q, K, V))
    a, b, c = (
        fb.scaled_dot_product_attention(q, k, v, dropout=0.5, generator=fb.random.Generator(s)).tolist() for s in (1, 1, 2)
    )
    assert a == b != c
    ones = fb.ones_like(v)
    total = fb.scaled_dot_product_attention(q, k, ones, dropout=0.25, generator=fb.random.Generator(0)).numpy()
    # each weight is kept with probability 3/4 and divided by it, so a row's sum deviates by (Σ weight² / 3)½ ≤ (1/3)½
    assert abs(total.mean() - 1) < 4 * np.sqrt(1 / 3 / (total.size / total.shape[-1]))


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_narrow_dtypes_agree_on_every_engine(dtype: str, device: str) -> None:
    image, kernel = np.abs(_drawn(1, 2, 6, 6)), np.abs(_drawn(2, 2, 3, 3, seed=1))
    functions: list[Callable[..., Any]] = [
        lambda x, w: fb.conv2d(x, w, padding=1),
        lambda x, w: fb.conv_transpose2d(x, w, stride=2, output_padding=1),
        lambda x, w: fb.max_pool2d(x, 3, padding=1),
        lambda x, w: fb.avg_pool2d(x, 3, padding=1, count_include_pad=False),
        lambda x, w: fb.adaptive_avg_pool2d(x, 4),
        lambda x, w: fb.adaptive_max_pool2d(x, 4),
        lambda x, w: fb.interpolate(x, 9, mode="bicubic"),
        lambda x, w: fb.interpolate(x, scale_factor=0.5, mode="bilinear"),
        lambda x, w: fb.scaled_dot_product_attention(x, x, x, causal=True),
    ]
    for f in functions:
        wide = f(fb.asarray(image, device="numpy"), fb.asarray(kernel, device="numpy")).numpy()
        got = f(*(fb.asarray(a, dtype=dtype, device=device) for a in (image, kernel)))
        assert got.dtype.name == dtype
        np.testing.assert_allclose(got.numpy().astype(np.float64), wide, rtol=0, atol=40 * got.dtype.eps * np.abs(wide).max())


IMAGE = fb.ones((1, 4, 5, 5))
SIGNAL = fb.ones((1, 4, 5))
BAD: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 4, 3, 3)), groups=3), ShapeError, "conv2d: groups, here ., divides the channels"),
    (lambda: fb.conv2d(IMAGE, fb.ones((3, 2, 3, 3)), groups=2), ShapeError, "conv2d: groups, here ., divides the channels"),
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 4, 3, 3)), groups=0), ShapeError, "conv2d: groups is an int ≥ 1"),
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 3, 3, 3))), ShapeError, r"conv2d: weight is \[out, channels / groups"),
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 4, 3))), ShapeError, "conv2d: weight is"),
    (lambda: fb.conv2d(SIGNAL, fb.ones((4, 4, 3, 3))), ShapeError, r"conv2d: x is \[batch, channels, height, width\]"),
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 4, 3, 3)), fb.ones(3)), ShapeError, r"conv2d: bias is \[4\]"),
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 4, 3, 3)), padding=-1), ShapeError, "conv2d: padding is an int ≥ 0"),
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 4, 3, 3)), padding=((0, -1), (0, 0))), ShapeError, "each padding is an int ≥ 0"),
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 4, 3, 3)), padding="same", stride=2), ShapeError, 'padding "same"'),
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 4, 3, 3)), padding="full"), ShapeError, 'padding is "same", "valid"'),
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 4, 3, 3)), stride=0), ShapeError, "stride is an int ≥ 1 or 2 of them"),
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 4, 3, 3)), stride=(1, 1, 1)), ShapeError, "stride is an int ≥ 1 or 2 of them"),
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 4, 3, 3)), dilation=3), ShapeError, "the dilated kernel must fit"),
    (lambda: fb.conv2d(IMAGE, fb.ones((4, 4, 6, 3))), ShapeError, "conv2d: the dilated kernel must fit into the padded image"),
    (lambda: fb.conv2d(fb.ones((1, 4, 0, 5)), fb.ones((4, 4, 1, 1))), ShapeError, "must fit into the padded image"),
    (lambda: fb.conv2d(fb.ones((1, 4, 5, 5), dtype=fb.int32), fb.ones((4, 4, 1, 1))), DTypeError, "conv2d: x needs a floating"),
    (lambda: fb.conv1d(IMAGE, fb.ones((4, 4, 3))), ShapeError, r"conv1d: x is \[batch, channels, length\]"),
    (lambda: fb.conv_transpose1d(SIGNAL, fb.ones((3, 4, 2))), ShapeError, r"weight is \[channels, out / groups, kernel\]"),
    (lambda: fb.conv_transpose1d(SIGNAL, fb.ones((4, 4, 2)), output_padding=1), ShapeError, "smaller than the stride or"),
    (lambda: fb.conv_transpose1d(SIGNAL, fb.ones((4, 4, 1)), padding=3), ShapeError, "the result must have sizes ≥ 1"),
    (lambda: fb.conv_transpose1d(SIGNAL, fb.ones((4, 4, 1)), padding="same"), ShapeError, "padding is ints or pairs"),
    (lambda: fb.max_pool2d(IMAGE, 6), ShapeError, "max_pool2d: the window must fit"),
    (lambda: fb.max_pool2d(IMAGE, 2, padding=2), ShapeError, "max_pool2d: every window must meet the image"),
    (lambda: fb.max_pool2d(IMAGE, 0), ShapeError, "max_pool2d: kernel is an int ≥ 1"),
    (lambda: fb.max_pool2d(IMAGE, 2, padding=-1), ShapeError, "max_pool2d: padding is an int ≥ 0"),
    (lambda: fb.max_pool2d(SIGNAL, 2), ShapeError, r"max_pool2d: x is \[batch, channels, height, width\]"),
    (lambda: fb.max_pool2d(fb.ones((1, 1, 0, 3)), 1, ceil_mode=True), ShapeError, "max_pool2d: the window must fit"),
    (lambda: fb.max_pool1d(SIGNAL, 9, ceil_mode=True, stride=2), ShapeError, "max_pool1d: the window must fit"),
    (lambda: fb.max_pool2d(fb.ones((1, 1, 4, 4), dtype=fb.int32), 2), DTypeError, "max_pool2d: x needs a floating dtype"),
    (lambda: fb.avg_pool1d(SIGNAL, 2, padding=2), ShapeError, "avg_pool1d: every window must meet the image"),
    (lambda: fb.avg_pool1d(SIGNAL, 2, padding="same"), ShapeError, "avg_pool1d: padding is ints or pairs"),
    (lambda: fb.adaptive_avg_pool2d(IMAGE, 0), ShapeError, "adaptive_avg_pool2d: size is an int ≥ 1"),
    (lambda: fb.adaptive_avg_pool2d(IMAGE, (1, 2, 3)), ShapeError, "adaptive_avg_pool2d: size is an int"),
    (lambda: fb.adaptive_max_pool2d(fb.ones((1, 1, 0, 3)), 1), ShapeError, "images have elements"),
    (lambda: fb.max_unpool(SIGNAL, fb.ones((1, 4, 5), dtype=fb.int64) * 9, 5), OutOfRangeError, "max_unpool: indices"),
    (lambda: fb.max_unpool(SIGNAL, SIGNAL, 5), DTypeError, "indices need an integer dtype"),
    (lambda: fb.max_unpool(SIGNAL, fb.ones((1, 4, 4), dtype=fb.int64), 5), ShapeError, "indices have its shape"),
    (lambda: fb.interpolate(IMAGE), ShapeError, "either size or scale_factor is given"),
    (lambda: fb.interpolate(IMAGE, 3, scale_factor=2), ShapeError, "either size or scale_factor is given"),
    (lambda: fb.interpolate(IMAGE, 0), ShapeError, "interpolate: size is an int ≥ 1"),
    (lambda: fb.interpolate(IMAGE, scale_factor=-1.0), ShapeError, "scale_factor is a number > 0"),
    (lambda: fb.interpolate(IMAGE, scale_factor=0.1), ShapeError, "images have sizes ≥ 1"),
    (lambda: fb.interpolate(IMAGE, 3, mode="linear"), ConfigError, "mode is one of .*bilinear"),
    (lambda: fb.interpolate(IMAGE, 3, mode="lanczos"), ConfigError, "mode is one of"),
    (lambda: fb.interpolate(IMAGE, 3, align_corners=True), ConfigError, 'align_corners has no meaning for mode "nearest"'),
    (lambda: fb.interpolate(fb.ones((3, 3)), 3), ShapeError, r"x is \[batch, channels, \*image\]"),
    (lambda: fb.pixel_shuffle(IMAGE, 3), ShapeError, "the square of factor divides the channels"),
    (lambda: fb.pixel_unshuffle(IMAGE, 2), ShapeError, "factor divides height and width"),
    (lambda: fb.pixel_shuffle(IMAGE, 0), ShapeError, "factor is an int ≥ 1"),
    (lambda: fb.scaled_dot_product_attention(IMAGE, IMAGE, fb.ones((1, 4, 4, 2))), ShapeError, "check the last two axes"),
    (lambda: fb.scaled_dot_product_attention(IMAGE, fb.ones((1, 3, 5, 5)), fb.ones((1, 3, 5, 5))), ShapeError, "heads divide"),
    (
        lambda: fb.scaled_dot_product_attention(IMAGE, IMAGE, IMAGE, mask=fb.ones((5, 5))),
        DTypeError,
        "mask needs the bool dtype",
    ),
    (lambda: fb.scaled_dot_product_attention(IMAGE, IMAGE, IMAGE, mask=fb.ones((3, 5)) > 0), ShapeError, "mask broadcasts"),
    (
        lambda: fb.scaled_dot_product_attention(IMAGE, IMAGE, IMAGE, bias=fb.ones((5, 5)) > 0),
        DTypeError,
        "bias needs a floating",
    ),
    (lambda: fb.scaled_dot_product_attention(IMAGE, IMAGE, IMAGE, dropout=0.5), ConfigError, "dropout needs a generator"),
    (lambda: fb.scaled_dot_product_attention(IMAGE, IMAGE, IMAGE, dropout=1.0), ConfigError, r"dropout lies in \[0, 1\)"),
]


@pytest.mark.parametrize(("call", "error", "text"), BAD)
def test_bad_input_is_refused(call: Callable[[], Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("device", ["numpy", "cpu", "torch:cpu"])
def test_a_window_may_be_larger_than_the_image_without_its_padding(device: str) -> None:
    x = fb.asarray(np.arange(30.0).reshape(1, 1, 6, 5, 1), device=device)
    for function in (
        lambda x: fb.avg_pool3d(x, (1, 1, 3), (1, 1, 1), padding=(0, 0, 1)),
        fb.jit(lambda x: fb.avg_pool3d(x, (1, 1, 3), (1, 1, 1), padding=(0, 0, 1))),
    ):
        np.testing.assert_allclose(function(x).numpy(), x.numpy() / 3)
        assert set(fb.grad(lambda x: fb.sum(function(x)))(x).numpy().ravel()) == {1 / 3}  # noqa: B023
