"""What the examples of this folder share: the options ``--out`` and ``--short``, and a picture file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np


def options(description: str) -> tuple[Path, bool]:
    """The picture's path, and whether a short run is asked for."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path("picture.png"), help="picture to write (picture.png)")
    parser.add_argument("--short", action="store_true", help="small sizes, within a second or two")
    args = parser.parse_args()
    return args.out, args.short


def save(path: Path, panels: dict[str, np.ndarray[Any, Any]], colours: str = "magma") -> None:
    """Write images beside each other."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(5 * len(panels), 5), layout="constrained", squeeze=False)
    for axis, (title, image) in zip(axes[0], panels.items(), strict=True):
        axis.imshow(image, cmap=colours, origin="lower", interpolation="nearest")
        axis.set_title(title)
        axis.set_axis_off()
    figure.savefig(path, dpi=120)
    print(f"wrote {path}")
