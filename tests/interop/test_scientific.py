"""scikit-learn and SciPy compute with tensors what they compute with NumPy's arrays."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from extras import need

need("sklearn")
need("scipy")


@pytest.mark.slow
def test_estimators_metrics_and_functions_are_those_of_numpys_arrays_on_each_device() -> None:
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("scientific.py"))], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-2000:]
    found = json.loads(run.stdout)
    assert len(found) > 150
    assert {case: what for case, what in found.items() if what is not None} == {}
