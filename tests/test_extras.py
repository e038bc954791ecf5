"""Tests whose packages are missing are skipped, and fail in CI."""

from __future__ import annotations

import pytest
from extras import imported, need


def test_a_package_that_is_missing_skips_a_test_but_fails_it_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    assert imported("numpy").__name__ == "numpy"
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no_such_package is not installed"):
        need("no_such_package")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI must have no_such_package"):
        need("no_such_package")
