"""What can go wrong between a data set and a batch on a device."""

from __future__ import annotations

from firebrick.core.errors import FirebrickError


class LoaderError(FirebrickError, ValueError):
    """A data set or loader was given what it cannot use: no samples, unequal arrays, a bad slice, a foreign cursor."""
