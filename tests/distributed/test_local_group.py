import numpy as np
import pytest

import firebrick as fb
from firebrick.distributed import LocalGroup
from firebrick.testing import engines

MIXED = ["cpu:0", "numpy:0", "torch:cpu:0"] if "torch" not in engines().missing else ["cpu:0", "numpy:0", "cpu:1"]
RNG = np.random.default_rng(0)


def terms(devices: list[str], dtype: str = "float32", shape: tuple[int, ...] = (5, 3)) -> list[fb.Tensor]:
    values = [RNG.standard_normal(shape) * 10.0**i for i in range(len(devices))]
    return [fb.astype(fb.asarray(v, device=d), fb.dtype(dtype)) for v, d in zip(values, devices, strict=True)]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_weighted_sum_has_the_bits_of_a_sum_in_the_order_of_devices_on_any_engines(dtype: str) -> None:
    xs, weights = terms(MIXED, dtype), [0.7, 0.2, 0.1]
    wide = np.float32 if fb.dtype(dtype).itemsize == 2 else np.dtype(dtype)
    rounded = [
        (x.numpy().astype(wide) * wide(w) if wide is np.float32 else x.numpy() * w) for x, w in zip(xs, weights, strict=True)
    ]
    own = [r.astype(xs[0].dtype.np).astype(wide) for r in rounded]
    want = ((own[0] + own[1]) + own[2]).astype(xs[0].dtype.np)
    got = LocalGroup(MIXED).all_reduce(xs, weights=weights)
    assert [x.device.name for x in got] == [fb.device(d).name for d in MIXED]
    for x in got:
        assert x.dtype is xs[0].dtype
        assert x.numpy().tobytes() == want.tobytes()


def test_the_order_of_devices_decides_the_bits() -> None:
    values = [1e8, 1.0, -1e8]
    xs = [fb.asarray(v, dtype=fb.float32, device=d) for v, d in zip(values, MIXED, strict=True)]
    assert [x.item() for x in LocalGroup(MIXED).all_reduce(xs)] == [0.0] * 3
    assert LocalGroup(MIXED).reduce([xs[0], None, xs[2]], to=1).item() == 0.0
    swapped = [fb.asarray(v, dtype=fb.float32, device=d) for v, d in zip([1e8, -1e8, 1.0], MIXED, strict=True)]
    assert LocalGroup(MIXED).reduce(swapped).item() == 1.0


def test_sixteen_bits_are_summed_in_float32() -> None:
    xs = [fb.asarray(v, dtype=fb.float16, device=d) for v, d in zip([2048.0, 1.0, 1.0], MIXED, strict=True)]
    assert LocalGroup(MIXED).reduce(xs).item() == 2050.0  # 2048 + 1 is 2048 in float16


def test_a_device_without_a_tensor_adds_nothing_and_gets_the_result() -> None:
    group = LocalGroup(["cpu:0", "cpu:1", "numpy:0"])
    got = group.all_reduce([None, fb.ones(2, device="cpu:1"), fb.full(2, 3.0, device="numpy:0")])
    assert [x.tolist() for x in got] == [[4.0, 4.0]] * 3
    assert [x.device.name for x in got] == ["cpu:0", "cpu:1", "numpy:0"]


@pytest.mark.parametrize(("op", "want"), [("sum", 6), ("prod", 8), ("max", 4), ("min", -1)])
def test_every_reduction(op: str, want: int) -> None:
    xs = [fb.asarray([v], device=d) for v, d in zip([4, -1, 3] if op != "prod" else [4, 1, 2], MIXED, strict=True)]
    assert LocalGroup(MIXED).all_reduce(xs, op)[2].tolist() == [want]


def test_rows_are_shared_out_and_gathered() -> None:
    group = LocalGroup(MIXED)
    xs = [fb.asarray(np.arange(10.0).reshape(5, 2), device=d) for d in MIXED]
    parts = group.reduce_scatter(xs)
    assert [p.shape[0] for p in parts] == [1, 2, 2]
    assert np.concatenate([p.numpy() for p in parts]).tolist() == (3 * xs[0].numpy()).tolist()
    everywhere = group.all_gather([fb.asarray([i], device=d) for i, d in enumerate(MIXED)])
    assert [[x.tolist() for x in here] for here in everywhere] == [[[0], [1], [2]]] * 3
    assert [x.device.name for x in everywhere[2]] == [fb.device(MIXED[2]).name] * 3
    assert [x.device.name for x in group.broadcast(fb.ones(1, device="cpu:3"))] == [fb.device(d).name for d in MIXED]


