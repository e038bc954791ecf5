"""Images in one folder a class, decoded by Pillow when they are asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from numbers import Integral
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from firebrick.core.untrusted import opened
from firebrick.data.errors import LoaderError
from firebrick.data.identity import chosen_rows
from firebrick.data.sources.optional import need

Array = np.ndarray[Any, Any]
_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # of Pillow; PPM has PGM in it
_WIDE = ("I", "F")  # beginnings of Pillow's modes of more than 8 bits; conversion to 8 bits would clip them
_SHAPES = {"RGB": "[height, width, 3]", "L": "[height, width]"}


class ImageFolder:
    """The images of a folder of classes: sample i is (image, number of its class).

    Images are uint8 [height, width, 3], or [height, width] in mode ``"L"``. Folders are sorted by name and numbered from 0,
    their files, in subfolders too, by path; so the numbers are the same on every machine.

    Files are converted as torchvision's ``ImageFolder`` does it, by ``PIL.Image.convert``: transparency is dropped, which shows
    the colours under it, the orientation in EXIF data is not applied, and of several frames the first is taken. Colours of 16
    bits, and a PPM's of another maximum, come from Pillow scaled to 8 bits. Grey images of 16 or 32 bits or floats, which
    ``convert`` would clip at 255, are refused unless ``to_uint8`` says how they are scaled.

    Args:
        root: Folder of one folder a class.
        size: (height, width) that images are resized to, bilinearly; as they are stored if None, to be of one size, or changed
            by the loader's ``sample_transform``.
        mode: ``"RGB"`` or ``"L"`` (grey), what all images are converted to.
        to_uint8: For grey images of more than 8 bits: from their values [height, width], integers or floats, to uint8 of the
            same shape, such as ``lambda a: (a // 257).astype("uint8")`` for 16 bits. Other images do not come here.

    Attributes:
        classes: Names of the folders.
        files: Paths of the images.
        targets: int64 [samples], their classes.

    Raises:
        UnsupportedError: Pillow is not installed.
        LoaderError: There is no such folder, no class or a class without images; when a sample is read, a file that is no whole
            image of PNG, JPEG, BMP, GIF, WebP, TIFF, PPM or PGM, or has more pixels than ``PIL.Image.MAX_IMAGE_PIXELS``; it is
            named. So is one of more than 8 bits without ``to_uint8``.

    Example:
        >>> import numpy as np
        >>> from pathlib import Path
        >>> from PIL import Image
        >>> from firebrick.data.sources import ImageFolder
        >>> for name, shade in (("cats", 10), ("dogs", 200)):
        ...     Path("pets", name).mkdir(parents=True)
        ...     Image.fromarray(np.full((4, 6), shade, np.uint8)).save(f"pets/{name}/one.png")
        >>> data = ImageFolder("pets", mode="L")
        >>> image, kind = data[1]
        >>> data.classes, image.shape, int(image[0, 0]), kind
        (('cats', 'dogs'), (4, 6), 200, 1)
    """

    def __init__(
        self, root: str | PathLike[str], *, size: tuple[int, int] | None = None, mode: str = "RGB",
        to_uint8: Callable[[Array], Array] | None = None,
    ) -> None:  # fmt: skip
        need("PIL.Image", "Pillow", "ImageFolder")
        self.root, self.size, self.mode = Path(root), size, mode
        self.to_uint8 = to_uint8
        if mode not in _SHAPES or (size is not None and not _is_size(size)):
            raise LoaderError(
                'an ImageFolder has mode "RGB" or "L" and a size (height, width), or None',
                f"mode {mode!r}, size {size!r}",
                'pass e.g. size=(64, 64), mode="L"',
            )
        folders = sorted(p for p in self.root.iterdir() if p.is_dir()) if self.root.is_dir() else []
        found = [sorted(f for f in p.rglob("*") if f.suffix.lower() in _SUFFIXES and not f.is_dir()) for p in folders]
        empty = [p.name for p, files in zip(folders, found, strict=True) if not files]
        if not folders or empty:
            raise LoaderError(
                f"{self.root} is a folder of one folder of images a class ({', '.join(sorted(_SUFFIXES))})",
                f"no images in {', '.join(empty)}" if folders else "no folders" if self.root.is_dir() else "no such folder",
                "name the folder that holds the folders of the classes; move away those without images",
            )
        self.classes = tuple(p.name for p in folders)
        self.files = tuple(f for files in found for f in files)
        self.targets: Array = np.repeat(np.arange(len(found)), [len(files) for files in found])

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int, /) -> tuple[Array, int]:
        file = self.files[index]
        return self._decoded(file), int(self.targets[index])

    def fingerprint(self) -> str:
        """Names and classes of all files, and the bytes of a few: what decoders make of them may differ by their version."""
        digest, root = hashlib.sha256(repr((self.classes, self.size, self.mode)).encode()), len(str(self.root))
        if self.to_uint8 is not None:
            digest.update(b"to_uint8")
        for file in self.files:
            digest.update(str(file)[root:].replace("\\", "/").encode("utf-8", "surrogateescape"))
        for i in chosen_rows(len(self.files)):
            digest.update(self.files[i].read_bytes())
        return digest.hexdigest()

    def _decoded(self, file: Path) -> Array:
        images = need("PIL.Image", "Pillow", "ImageFolder")
        try:
            image = picture(file, lambda stored: stored.convert(self.mode), self.to_uint8)
            if self.size is not None:
                image = image.resize((self.size[1], self.size[0]), images.Resampling.BILINEAR)
            return np.asarray(image)
        except DepthError as e:
            raise LoaderError(
                f"{file} is an image of 8 bits a channel",
                f"{e}",
                'save it with 8 bits, or scale its values, e.g. 16 bits with to_uint8=lambda a: (a // 257).astype("uint8")',
            ) from e
        except (OSError, PictureError) as e:
            raise LoaderError(
                f"{file} is an image {_SHAPES[self.mode]} of {', '.join(FORMATS)}", f"{e}", "mend the file or take it away"
            ) from e


class PictureError(ValueError):
    """A file is no whole image of ``FORMATS``, or has too many pixels."""


class DepthError(PictureError):
    """An image has values that do not fit into 8 bits."""


def picture(file: Path, change: Callable[[Any], Any], to_uint8: Callable[[Array], Array] | None = None) -> Any:
    """The image in a file, as ``change`` makes it of Pillow's.

    The content decides which of ``FORMATS`` it is, and nothing else is tried: Pillow has decoders that start programs
    (Ghostscript, for EPS).

    Raises:
        OSError: It is no regular file, or cannot be read.
        PictureError: It is no whole image of these formats, or has more pixels than ``PIL.Image.MAX_IMAGE_PIXELS``.
        DepthError: It has more than 8 bits a pixel in one channel, and ``to_uint8`` is None.
    """
    images = need("PIL.Image", "Pillow", "reading images")
    with opened(file) as stream:
        try:
            with images.open(stream, formats=FORMATS) as stored:
                most = images.MAX_IMAGE_PIXELS
                if most is not None and stored.width * stored.height > most:
                    raise ValueError(f"{stored.width}×{stored.height} pixels, more than PIL.Image.MAX_IMAGE_PIXELS ({most})")
                return change(_eight_bits(stored, to_uint8) if stored.mode.startswith(_WIDE) else stored)
        except DepthError:
            raise
        except images.UnidentifiedImageError:
            raise PictureError("no image of these formats") from None
        except Exception as e:  # a decoder that meets damage raises anything, MemoryError included
            raise PictureError(f"{type(e).__name__}: {e}") from e


def _eight_bits(stored: Any, to_uint8: Callable[[Array], Array] | None) -> Any:
    values = np.asarray(stored)
    if to_uint8 is None:
        lowest, highest = (values.min(), values.max()) if values.size else (0, 0)
        raise DepthError(f"grey values of {values.dtype.name} from {lowest} to {highest} (mode {stored.mode!r} of Pillow)")
    scaled: Any = to_uint8(values)
    if not isinstance(scaled, np.ndarray) or scaled.dtype != np.uint8 or scaled.shape != values.shape:
        got = f"{scaled.dtype}{list(scaled.shape)}" if isinstance(scaled, np.ndarray) else type(scaled).__name__
        raise DepthError(f"{got} from to_uint8, which gives uint8{list(values.shape)}")
    return need("PIL.Image", "Pillow", "reading images").fromarray(scaled)


def _is_size(value: Any) -> bool:
    return isinstance(value, Sequence) and len(value) == 2 and all(isinstance(n, Integral) and int(n) >= 1 for n in value)
