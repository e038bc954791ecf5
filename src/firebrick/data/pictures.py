"""A batch of images as one picture: a grid, written as a PNG file without any library."""

from __future__ import annotations

import os
import struct
import zlib
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np

from firebrick.core.dtypes import python_kind
from firebrick.core.errors import ConfigError, DTypeError, OperandError, ShapeError
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import number, whole
from firebrick.core.tensor import Tensor
from firebrick.data.dataset import Array

_KINDS = {1: 0, 2: 4, 3: 2, 4: 6}  # PNG's colour type by number of channels: grey, grey with alpha, RGB, RGBA
_WHERE = "save_image_grid"


@answers_arguments
def save_image_grid(
    images: Tensor | Array, path: str | os.PathLike[str], *, layout: str = "NCHW", columns: int = 8, padding: int = 2,
    low: float | None = 0.0, high: float | None = 1.0,
) -> Path:  # fmt: skip
    """Write a batch of images as a grid, row by row, into a PNG file.

    A pixel v of a floating or bool dtype is shown as round(255 · (v - low) / (high - low)), clipped to [0, 255]; uint8 pixels
    are shown as they are. The space between images is white.

    Args:
        images: Tensor or array [batch, channels, height, width] with 1 (grey), 2 (grey, alpha), 3 (RGB) or 4 (RGBA)
            channels, or [batch, height, width], which is grey. Of a floating dtype, bool or uint8.
        path: File to write; its name ends in ``.png``. A file that is there is replaced.
        layout: ``"NCHW"``, or ``"NHWC"`` for images with channels last.
        columns: Images in a row of the grid.
        padding: Pixels between two images and around the grid.
        low: Value that is black; the smallest pixel of the batch if None.
        high: Value that is white; the largest pixel of the batch if None.

    Returns:
        The path.

    Raises:
        ShapeError: It is no batch of images.
        DTypeError: The pixels are of another dtype.
        ConfigError: A setting is out of its range, a pixel is NaN, or the path is no PNG file in a directory that is there.

    Source: "Portable Network Graphics (PNG) Specification", third edition, W3C.

    Example:
        >>> import os, tempfile
        >>> import firebrick as fb
        >>> images = fb.random.uniform((10, 3, 28, 28))
        >>> fb.data.save_image_grid(images, os.path.join(tempfile.mkdtemp(), "samples.png"), columns=5).name
        'samples.png'
    """
    goal = _checked_path(path)
    across, space = whole(_WHERE, "columns", columns, 1), whole(_WHERE, "padding", padding, 0)
    grid = _grid(_pixels(_batch(images, layout), low, high), across, space)
    part = goal.with_name(f".{goal.name}.part")
    try:
        part.write_bytes(_png(grid))
        part.replace(goal)  # a reader never sees half a picture
    finally:
        part.unlink(missing_ok=True)
    return goal


def _checked_path(path: Any) -> Path:
    try:
        found = Path(path)
    except TypeError:
        raise ConfigError(f"{_WHERE}: path is a path", type(path).__name__, 'pass e.g. "samples.png"') from None
    if found.suffix.lower() != ".png":
        raise ConfigError(f"{_WHERE}: the name of the file ends in .png", repr(str(found)), "rename it")
    if not found.parent.is_dir():
        raise ConfigError(f"{_WHERE}: the directory of the file is there", repr(str(found.parent)), "make it first")
    return found


def _batch(images: Any, layout: Any) -> Array:
    """Images [batch, height, width, channels]."""
    if not isinstance(images, (Tensor, np.ndarray)):
        raise OperandError(
            f"{_WHERE}: images is a tensor or a NumPy array", f"images: {type(images).__name__}", "stack them: fb.stack(images)"
        )
    if layout not in ("NCHW", "NHWC"):
        raise ConfigError(f'{_WHERE}: layout is "NCHW" or "NHWC"', f"layout={layout!r:.40}", "use one of these")
    host: Array = images.numpy() if isinstance(images, Tensor) else images
    shape = tuple(host.shape)
    if host.ndim == 3:
        host = host[..., None]
    elif host.ndim == 4 and layout == "NCHW":
        host = host.transpose(0, 2, 3, 1)
    if host.ndim != 4 or host.shape[3] not in _KINDS or not host.size:
        other = "NHWC" if layout == "NCHW" else "NCHW"
        last = len(shape) == 4 and shape[3 if layout == "NCHW" else 1] in _KINDS
        wanted = "[batch, channels, height, width]" if layout == "NCHW" else "[batch, height, width, channels]"
        raise ShapeError(
            f"{_WHERE}: images are {wanted} with 1 to 4 channels, or [batch, height, width], and at least one pixel",
            f"images of shape {shape}",
            f'pass layout="{other}"' if last else "reshape them, or add the batch axis with fb.expand_dims",
            op=_WHERE,
        )
    return host


def _pixels(images: Array, low: float | None, high: float | None) -> Array:
    """The same as uint8."""
    if images.dtype == np.uint8:
        return images
    if python_kind(images.dtype.type) not in (float, bool):
        raise DTypeError(
            f"{_WHERE}: images are of a floating dtype, bool or uint8",
            f"images of dtype {images.dtype}",
            "cast numbers in [0, 255] to uint8: fb.astype(images, fb.uint8)",
            op=_WHERE,
        )
    values = images.astype(np.float64)
    if np.isnan(values).any():
        raise ConfigError(
            f"{_WHERE}: no pixel is NaN",
            f"{int(np.isnan(values).sum())} of {values.size}",
            "replace them: fb.nan_to_num(images)",
        )
    least = float(values.min()) if low is None else number(_WHERE, "low", low)
    most = float(values.max()) if high is None else number(_WHERE, "high", high)
    if low is None and high is None and least == most:
        most = least + 1.0  # a batch of one value is black
    if not (np.isfinite(least) and np.isfinite(most) and least < most):
        raise ConfigError(
            f"{_WHERE}: low and high are finite, and low < high", f"{least!r} and {most!r}", "pass e.g. 0.0 and 1.0"
        )
    shown: Array = np.rint(255.0 * np.clip((values - least) / (most - least), 0.0, 1.0)).astype(np.uint8)
    return shown


def _grid(images: Array, columns: int, padding: int) -> Array:
    """One image [height, width, channels] of all, on white."""
    count, height, width, channels = images.shape
    across = min(columns, count)
    down = ceil(count / across)
    tall, wide = height + padding, width + padding
    grid = np.full((down * tall + padding, across * wide + padding, channels), 255, np.uint8)
    for i, image in enumerate(images):
        y, x = padding + i // across * tall, padding + i % across * wide
        grid[y : y + height, x : x + width] = image
    return grid


def _png(image: Array) -> bytes:
    """The bytes of a PNG file: each row is stored without a filter."""
    height, width, channels = image.shape
    rows = np.zeros((height, 1 + width * channels), np.uint8)  # a row begins with the number of its filter, 0
    rows[:, 1:] = image.reshape(height, width * channels)
    header = struct.pack(">IIBBBBB", width, height, 8, _KINDS[channels], 0, 0, 0)
    parts = (b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )
