"""Whether the library that NumPy has loaded computes products: a table of libraries, of which none is loaded."""

from __future__ import annotations

import ctypes
import os
from types import SimpleNamespace
from typing import Any

import pytest
import threadpoolctl

from firebrick.compiler.targets.llvm import library_product
from firebrick.compiler.targets.llvm.library_product import Library

FOUND = Library("scipy_", "64_")
OPENBLAS = {"internal_api": "openblas", "filepath": "/x/numpy.libs/libopenblas.so"}
NAMES = ("scipy_cblas_sgemm64_", "scipy_cblas_dgemm64_", "scipy_openblas_set_num_threads64_")
# what threadpoolctl finds, symbols of the libraries (None: it cannot be loaded), the system → the library
LIBRARIES: dict[str, tuple[list[dict[str, str]], Any, str, Library | None]] = {
    "NumPy's": ([OPENBLAS], NAMES, "posix", FOUND),
    "after others": ([{"internal_api": "openmp", "filepath": "numpy"}, OPENBLAS], NAMES, "posix", FOUND),
    "SciPy's first": ([{**OPENBLAS, "filepath": "/x/scipy.libs/a.so"}, OPENBLAS], NAMES, "posix", FOUND),
    "SciPy's alone": ([{**OPENBLAS, "filepath": "/x/scipy.libs/a.so"}], NAMES, "posix", None),
    "another library": ([{"internal_api": "mkl", "filepath": "/x/numpy.libs/a.so"}], NAMES, "posix", None),
    "of no known kind": ([{"filepath": "/x/numpy.libs/a.so"}], NAMES, "posix", None),
    "none": ([], NAMES, "posix", None),
    "one that cannot be loaded": ([OPENBLAS], None, "posix", None),
    "32-bit integers": ([OPENBLAS], ("cblas_sgemm", "cblas_dgemm", "openblas_set_num_threads"), "posix", None),
    **{f"without {name}": ([OPENBLAS], tuple(n for n in NAMES if n != name), "posix", None) for name in NAMES},
    "Windows": ([OPENBLAS], NAMES, "nt", None),
}  # fmt: skip


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_library_that_computes_products_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    facts, symbols, system, expected = LIBRARIES[name]
    loaded = []

    def load(path: str, mode: int) -> Any:
        loaded.append((path, mode))
        if symbols is None:
            raise OSError
        return SimpleNamespace(**dict.fromkeys(symbols, "a function"))

    monkeypatch.setattr(threadpoolctl, "threadpool_info", lambda: facts)
    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(os, "name", system)
    found = library_product.library.__wrapped__()
    monkeypatch.undo()
    assert found == expected
    assert loaded == ([(OPENBLAS["filepath"], ctypes.RTLD_GLOBAL)] if OPENBLAS in facts and system == "posix" else [])
