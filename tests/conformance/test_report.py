"""What a report of conformance keeps of its verdicts."""

from firebrick.testing import check_tangents
from firebrick.testing.report import Report, Verdict


def verdict(op: str, units: float, gradient: float = 0.0, message: str = "") -> Verdict:
    return Verdict(not message, op, "float32", "row", "strided", "none", units, message, gradient)


def test_a_report_keeps_the_worst_of_each_op_and_of_its_gradient() -> None:
    report = Report("cpu:0", 7)
    assert not report.ok, "nothing was checked"
    for v in (verdict("add", 0.25, 0.125), verdict("add", 0.5, 0.0), verdict("exp", 0.0), verdict("add", 0.125, 0.25)):
        report.add(v)
    assert report.ok
    assert (report.worst, report.worst_gradient) == ({"add": 0.5, "exp": 0.0}, {"add": 0.25, "exp": 0.0})


def test_failures_are_counted_and_shown_by_op_and_are_no_measure_of_what_is_right() -> None:
    report = Report("cpu:0", 7)
    for v in (verdict("add", 0.5), *(verdict("exp", 1e9, message=f"element {i} is wrong") for i in range(5))):
        report.add(v)
    assert not report.ok
    assert (report.checked, report.failed_ops, report.worst) == (6, {"exp"}, {"add": 0.5})
    text = str(report)
    assert text.startswith("cpu:0, seed 7: 6 cases, 5 failed\nexp: 5 failed, for example\n")
    lines = [f"  exp float32 'row' strided: FAILED: element {i} is wrong" for i in range(3)]
    assert text.splitlines()[2:] == lines
    report.fallbacks |= {"sin", "erf"}
    assert str(report).splitlines()[2:] == [*lines, "ran on the host: erf, sin"]
    assert str(verdict("add", 0.1234)) == "add float32 'row' strided: ok, 0.123 units"
    jit = Verdict(True, "add", "int8", "row", "offset", "aliased", 1.0, mode="jit")
    assert str(jit) == "add int8 'row' offset out=aliased jit: ok, 1 units"


def test_the_worst_deviation_is_zero_where_all_agree() -> None:
    assert check_tangents("numpy", ops=["negative"]).worst == {"negative": 0.0}
