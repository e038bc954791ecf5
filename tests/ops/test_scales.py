"""The magnitudes by which errors are measured where terms cancel: too large a one hides a wrong result.

``scales.txt`` has the sums of those of each op's samples. ``PYTHONPATH=src:tests/shared python tests/ops/test_scales.py``
writes it anew, where a change is meant.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from firebrick.ops import OPS
from firebrick.ops.accuracy import widen
from firebrick.testing.cases import samples_of

FILE = Path(__file__).with_suffix("").with_name("scales.txt")


def scales() -> Iterator[tuple[str, list[float]]]:
    """Each op with a scale, and the sums of what it gives for its samples in the first dtype."""
    for op in OPS.values():
        if not callable(op.scale):
            continue
        found = []
        for sample in samples_of(op, op.dtypes[0], 0):
            with np.errstate(all="ignore"):
                given = op.scale(*(widen(np.asarray(a)) for a in sample.inputs), **sample.params)
                parts = given if isinstance(given, tuple) else (given,)
                found.append(float(sum(np.sum(np.where(np.isfinite(p), p, 0.0)) for p in parts)))
        yield op.name, found


def test_scales_are_those_that_are_written_down() -> None:
    written = {name: [float(v) for v in values] for name, *values in map(str.split, FILE.read_text("utf-8").splitlines())}
    found = dict(scales())
    assert found.keys() == written.keys()
    for name, values in found.items():
        np.testing.assert_allclose(values, written[name], rtol=1e-5, err_msg=name)
    assert len(found) > 20


if __name__ == "__main__":
    lines = [f"{name} {' '.join(f'{v:.6g}' for v in values)}" for name, values in scales()]
    FILE.write_text("\n".join(lines) + "\n", "utf-8")
