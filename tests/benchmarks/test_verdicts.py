"""What the benchmarks conclude from times: which work counts as the same, when a target is met, what the document says."""

from pathlib import Path

import numpy as np
import pytest
from benchmarks.compare import Compared, Timed, _judge, differs, duration
from benchmarks.document import BEGIN, END, tables, write
from benchmarks.roofline import Rates
from benchmarks.work import Work
from benchmarks.worker import ContenderError, Form, quickest

RATES = Rates({1: 1e9, 2: 2e9}, {1: {1000: 1e9, 10**6: 1e8}, 2: {1000: 1e9, 10**6: 1e8}}, {1: "numpy", 2: "numpy"})


def judged(ours: float, peers: dict[str, float], ratio: float, flops: float = 0.0, nbytes: float = 0.0) -> Compared:
    timed = {"firebrick": Timed("", [ours]), **{n: Timed("", [s]) for n, s in peers.items()}}
    found = Compared("w", "training", 2, ratio, timed, {"flops": flops, "bytes": nbytes})
    _judge(found, Work("w", "training", threads=2, ratio=ratio), [], RATES)
    return found


def test_a_target_is_a_share_of_the_best_peer() -> None:
    assert judged(0.69, {"torch": 1.0, "jax.jit": 2.0}, 0.7).met
    assert not judged(0.71, {"torch": 1.0, "jax.jit": 2.0}, 0.7).met
    assert not judged(0.71, {"torch": 2.0, "jax.jit": 1.0}, 0.7).met
    assert judged(0.71, {"torch": 2.0, "jax.jit": 1.0}, 0.7).best == "jax.jit"


def test_work_at_the_roofline_meets_its_target_whatever_the_peers_do() -> None:
    found = judged(1.1, {"torch": 1.0}, 0.7, flops=2e9)
    assert found.roofline == 1.0
    assert found.bound == "products"
    assert found.met
    assert not judged(1.2, {"torch": 1.0}, 0.7, flops=2e9).met


def test_bytes_are_held_to_the_copy_that_is_large_enough_for_them() -> None:
    assert RATES.seconds(0.0, 1000.0, 1) == (1e-6, "bytes")
    assert RATES.seconds(0.0, 2000.0, 1) == (2e-5, "bytes")
    assert RATES.seconds(0.0, 1e7, 1) == (0.1, "bytes")  # larger than any that was measured


def test_a_failed_contender_meets_no_target() -> None:
    found = judged(0.1, {"torch": 1.0}, 0.7)
    found.timed["firebrick"] = Timed(error="IndexError: no")
    assert found.met is False
    assert found.against is None


def test_results_are_the_same_only_with_the_same_shapes_and_values() -> None:
    a = np.asarray([1.0, 1e-3])
    assert differs([[a]], [[a]]) == 0.0
    assert differs([[a]], [[a + 1e-2]]) == pytest.approx(1e-2 / 1.01)
    assert differs([[a]], [[a[:1]]]) == float("inf")
    assert differs([[a]], [[a, a]]) == float("inf")
    assert differs([[a], [a]], [[a]]) == float("inf")
    assert differs([[a * np.nan]], [[a]]) == float("inf")


def test_the_quickest_form_is_one_that_works() -> None:
    assert quickest({"a": Form(seconds=2.0), "b": Form(seconds=1.0), "c": Form(error="no")}) == "b"
    with pytest.raises(ContenderError, match=r"c: no"):
        quickest({"c": Form(error="no")})


def test_the_documents_figures_are_replaced_and_nothing_else(tmp_path: Path) -> None:
    run = {
        "machine": {"processor": "P", "features": [], "cores": 2, "python": "3", "versions": {}}, "threads": 2, "rounds": 15,
        "begun": "now", "load": 0.0, "work": [judged(0.5, {"torch": 1.0}, 0.7).record() | {"name": "train/mlp/64"}],
    }  # fmt: skip
    document, source = tmp_path / "d.md", tmp_path / "r.json"
    import json

    source.write_text(json.dumps(run), "utf-8")
    document.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", "utf-8")
    write(source, document)
    text = document.read_text("utf-8")
    assert text.startswith("before\n")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    row = next(line for line in tables(run) if line.startswith("| mlp/64"))
    assert row in text
    assert "| 500 ms (500 ms – 500 ms) | 1 s | 0.50 | 0.70 |" in row
    assert row.endswith("| met |")
    document.write_text("no marks", "utf-8")
    with pytest.raises(ValueError, match="has no line"):
        write(source, document)


def test_durations_have_three_digits() -> None:
    assert [duration(s) for s in (1.234e-6, 0.00123456, 0.9994, 0.9996, 12.34)] == [
        "1.23 µs",
        "1.23 ms",
        "999 ms",
        "1 s",
        "12.3 s",
    ]
