"""Puts the pages of the reference into the site when mkdocs builds it; none of them is a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parents[1]))

from api_reference import PAGES, write

OPENING = ({"All names": "reference/index.md"}, {"Names of other libraries": "reference/other-names.md"})


def on_config(config: Any) -> Any:
    """Add the pages to the navigation, in front of the reference."""
    chapters = [{group: [{p.title: f"reference/{p.file}.md"} for p in pages]} for group, pages in PAGES.items()]
    at = next(k for k, entry in enumerate(config["nav"]) if "Reference" in entry)
    config["nav"].insert(at, {"API reference": [*OPENING, *chapters]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to the files."""
    for path, text in write().items():
        files.append(File.generated(config, path, content=text))
    return files
