"""From a picture file to what a model was trained on: grey, square, light on dark, of the data set's size and depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from firebrick.core.errors import FirebrickError, UnsupportedError

Array = np.ndarray[Any, np.dtype[np.uint8]]


class ImageError(FirebrickError, ValueError):
    """A picture file cannot be read."""


def read_image(path: Path, size: int, pixel_max: int) -> Array:
    """Read a picture the way the data sets store theirs.

    It is turned upright (EXIF), laid on white where it is transparent, and made grey. If its border is light (median of
    the outermost pixels above the middle), it is taken as dark on light and inverted, because the data sets are light on
    dark. It is padded to a square with the border's value, scaled to size × size, and rounded to 0 … pixel_max. What is
    shown must fill the picture as in the data set: it is neither searched for nor cut out. Of several frames the first is
    taken. Grey pictures of 16 or 32 bits or floats are refused: how they are scaled to 8 bits cannot be known.

    Args:
        path: PNG, JPEG, BMP, GIF, WebP, TIFF, PPM or PGM.
        size: Height and width of the result.
        pixel_max: Value of a full pixel.

    Returns:
        uint8 [size, size].

    Raises:
        ImageError: There is no such file, it is no picture, or it has grey values of more than 8 bits.
        UnsupportedError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageOps

        from firebrick.data.sources.images import FORMATS, DepthError, PictureError, picture
    except ImportError:
        raise UnsupportedError("reading pictures needs Pillow", "", "pip install 'firebrick[train]'") from None
    try:
        image = picture(path, lambda stored: ImageOps.exif_transpose(stored).convert("RGBA"))
    except DepthError as e:
        raise ImageError("a picture has 8 bits a channel", f"{path}: {e}", "save it with 8 bits a channel") from None
    except (OSError, PictureError) as e:
        missing = not path.exists()
        raise ImageError(
            f"a picture is a file of {', '.join(FORMATS)}",
            f"{path}: " + ("no such file" if missing else str(getattr(e, "strerror", None) or e).replace(f" '{path}'", "")),
            "check the path" if missing else "open it in a viewer, and save it again as PNG",
        ) from None
    if (most := Image.MAX_IMAGE_PIXELS) is not None and max(image.size) ** 2 > most:
        raise ImageError(
            f"a picture padded to a square has at most PIL.Image.MAX_IMAGE_PIXELS ({most}) pixels",
            f"{path}: {image.width}×{image.height}",
            "cut it to what it shows, or scale it down",
        )
    white = Image.new("RGBA", image.size, "white")
    grey = np.asarray(Image.alpha_composite(white, image).convert("L"))
    border = float(np.median(np.concatenate([grey[0], grey[-1], grey[:, 0], grey[:, -1]])))
    if border > 127.5:
        grey, border = 255 - grey, 255 - border
    height, width = grey.shape
    side = max(height, width)
    square = np.full((side, side), round(border), np.uint8)
    top, left = (side - height) // 2, (side - width) // 2
    square[top : top + height, left : left + width] = grey
    if side != size:
        how = Image.Resampling.BOX if side > size else Image.Resampling.BICUBIC
        square = np.asarray(Image.fromarray(square).resize((size, size), how))
    return np.rint(square.astype(np.float64) * (pixel_max / 255)).astype(np.uint8)