def test_results_are_untracked() -> None:
    x = fb.ones(2, device="cpu:0").require_grad().detach()
    group = LocalGroup(["cpu:0", "cpu:1"])
    assert not any(t.tracked for t in group.all_reduce([x, fb.ones(2, device="cpu:1")], weights=[2.0, 1.0]))
    assert not any(t.tracked for t in group.broadcast(x))


def test_what_does_not_go_together_is_named() -> None:
    group = LocalGroup(["cpu:0", "cpu:1"])
    one, other = fb.ones(2, device="cpu:0"), fb.ones(3, device="cpu:1")
    with pytest.raises(fb.CollectiveMismatchError, match=r"entry 0: float32\[2\] on cpu:0; entry 1: float32\[3\] on cpu:1"):
        group.all_reduce([one, other])
    with pytest.raises(
        fb.CollectiveMismatchError, match=r"in order, cpu:0, cpu:1\nReceived: entry 0: .* on cpu:0; entry 1: .* on cpu:0"
    ):
        group.all_reduce([one, one])
    with pytest.raises(fb.CollectiveMismatchError, match="one entry for each of 2 devices"):
        group.all_reduce([one])
    with pytest.raises(fb.CollectiveMismatchError, match="at least one device"):
        group.all_reduce([None, None])
    with pytest.raises(fb.ConfigError, match="op is one of sum, prod, max, min"):
        group.all_reduce([one, None], "mean")
    with pytest.raises(fb.ConfigError, match="weights are for sums"):
        group.all_reduce([one, None], "max", weights=[1.0, 1.0])
    with pytest.raises(fb.DTypeError, match="reductions take numbers"):
        group.all_reduce([fb.asarray([True], device="cpu:0"), None])
    with pytest.raises(fb.CollectiveMismatchError, match=r"LocalGroup.reduce: one entry for each of 2 devices\nReceived: 3"):
        group.reduce([one, None, None])
    with pytest.raises(fb.CollectiveMismatchError, match="all_gather: each device has a tensor"):
        group.all_gather([one, None])  # type: ignore[list-item]
    with pytest.raises(fb.CollectiveMismatchError, match=r"entry 1: float64\[2\]"):
        group.all_gather([one, fb.ones(2, dtype=fb.float64, device="cpu:1")])
    with pytest.raises(fb.ConfigError, match="one weight for each of 2 devices\nReceived: 1"):
        group.reduce([one, None], weights=[1.0])
    with pytest.raises(fb.ShapeError, match="reduce_scatter: the first axis"):
        group.reduce_scatter([fb.asarray(1.0, device="cpu:0"), None])
    complex_one = fb.astype(one, fb.complex64)
    for op in ("max", "min"):
        with pytest.raises(fb.DTypeError, match="complex numbers have no order"):
            group.reduce([complex_one, None], op)
    assert group.reduce([complex_one, None], weights=[2.0, 1.0]).tolist() == [2.0, 2.0]
    for devices, names in ((["cpu:0", "cpu"], "cpu:0, cpu:0"), ([], "none")):
        with pytest.raises(fb.ConfigError, match=f"one or more distinct devices\nReceived: {names}"):
            LocalGroup(devices)


def test_what_the_default_result_is_and_where_it_lies() -> None:
    group = LocalGroup(MIXED)
    xs = terms(MIXED)
    assert (group.size, repr(group)) == (3, f"LocalGroup([{', '.join(d.name for d in group.devices)}])")
    assert [group.reduce(xs, to=i).device for i in range(3)] == list(group.devices)
    assert group.reduce(xs).device is group.devices[0]
    halves = group.reduce([x.astype(fb.int8) for x in terms(MIXED, shape=(2,))])
    assert halves.dtype is fb.int8
