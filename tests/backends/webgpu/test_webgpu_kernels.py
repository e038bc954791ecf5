"""Kernels on a device have the bits of the interpreter of kernel IR, whatever its driver does to arithmetic."""

import numpy as np
import pytest
from kernels_on_gpu import check, gpu, ran
from narrow_kernels import draw_narrow
from written_kernels import ITEM, Launch, whole

import firebrick as fb
from firebrick.backends.webgpu.groups import CompiledGroup
from firebrick.compiler.kernel import ArrayParameter, Assign, For, Function, Let, ScalarParameter, Store
from firebrick.compiler.targets.wgsl import operations
from firebrick.core.dtypes import dtype as as_dtype
from firebrick.scalar.expr import cast, const, local

X, Y = ArrayParameter("x", "float32"), ArrayParameter("y", "float32", "write")
N = ScalarParameter("n")


@pytest.mark.slow
@pytest.mark.parametrize("group", [False, True], ids=["items", "groups"])
def test_random_kernels_have_the_bits_of_the_interpreter(group: bool) -> None:
    for seed in range(12):
        check(draw_narrow(seed, group))


@pytest.mark.soak
@pytest.mark.parametrize("block", range(1, 50))
@pytest.mark.parametrize("group", [False, True], ids=["items", "groups"])
def test_more_random_kernels_have_the_bits_of_the_interpreter(group: bool, block: int) -> None:
    for seed in range(block * 12, (block + 1) * 12):
        check(draw_narrow(seed, group))


def compensated(values: np.ndarray) -> Launch:
    """A sum that carries what each addition lost, which is nothing to a driver that computes with real numbers."""
    total, lost, j = Let("total", const(0.0, "float32")), Let("lost", const(0.0, "float32")), local("j", "int64")
    x = Let("v", X[j] + lost.local)
    s = Let("s", total.local + x.local)
    back = Let("back", s.local - total.local)
    error = (total.local - (s.local - back.local)) + (x.local - back.local)
    body = (x, s, back, Assign("lost", error), Assign("total", s.local))
    f = Function("total", (X, Y), (N,), "i", (total, lost, For("j", whole(0), N.value, 1, body), Store("y", ITEM, total.local)))
    return Launch(f, {"x": values, "y": np.zeros(1, np.float32)}, {}, 1, {"n": len(values)})


TENTHS = np.full(50_000, 0.1, np.float32)
TOTAL = np.float32(TENTHS.astype(np.float64).sum())


def test_a_compensated_sum_keeps_what_additions_lose() -> None:
    _, found, _ = ran(compensated(TENTHS))
    assert found["y"][0] == TOTAL


def test_without_fences_the_software_driver_loses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: what it tests is that fences hold."""
    if "llvmpipe" not in gpu().adapter.name:
        pytest.skip("a driver that is not known to cancel terms")
    monkeypatch.setattr(operations, "fenced", lambda text, *_: text)
    _, found, _ = ran(compensated(TENTHS))
    assert abs(found["y"][0] - TOTAL) > 0.1


RESULTS = {
    "sum": lambda x: x + x, "product": lambda x: x * x, "quotient": lambda x: x / x, "root": lambda x: fb.sqrt(x),
    "difference": lambda x: x - x,
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("result", RESULTS)
def test_a_result_minus_itself_is_nan_where_it_is_not_finite(dtype: str, result: str) -> None:
    """A fence of the operand that is the fence of the result again is nothing to a driver: it replaced s - s by 0."""
    x = np.array([1.0, np.nan, np.inf, -np.inf, 0.0], dtype)
    if dtype == "float64" and gpu().measured.float64 is None:
        pytest.skip("an adapter without float64")

    def twice(x: fb.Tensor) -> tuple[fb.Tensor, fb.Tensor]:
        s = RESULTS[result](x)
        return s - s, s / s

    found = fb.jit(twice)(fb.asarray(x, device="webgpu:0"))
    with np.errstate(all="ignore"):
        s = {"sum": x + x, "product": x * x, "quotient": x / x, "root": np.sqrt(x), "difference": x - x}[result]
        want = s - s, s / s
    for f, w in zip(found, want, strict=True):
        np.testing.assert_array_equal(f.numpy(), w)


def test_loops_of_an_item_are_as_long_as_they_say() -> None:
    total, k = Let("total", const(0, "int64")), local("k", "int64")
    count = For("k", whole(0), N.value, 1, (Assign("total", total.local + (k & 1)),))
    out = ArrayParameter("y", "int32", "write")
    f = Function("count", (out,), (N,), "i", (total, count, Store("y", ITEM, cast(total.local, "int32"))))
    _, found, _ = ran(Launch(f, {"y": np.zeros(3, np.int32)}, {}, 3, {"n": 200_000}))
    assert found["y"].tolist() == [100_000] * 3


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint8", "int16", "uint16", "float16", "bfloat16"])
def test_items_that_write_neighbouring_elements_of_a_word_do_not_disturb_each_other(dtype: str) -> None:
    x, y = ArrayParameter("x", dtype), ArrayParameter("y", dtype, "write")
    f = Function("copy", (x, y), (), "i", (Store("y", ITEM, x[ITEM]),))
    values = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 100, 10_001)
    arrays = {"x": values.astype(as_dtype(dtype).np), "y": np.zeros(10_001, as_dtype(dtype).np)}
    check(Launch(f, arrays, {}, 10_001))


@pytest.mark.parametrize(("shape", "axis"), [((66_001,), 0), ((2, 1500), 1), ((1201, 3), 0)])
def test_long_lines_are_sorted_by_digits_with_the_bits_of_the_reference(shape: tuple[int, ...], axis: int) -> None:
    rng = np.random.default_rng(shape[0])
    special = rng.choice(np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-20], np.float32), shape)
    x = np.where(rng.random(shape) < 0.3, special, rng.integers(-999, 999, shape).astype(np.float32))
    given = fb.asarray(x, device="webgpu:0")
    for descending in (False, True):
        params = {"axis": axis, "descending": descending}
        values, places = (t.numpy() for t in fb.ops.OPS["sort"](given, **params))
        want, at = fb.ops.OPS["sort"].reference(x, **params)
        assert values.tobytes() == np.asarray(want, np.float32).tobytes()
        assert np.array_equal(places, at)
    kernels = {launch.pipeline for g in _groups() for launch, _ in g.steps}
    assert len(kernels) > 8, "the sort was of one kernel"


def _groups() -> list[CompiledGroup]:
    device = fb.device("webgpu:0")
    return [g for g in device.backend.groups(device)._made.values() if isinstance(g, CompiledGroup)][-1:]
