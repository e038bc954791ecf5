"""The conformance suite can fail: it names the op of every planted fault, and passes without one."""

from collections.abc import Iterable

import numpy as np
import pytest

import firebrick as fb
from firebrick.backends.registry import engines as engine_names
from firebrick.core import planned
from firebrick.core.op import Sample
from firebrick.testing import cases, check_gradients, conformance, faults, gradients, run_cases
from firebrick.testing.gradients import _top, has_gradient
from firebrick.testing.large import LONG, calls, check_large
from firebrick.testing.layouts import LAYOUTS, of_operand, place, values_in

BUT_CAST = [e for e in faults.EXAMPLES if e[1] != "cast"]
SOME = ["add", "multiply", "matmul", "relu", "cast", "sum", "where", "softmax", "maximum"]


def of_each(examples: Iterable[tuple[faults.Fault, str]]) -> pytest.MarkDecorator:
    """Run a test with each planted fault and the name of its op."""
    return pytest.mark.parametrize(
        ("fault", "name"), examples, ids=lambda v: v if isinstance(v, str) else v.__qualname__.split(".")[0]
    )


def test_an_op_that_gives_other_bits_the_second_time_is_reported() -> None:
    seen: set[bytes] = set()

    def fault(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        result = right(op, inputs, params, out)
        if op.name != "argmax" or out is not None:
            return result
        key = inputs[0].tobytes() + repr((inputs[0].dtype, inputs[0].shape, params)).encode()
        again = key in seen
        seen.add(key)
        return result + 1 if again else result

    with faults.planted(fault) as device:
        report = conformance(device, ["argmax"], ["int64"], modes=["eager"])
    assert report.failed_ops == {"argmax"}
    assert any("the second time" in v.message for v in report.failures), report


def test_the_same_engine_without_a_fault_passes() -> None:
    with faults.planted(faults.sound()) as device:
        report = conformance(device, SOME, subset="turns", modes=["eager", "jit"])
    assert report.ok, report


@of_each(faults.EXAMPLES)
def test_a_planted_fault_is_reported_by_the_name_of_its_op(fault: faults.Fault, name: str) -> None:
    # gradient rules multiply, add and cast, and the suite adds: such a fault is felt, rightly, in other ops as well
    ops = [name] if name in ("add", "cast", "multiply") else SOME
    with faults.planted(fault) as device:
        report = conformance(device, ops, subset="turns", modes=["eager"])
    assert report.failed_ops == {name}, report
    assert name in str(report)


# the one missing shares the memory of a cast to the dtype that a value has already, which no graph keeps
@of_each(BUT_CAST)
def test_a_fault_of_executables_alone_is_reported_by_the_name_of_its_op(fault: faults.Fault, name: str) -> None:
    with faults.planted(fault, programs=True) as device:
        assert conformance(device, [name], ["float64"], modes=["eager"]).ok
        report = conformance(device, [name, "logical_and", "take"], subset="turns", modes=["jit"])
    assert report.failed_ops == {name}, report
    assert {v.mode for v in report.failures} == {"jit"}
    assert " jit: FAILED" in str(report)


def test_an_executable_that_writes_its_operand_is_reported() -> None:
    with faults.planted(faults.writes_operand("relu"), programs=True) as device:
        report = conformance(device, ["relu"], ["float64"], modes=["jit"])
    assert any("operand 0 changed" in v.message for v in report.failures), report


# cast has a dtype for a parameter, and no plans
@of_each(BUT_CAST)
def test_a_fault_of_repeated_operations_alone_is_reported_by_the_name_of_its_op(fault: faults.Fault, name: str) -> None:
    with faults.planted(fault, repeats=True) as device:
        assert conformance(device, [name], subset="turns", modes=["jit"]).ok
        report = conformance(device, [name, "logical_and", "take"], subset="turns", modes=["repeated"])
    assert report.failed_ops == {name}, report
    assert {v.mode for v in report.failures} == {"repeated"}
    assert " repeated: FAILED" in str(report)


def _scalar_without_axes(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
    return right(op, inputs, params, out)[()]


def _of_other_parameters() -> faults.Fault:
    kept: dict[object, object] = {}

    def fault(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        key = op.name, tuple((x.shape, x.dtype) for x in inputs)
        return kept.setdefault(key, right)(op, inputs, params, out)

    return fault


def _of_other_values() -> faults.Fault:
    kept: dict[object, np.ndarray] = {}

    def fault(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        key = op.name, repr(params), tuple((x.shape, x.dtype) for x in inputs)
        if key not in kept:
            kept[key] = right(op, inputs, params, out)
        return kept[key].copy()

    return fault


def _into_one_buffer() -> faults.Fault:
    kept: dict[object, np.ndarray] = {}

    def fault(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        result = right(op, inputs, params, out)
        buffer = kept.setdefault((op.name, result.shape, result.dtype), np.empty_like(result))
        buffer[...] = result
        return buffer

    return fault


def _copied(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
    return np.array(right(op, inputs, params, out))


def _flat(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
    return right(op, inputs, params, out).reshape(-1)


@pytest.mark.parametrize(
    ("fault", "name", "text"),
    [
        (_scalar_without_axes, "slice", "is held as <class 'numpy.float32'>, not <class 'numpy.ndarray'>"),
        (_of_other_parameters(), "cumulative_sum", "is off by"),
        (_of_other_values(), "exp", "is off by"),
        (_into_one_buffer(), "multiply", "other bits"),
        (_copied, "permute", "views other memory than that of the general path"),
        (_flat, "tanh", "none of the planned shape"),
        (faults.shares_memory("abs"), "abs", "output array is read-only"),
    ],
    ids=["scalar", "parameters", "values", "buffer", "copy", "shape", "memory"],
)
def test_a_kernel_that_is_kept_for_what_it_does_not_fit_is_reported(fault: faults.Fault, name: str, text: str) -> None:
    with faults.planted(fault, repeats=True) as device:
        report = conformance(device, [name], ["float32"], modes=["repeated"])
    assert any(text in v.message for v in report.failures), report


@pytest.mark.parametrize(("left_out", "name"), [("params", "cumulative_sum"), ("shapes", "sum")])
def test_a_plan_that_serves_other_parameters_or_shapes_is_reported(
    left_out: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = planned.key_of

    def key_of(op, inputs, params):  # type: ignore[no-untyped-def]
        key = right(op, inputs, {} if left_out == "params" else params)
        return key if left_out == "params" else tuple(part for part in key if not isinstance(part, tuple))

    assert conformance("numpy", [name], ["float32"], modes=["repeated"]).ok
    monkeypatch.setattr(planned, "key_of", key_of)
    report = conformance("numpy", [name], ["float32"], modes=["repeated"])
    assert any("a repeated result is off by" in v.message for v in report.failures), report


@pytest.mark.parametrize("name", ["exp", "multiply", "layer_norm"])
def test_a_gradient_rule_that_is_replayed_with_its_first_operands_is_reported(name: str) -> None:
    with faults.stale_replays() as device:
        assert conformance(device, [name], ["float32"], modes=["eager"]).ok
        report = conformance(device, [name], ["float32"], modes=["repeated"])
    assert any("a repeated gradient has other bits" in v.message for v in report.failures), report


def test_destinations_that_read_zero_are_reported_for_every_op_that_has_one() -> None:
    with faults.planted(faults.destinations_read_zero()) as device:
        report = conformance(device, SOME, subset="turns", modes=["eager"])
        assert report.failed_ops == set(SOME), report
        assert {v.destination for v in report.failures} == {"fresh"}  # only there the engine gets the memory

        # what an optimizer does: the update itself must not be lost
        w, step = fb.ones(3, device=device), fb.ones(3, device=device)
        fb.add(w, step, out=fb.empty(3, device=device))
        assert fb.subtract(w, step, out=fb.empty(3, device=device)).tolist() == [0.0] * 3


@pytest.mark.parametrize("name", ["sin", "matmul", "sum", "conv", "layer_norm", "sort", "take"])
def test_a_gradient_that_is_off_by_a_factor_is_reported_by_the_name_of_its_op(name: str) -> None:
    with faults.wrong_gradient(name):
        report = check_gradients([name])
    assert report.failed_ops == {name}
    assert check_gradients([name]).ok


def test_an_engine_whose_gradient_differs_is_reported_by_the_name_of_its_op() -> None:
    # exp's rule multiplies: a wrong product shows in the gradient of exp on that engine, which is right in itself
    with faults.planted(faults.reads_zero("multiply")) as device:
        report = conformance(device, ["exp"], ["float32"], modes=["eager", "jit"])
    assert report.failed_ops == {"exp"}
    assert "gradient" in report.failures[0].message


def test_a_gradient_in_float64_is_computed_once_and_found_wrong_on_another_engine_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computed: list[str] = []
    right = gradients._computed_reference
    monkeypatch.setattr(gradients, "_kept", None)
    monkeypatch.setattr(gradients, "_computed_reference", lambda op, *rest: computed.append(op.name) or right(op, *rest))
    with gradients.references_kept():
        assert conformance("numpy", ["exp"], ["float32"], modes=["eager", "jit"]).ok
        first = len(computed)
        assert first
        with faults.planted(faults.reads_zero("multiply")) as device:
            assert conformance(device, ["exp"], ["float32"], modes=["eager", "jit"]).failed_ops == {"exp"}
        assert len(computed) == first
        with faults.wrong_gradient("exp"):  # another rule has another reference, to which this engine keeps
            assert conformance("numpy", ["exp"], ["float32"], modes=["eager", "jit"]).ok
        assert len(computed) == 2 * first
    assert conformance("numpy", ["exp"], ["float32"], modes=["eager", "jit"]).ok
    assert len(computed) == 3 * first


def test_values_that_cannot_be_read_fail_their_own_cases_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unreadable(np.ndarray):
        pass

    def fault(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        result = right(op, inputs, params, out)
        return result.view(Unreadable) if op.name == "floor" and result.ndim == 2 else result

    with faults.planted(fault) as device:
        right = device.backend.to_host

        def to_host(native):  # type: ignore[no-untyped-def]
            if isinstance(native, Unreadable):
                raise ValueError("lost")
            return right(native)

        monkeypatch.setattr(device.backend, "to_host", to_host)
        monkeypatch.setattr(device.backend, "read", lambda natives: [to_host(n) for n in natives])
        found = list(cases(device, ["floor", "abs"], ["float64"], modes=["eager"]))
        verdicts = list(run_cases(found))
    assert [str(v).split(": ")[0] for v in verdicts] == [c.name for c in found]
    lost = [v.message == "ValueError: lost" for v in verdicts]
    assert [not v.ok for v in verdicts] == lost == [c.op.name == "floor" and c.avals[1][0].ndim == 2 for c in found]
    assert 0 < sum(lost) < len([c for c in found if c.op.name == "floor"])


def test_an_error_of_one_case_does_not_fail_another_that_is_checked_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    broken: list[str] = []  # until values are read

    def fault(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        if op.name == "floor" or broken:
            broken.append(op.name)
            raise ValueError(op.name)
        return right(op, inputs, params, out)

    with faults.planted(fault) as device:
        right = device.backend.read

        def read(natives):  # type: ignore[no-untyped-def]
            broken.clear()
            return right(natives)

        monkeypatch.setattr(device.backend, "read", read)
        of = {n: next(cases(device, [n], ["int32"], modes=["eager"])) for n in ("floor", "abs")}
        verdicts = list(run_cases([of["floor"], of["abs"]]))
    assert [v.message for v in verdicts] == ["ValueError: floor", ""]


def test_a_case_that_fails_once_is_reported() -> None:
    seen: list[str] = []

    def fault(right, op, inputs, params, out):  # type: ignore[no-untyped-def]
        result = right(op, inputs, params, out)
        if op.name == "argmax":
            seen.append(op.name)
        return result + 1 if op.name == "argmax" and len(seen) == 1 else result

    with faults.planted(fault) as device:
        report = conformance(device, ["argmax"], ["int64"], modes=["eager"])
    assert len(report.failures) == 1
    assert report.failures[0].message.startswith("together with other cases, not alone: the result is off by")


def test_verdicts_name_dtype_sample_layout_and_both_values() -> None:
    with faults.planted(faults.ignores_strides("relu")) as device:
        text = str(conformance(device, ["relu"], ["float64"]).failures[0])
    assert "relu float64" in text
    assert any(layout in text for layout in LAYOUTS)
    assert "got" in text
    assert "want" in text


def test_a_faulty_engine_leaves_nothing_behind() -> None:
    with faults.planted(faults.reads_zero("add")) as device:
        x = fb.ones(3, device=device)
        assert (x + x).tolist() == [0.0] * 3
    assert faults.ENGINE not in engine_names()
    with faults.planted(faults.sound()) as device:
        x = fb.ones(3, device=device)
        assert (x + x).tolist() == [2.0] * 3
    with pytest.raises(fb.DeviceError):
        fb.device(faults.ENGINE)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_shows_its_values_and_is_what_its_name_says(layout: str) -> None:
    x = np.arange(12.0).reshape(3, 4) if layout != "broadcast" else np.tile(np.arange(4.0), (3, 1))
    t = place(layout, x, fb.device("numpy")) if layout != "mixed" else place("strided", x, fb.device("numpy"))
    assert t.numpy().tolist() == x.tolist()
    native = t.storage.data
    assert native.flags.c_contiguous == (layout == "contiguous")
    if layout == "negative":
        assert max(native.strides) < 0
    if layout == "broadcast":
        assert 0 in native.strides
    if layout == "offset":
        assert native.ctypes.data != t.storage.root.data.ctypes.data


def test_the_size_of_what_is_empty_or_no_number_is_0() -> None:
    arrays = (np.empty(0), np.array([True]), np.array([-3, 2]), np.array([3 + 4j]), np.float32(-2.5))
    assert [_top(np.asarray(a)) for a in arrays] == [0.0, 0.0, 3.0, 5.0, 2.5]


@pytest.mark.parametrize(
    ("op", "operand", "params", "safe", "has"),
    [
        ("cast", np.float32([1.0]), {"dtype": fb.float64}, True, True),
        ("cast", np.float32([1.0]), {"dtype": fb.float64}, False, False),
        ("cast", np.float32([1.0]), {"dtype": fb.int32}, True, False),
        ("cast", np.int32([1]), {"dtype": fb.float32}, True, False),
        ("sign", np.float32([1.0]), {}, True, False),
        ("exp", np.complex64([1.0]), {}, True, True),
    ],
)
def test_gradients_are_checked_where_a_rule_leads_from_inexact_results_to_inexact_operands(
    op: str, operand: np.ndarray, params: dict[str, fb.DType], safe: bool, has: bool
) -> None:
    assert has_gradient(fb.ops.OPS[op], Sample((operand,), params, grad_safe=safe)) == has


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(), (0,), (1,), (5,), (1, 3), (0, 3), (2, 3, 4)])
def test_operands_of_every_shape_are_placed_in_every_layout_among_other_values(layout: str, shape: tuple[int, ...]) -> None:
    x = np.arange(1.0, 1.0 + int(np.prod(shape))).reshape(shape)
    values = values_in(layout, x) if layout != "mixed" else x
    native = place("strided" if layout == "mixed" else layout, values, fb.device("numpy"))
    assert native.shape == shape
    assert native.numpy().tolist() == values.tolist()
    if layout == "offset" and x.size:
        around = native.storage.root.data
        assert around.shape == tuple(d + 3 for d in shape or (1,))
        assert set(around.reshape(-1).tolist()) <= set(x.reshape(-1).tolist())
        assert x.size == 1 or around.reshape(-1)[: x.size].tolist() != x.reshape(-1).tolist()
    if layout == "strided" and x.ndim == 1 and x.size > 1:
        assert native.storage.root.data[: x.size].tolist() != x.tolist()


def test_operands_of_a_mixed_layout_have_one_after_the_other_and_broadcast_ones_repeat_their_first_long_axis() -> None:
    assert [of_operand("mixed", i) for i in range(5)] == ["strided", "broadcast", "negative", "offset", "strided"]
    assert [of_operand("offset", i) for i in range(2)] == ["offset", "offset"]
    x = np.arange(6).reshape(1, 3, 2)
    assert values_in("broadcast", x).tolist() == [[[0, 1]] * 3]
    assert values_in("broadcast", x[:, :1, :1]).tolist() == [[[0]]]
    assert values_in("strided", x) is x


def test_large_calls_are_the_same_for_a_seed_and_name_what_is_off() -> None:
    first, again, other = (list(calls(seed)) for seed in (3, 3, 4))
    assert [name for name, _, _ in first] == [name for name, _, _ in other]
    assert all(
        a.tobytes() == b.tobytes() for one, two in zip(first, again, strict=True) for a, b in zip(one[1], two[1], strict=True)
    )
    assert first[0][1][0].tobytes() != other[0][1][0].tobytes()
    assert all(sum(a.size for a in arrays) > 1 << 16 or params.get("shape") == (LONG,) for _, arrays, params in first)
    with faults.planted(faults.reads_zero("add")) as device:
        report = check_large(device, ["add", "softmax"])
    assert (report.device, report.checked, report.failed_ops, report.seed) == (device.name, 4, {"add"}, 0)
    assert f"add float32 'large [{LONG}] [{LONG}]' contiguous: FAILED: the result is off by" in str(report)
    assert "softmax" in report.worst
