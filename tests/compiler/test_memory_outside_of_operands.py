"""No kernel reads or writes outside of its operands and results, even what it does not use: that memory may not exist."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import guarded_operands
import pytest


@pytest.mark.skipif(os.name != "posix", reason="pages without access by mprotect")
@pytest.mark.parametrize("width", [128, 256, 512])
def test_kernels_stay_within_arrays_at_the_edge_of_accessible_memory(width: int) -> None:
    file = Path(guarded_operands.__file__)
    done = subprocess.run([sys.executable, str(file), str(width)], capture_output=True, text=True, timeout=300, check=False)
    last = done.stdout.splitlines()[-1:]
    if last == ["no vectors of this width"]:
        pytest.skip(f"no vectors of {width} bits here")
    assert (done.returncode, last) == (0, ["done"]), done.stderr
