"""What can be exported, what is refused, and what is written. No adapter is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

import firebrick as fb
from firebrick.backends.webgpu.web_plan import PAGE, web_plan
from firebrick.core.aval import Aval
from firebrick.core.dtypes import complex128
from firebrick.graph import tell
from firebrick.interop import web
from firebrick.interop.web import exporting
from firebrick.ir import Graph
from firebrick.ops import OPS


def ones(*shape: int, dtype: str = "float32") -> fb.Tensor:
    return fb.ones(shape, dtype=dtype, device="numpy")


def test_a_model_that_still_trains_is_refused(tmp_path: Path) -> None:
    x = ones(2, 3, 4, 4)
    norm = fb.nn.Sequential(fb.nn.BatchNorm2d(3)).to("numpy")
    before = norm.state_dict()["layers.0.running_mean"].numpy().copy()
    with pytest.raises(fb.TraceError, match=r"it changes layers\.0\.running_mean\.\nRemedy: call eval\(\) of the model first"):
        web.export(norm, [x + 1.0], tmp_path / "page")
    np.testing.assert_array_equal(norm.state_dict()["layers.0.running_mean"].numpy(), before)
    with pytest.raises(fb.TraceError, match="it draws random numbers"):
        web.export(fb.nn.Sequential(fb.nn.Dropout(0.5)), [x], tmp_path / "page")
    assert not (tmp_path / "page").exists()
    assert web.export(norm.eval(), [x], tmp_path / "page").launches > 0


def test_a_function_that_passes_values_on_or_returns_no_tensor_is_refused(tmp_path: Path) -> None:
    def notifying(x: fb.Tensor) -> fb.Tensor:
        y = x * 2.0
        tell(lambda v: None, y)
        return y

    with pytest.raises(fb.TraceError, match=r"it passes values to callbacks\.\nRemedy: leave them out"):
        web.export(notifying, [ones(2)], tmp_path / "page")
    with pytest.raises(fb.OperandError, match=r"returns tensors\nReceived: none\.\nRemedy: return at least one"):
        web.export(lambda x: {"of": []}, [ones(2)], tmp_path / "page")
    assert not (tmp_path / "page").exists()


def test_operations_without_a_kernel_are_all_named(tmp_path: Path) -> None:
    def solved(a: fb.Tensor) -> fb.Tensor:
        return fb.linalg.inv(a) @ fb.cumulative_prod(a, axis=0) + fb.linalg.qr(a).Q

    with pytest.raises(fb.UnsupportedError, match="a page has no host to fall back to") as e:
        web.export(solved, [fb.asarray(np.eye(3, dtype=np.float32), device="numpy")], tmp_path / "page")
    for name in ("solve", "cumulative_prod", "qr"):
        assert f"{name}: " in str(e.value)


@pytest.mark.parametrize("dtype", ["float64", "complex64", "float8_e5m2"])
def test_dtypes_that_pages_lack_are_refused_with_the_cast_to_write(dtype: str, tmp_path: Path) -> None:
    x = fb.astype(ones(3), dtype)
    with pytest.raises((fb.DTypeError, fb.UnsupportedError), match=f"{dtype}"):
        web.export(lambda x: fb.concat([x, x]), [x], tmp_path / "page")


def test_results_that_are_no_new_tensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(fb.TraceError, match="output is an argument or a captured tensor itself"):
        web.export(lambda x: x, [ones(3)], tmp_path / "page")
    with pytest.raises(fb.OperandError, match=r"output\.n: float"):
        web.export(lambda x: {"n": 1.5, "x": x + 1}, [ones(3)], tmp_path / "page")
    with pytest.raises(fb.OperandError, match=r"inputs\[0\] is a tensor"):
        web.export(lambda x: x + 1, [3.0], tmp_path / "page")  # type: ignore[list-item]
    with pytest.raises(fb.OperandError, match="inputs is a list"):
        web.export(lambda x: x + 1, ones(3), tmp_path / "page")  # type: ignore[arg-type]
    for twice in (lambda x: {"a": {"b": x + 1}, "a.b": x + 2}, lambda x: {1: x + 1, "1": x + 2}):
        with pytest.raises(fb.OperandError, match="tensors with different names"):
            web.export(twice, [ones(3)], tmp_path / "page")
    with pytest.raises(fb.OperandError, match="a function or a module"):
        web.export(3, [ones(3)], tmp_path / "page")  # type: ignore[arg-type]


def test_results_that_are_one_tensor_have_its_values(tmp_path: Path) -> None:
    def fn(x: fb.Tensor) -> dict[str, fb.Tensor]:
        b = x * 2.0
        return {"a": x + 1.0, "b": b, "c": x * 3.0, "d": b, "e": x * 4.0, "f": b}

    web.export(fn, [ones(2)], tmp_path / "page")
    kept = load_file(tmp_path / "page" / "selftest.safetensors")
    assert [kept[f"output.output.{name}"][0] for name in "abcdef"] == [2.0, 2.0, 3.0, 2.0, 4.0, 2.0]


def test_a_cache_that_the_function_fills_is_refused_as_state(tmp_path: Path) -> None:
    layer, cache = fb.nn.MultiheadAttention(4, 1).to("numpy").eval(), fb.nn.KeyValueCache(4)
    with pytest.raises(fb.TraceError, match=r"it changes .*\n.*leave out caches"):
        web.export(lambda x: layer(x, causal=True, cache=cache), [ones(1, 2, 4)], tmp_path / "page")
    layer(ones(1, 1, 4), causal=True, cache=cache)
    with pytest.raises(fb.TraceError, match=r"it changes .*\n.*leave out caches"):
        web.export(lambda x: layer(x, causal=True, cache=cache), [ones(1, 2, 4)], tmp_path / "page")
    assert cache.length == 1


def test_inputs_have_different_names(tmp_path: Path) -> None:
    def less(input1: fb.Tensor, *others: fb.Tensor) -> fb.Tensor:
        return input1 - others[0]

    made = web.export(less, [ones(3), ones(3) * 2.0], tmp_path / "page")
    plan = json.loads((made.folder / "program.json").read_text())
    assert [x["name"] for x in plan["inputs"]] == ["input1", "_input1"]
    kept = load_file(made.folder / "selftest.safetensors")
    assert kept["input._input1"].tolist() == [2.0] * 3
    assert kept["output.output"].tolist() == [-1.0] * 3


def test_facts_that_are_no_json_are_refused(tmp_path: Path) -> None:
    for facts in ({"a": float("nan")}, {"a": np.float32(1)}, {"a": [{"b": float("inf")}]}, {"a": [1, float("nan")]}):
        with pytest.raises(fb.ConfigError, match="the facts of a page are JSON"):
            web.export(lambda x: x + 1, [ones(3)], tmp_path / "page", facts=facts)
    assert not (tmp_path / "page").exists()


def test_a_link_leads_to_the_folder_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    for link, goal in (("empty", "real"), ("dangling", "new")):
        (tmp_path / link).symlink_to(tmp_path / goal)
        web.export(lambda x: x + 1, [ones(3)], tmp_path / link)
        assert (tmp_path / link).is_symlink()
        assert (tmp_path / goal / "program.json").exists()
    (tmp_path / "file").write_text("text")
    with pytest.raises(fb.ConfigError, match="file is a file"):
        web.export(lambda x: x + 1, [ones(3)], tmp_path / "file" / "page")


def test_a_folder_that_holds_something_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("here")
    with pytest.raises(fb.ConfigError, match="new or empty folder"):
        web.export(lambda x: x + 1, [ones(3)], tmp_path)
    with pytest.raises(fb.ConfigError, match="which is a file"):
        web.export(lambda x: x + 1, [ones(3)], tmp_path / "kept")
    with pytest.raises(fb.ConfigError, match="a page is one of plain, digits"):
        web.export(lambda x: x + 1, [ones(3)], tmp_path / "page", page="fancy")
    (tmp_path / "empty").mkdir()
    web.export(lambda x: x + 1, [ones(3)], tmp_path / "empty")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["empty", "kept"]


def test_an_export_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Path.write_bytes

    def broken(self: Path, data: bytes) -> int:
        if self.name == "program.json":
            raise OSError(28, "No space left on device")
        return whole(self, data)

    monkeypatch.setattr(Path, "write_bytes", broken)
    with pytest.raises(OSError, match="No space left"):
        web.export(lambda x: x + 1, [ones(3)], tmp_path / "page")
    assert list(tmp_path.iterdir()) == []


def test_wrong_indices_in_the_inputs_are_an_error_of_the_export(tmp_path: Path) -> None:
    table = fb.nn.Embedding(4, 2).to("numpy")
    with pytest.raises(IndexError, match=r"indices must lie in \[-?\d, 4\)"):
        web.export(table, [fb.asarray([1, 4], device="numpy")], tmp_path / "page")


def test_arrays_beyond_the_default_limits_are_refused() -> None:
    from firebrick.core.aval import Aval

    g = Graph([Aval((70_000, 1000), fb.float32)])
    g.outputs = g.add(OPS["exp"], 0)
    with pytest.raises(fb.UnsupportedError, match=r"exp: .* at most 268,435,456 bytes on this device \(received 280,000,000\)"):
        web_plan(g)


def test_arrays_beyond_a_binding_are_bound_as_windows() -> None:
    from firebrick.core.aval import Aval

    g = Graph([Aval((40_000, 1000), fb.float32)])
    g.outputs = g.add(OPS["exp"], 0)
    plan = web_plan(g)
    (launch,) = plan.launches
    whole, rest = 128 << 20, 160_000_000 - (128 << 20)
    assert [(at, size) for _, at, size in launch.bindings] == [(0, whole), (whole, rest)] * 2
    g.outputs = g.add(OPS["where"], *g.add(OPS["greater"], 0, 0), 0, *g.outputs)
    assert all(sum(k.windows) <= 7 for k in web_plan(g).kernels)


@pytest.mark.parametrize("operands", [2, 3])
def test_kernels_have_as_many_windows_as_there_are_bindings(operands: int) -> None:
    """Operands and a result of two windows each, and an operand of one: 7 or 9 bindings."""
    from firebrick.core.aval import Aval

    g = Graph([Aval((40_000, 1000), fb.float32)] * operands + [Aval((1000,), fb.float32)])
    total = 0
    for k in range(1, operands + 1):
        (total,) = g.add(OPS["add"], total, k)
    g.outputs = (total,)
    windows = [sum(k.windows) for k in web_plan(g).kernels]
    assert windows == ([7] if operands == 2 else [6, 5])


def test_kernels_keep_to_the_default_limits() -> None:
    c = PAGE.capabilities
    assert (c.buffers, c.binding_bytes, c.group_items, c.shared_bytes) == (7, 128 << 20, 256, 16 << 10)
    assert PAGE.contracts
    assert not any((c.int64, c.float64, c.float16, c.denormals, c.exact_fma, c.nan_comparisons))


K = fb.kernel


@K
def picked(u: K.In[fb.float32, "n"], at: K.In[fb.int32, "m"], out: K.Out[fb.float32, "m"]):  # noqa: F821, UP037
    i = K.index()
    out[i] = u[at[i]]


@K
def doubled(u: K.In[fb.float32, "n"], out: K.Out[fb.float32, "n"]):  # noqa: F821, UP037
    i = K.index()
    out[i] = u[i] * 2.0


def test_kernels_of_ones_own_are_exported_but_for_checks_in_them(tmp_path: Path) -> None:
    assert web.export(lambda u: doubled(u) + 1.0, [ones(5)], tmp_path / "page").launches == 1
    with pytest.raises(fb.UnsupportedError, match=r"a check in a kernel of one's own, at .*\n?.*Remedy: let fb\.take read"):
        web.export(picked, [ones(5), ones(2, dtype="int32")], tmp_path / "other")


def test_the_page_of_digits_is_for_programs_of_pictures(tmp_path: Path) -> None:
    facts = {"classes": ["a", "b"], "image_size": 2, "pixel_max": 16, "mean": 0.0, "std": 1.0}

    def summed(x: fb.Tensor) -> fb.Tensor:
        return fb.sum(x, axis=(1, 2))

    some = {k: facts[k] for k in ("classes", "image_size", "pixel_max")}
    with pytest.raises(fb.ConfigError, match="none for mean, std"):
        web.export(summed, [ones(1, 1, 2, 2)], tmp_path / "page", page="digits", facts=some)
    with pytest.raises(
        fb.ShapeError, match=r"takes float32\[1,1,2,2\] and returns float32\[1,2\]\nReceived: float32\[3,1,2,2\]"
    ):
        web.export(summed, [ones(3, 1, 2, 2)], tmp_path / "page", page="digits", facts=facts)
    assert not (tmp_path / "page").exists()
    web.export(summed, [ones(1, 1, 2, 2)], tmp_path / "page", page="digits", facts=facts)


def test_a_captured_tensor_with_the_name_of_a_constant_is_written(tmp_path: Path) -> None:
    w = fb.asarray([2.0, 3.0, 4.0], device="numpy", dtype=fb.float32)
    w.label = "constant.0"
    table = np.array([1.0, 0.0, 5.0], np.float32)
    found = web.export(lambda x: fb.sort(x * w) @ fb.asarray(table, device="numpy"), [ones(3)], tmp_path / "page").folder
    plan = json.loads((found / "program.json").read_text())
    assert {t["name"] for t in plan["weights"]["tensors"]} == {"constant.0", "_constant.0"}
    assert len({t["buffer"] for t in plan["weights"]["tensors"]}) == 2


def test_two_captured_tensors_of_one_name_are_both_written(tmp_path: Path) -> None:
    def made(k: float) -> object:
        w = ones(3) * k
        return lambda x: x * w

    f, g = made(2.0), made(3.0)
    found = web.export(lambda x: f(x) + g(x), [ones(3)], tmp_path / "page").folder  # type: ignore[operator]
    import safetensors.numpy

    values = [x[0] for x in safetensors.numpy.load_file(found / "weights.safetensors").values()]
    assert sorted(values) == [2.0, 3.0]


def test_weights_have_their_names_in_the_model_called_before_or_not(tmp_path: Path) -> None:
    for k, called in enumerate((False, True)):
        model = fb.nn.Sequential(fb.nn.Linear(3, 2), fb.nn.Linear(2, 2)).to("numpy").eval()
        if called:
            model(ones(1, 3))
        plan = json.loads((web.export(model, [ones(1, 3)], tmp_path / str(k)).folder / "program.json").read_text())
        names = [w["name"] for w in plan["weights"]["tensors"]]
        assert names == ["layers.0.weight", "layers.0.bias", "layers.1.weight", "layers.1.bias"]


def test_exporting_needs_no_wgpu(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['wgpu'] = None\n"
        "import firebrick as fb\nfrom firebrick.interop import web\n"
        f"print(web.export(lambda x: fb.exp(x), [fb.ones(3, device='numpy')], {str(tmp_path / 'page')!r}).launches)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("1\n", "")


def test_the_self_test_allows_for_the_rounding_of_each_dtype(tmp_path: Path) -> None:
    def results(x: fb.Tensor) -> list[fb.Tensor]:
        return [fb.exp(x), fb.astype(x, fb.bfloat16) * 3, fb.astype(x, fb.float16) * 3, fb.argmax(x), x > 0]

    plan = json.loads((web.export(results, [ones(3)], tmp_path / "page").folder / "program.json").read_text())
    assert list(plan["selftest"]["tolerances"].values()) == [1e-3, 3e-2, 4e-3, 0.0, 0.0]
    for name, unit in (("float16", 2.0**-11), ("bfloat16", 2.0**-8)):
        assert 4 * unit <= exporting.TOLERANCES[name] < 16 * unit


def test_names_of_inputs_are_those_of_the_function() -> None:
    assert exporting._names_of(lambda image, scale, *more: image, 4) == ["image", "scale", "input2", "input3"]
    assert exporting._names_of(fb.nn.Sequential(fb.nn.ReLU()), 1) == ["input"]
    assert exporting._names_of(fb.nn.Linear(2, 2), 1) == ["x"]


def test_views_of_elements_that_webgpu_lacks_are_refused_by_name() -> None:
    graph = Graph([Aval((2, 3), complex128)])
    graph.outputs = graph.add(OPS["permute"], 0, axes=(1, 0))
    with pytest.raises(fb.UnsupportedError, match=r"permute: elements of at most 8 bytes.*\(received complex128\[3,2\]\)"):
        web_plan(graph)
