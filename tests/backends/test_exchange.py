"""Memory of other libraries in every layout: shared where that is possible, copied where it is not, never fatal."""

from __future__ import annotations

import numpy as np
import pytest

import firebrick as fb

X = np.arange(24.0).reshape(2, 3, 4)
LAYOUTS = {
    "contiguous": X,
    "transposed": X.T,
    "steps": X[:, ::2, 1:],
    "backwards": X[::-1, :, ::-1],
    "repeated": np.broadcast_to(X[:1], (5, 3, 4)),
    "empty": X[:0],
    "0-d": np.asarray(3.0),
    "read-only": np.frombuffer(X.tobytes()).reshape(X.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_comes_in(layout: str, device: str) -> None:
    a = LAYOUTS[layout]
    np.testing.assert_array_equal(fb.asarray(a, device=device).numpy(), a)
    try:
        lent = fb.asarray(a, device=device, copy=False)
    except (ValueError, BufferError, fb.UnsupportedError):
        pass  # it cannot be shared, and says so
    else:
        np.testing.assert_array_equal(lent.numpy(), a)
    if layout != "read-only":
        np.testing.assert_array_equal(fb.from_dlpack(a, device=device).numpy(), a)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_goes_out(layout: str, device: str) -> None:
    a = LAYOUTS[layout]
    t = fb.asarray(np.ascontiguousarray(X), device=device)
    views = {
        "contiguous": t,
        "transposed": fb.permute_dims(t, (2, 1, 0)),
        "steps": t[:, ::2, 1:],
        "backwards": t[::-1, :, ::-1],
        "repeated": fb.broadcast_to(t[:1], (5, 3, 4)),
        "empty": t[:0],
        "0-d": t[0, 0, 3],
    }
    if layout in views:
        np.testing.assert_array_equal(np.from_dlpack(views[layout]), a)
        np.testing.assert_array_equal(views[layout].numpy(), a)
        np.testing.assert_array_equal(np.asarray(views[layout]), a)
