"""Docstrings as Markdown: the sections of a docstring, and its text with links to other names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

SECTIONS = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example")
LISTED = frozenset(("Args", "Attributes", "Raises"))
"""Sections that are lists of names, each with a text."""

_HEAD = re.compile(rf"^({'|'.join(SECTIONS)}):[ ]*(.*)$")
_ITEM = re.compile(r"^(\*{0,2}\w[\w., *]*?)(?: \([^)]*\))?:\s+(.*)$")
_CODE = re.compile(r"(``.+?``|`[^`]+?`)", flags=re.S)

Link = Callable[[str], str | None]
"""The address of a public name, or None for other code."""


@dataclass
class Docstring:
    """The parts of a docstring.

    Attributes:
        text: Description, as Markdown.
        sections: Lines of each section that it has, without their indentation.
    """

    text: str
    sections: dict[str, list[str]] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """The first sentence, or the first paragraph if that has none."""
        paragraph = " ".join(self.text.split("\n\n")[0].split())
        found = re.match(r"(.+?[.!?])(?= [A-Z`]|$)", paragraph)
        return found[1] if found else paragraph

    def names(self) -> set[str]:
        """Arguments and attributes that are described."""
        return {part.strip(" *") for s in ("Args", "Attributes") for names, _ in self.items(s) for part in names.split(",")}

    def items(self, section: str) -> list[tuple[str, str]]:
        """Names and texts of a section that is a list."""
        found: list[tuple[str, str]] = []
        for line in self.sections.get(section, []):
            m = None if line.startswith(" ") else _ITEM.match(line)
            if m:
                found.append((m[1], m[2]))
            elif found:
                found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}".strip())
        return found


def parse(doc: str) -> Docstring:
    """The parts of a docstring whose indentation is cleaned.

    Args:
        doc: Docstring in Google's style.
    """
    text: list[str] = []
    sections: dict[str, list[str]] = {}
    current = text
    for line in doc.splitlines():
        head = _HEAD.match(line)
        if head:
            current = sections.setdefault(head[1], [])
            if head[2]:
                current.append(head[2])
        elif current is not text and line and not line.startswith(" "):  # text after a section belongs to the description
            current = text
            text += ["", line]
        else:
            current.append(line if current is text else line.removeprefix("    "))
    return Docstring(re.sub(r"\n{3,}", "\n\n", "\n".join(text)).strip(), sections)


def escaped(text: str) -> str:
    """Text whose characters mean nothing to Markdown."""
    return re.sub(r"([\\*_\[\]>|])", r"\\\1", text).replace("<", "&lt;")


def markdown(text: str, link: Link) -> str:
    """Text of a docstring as Markdown: code stays, and code that is a public name becomes a link.

    Args:
        text: Text, with code between double backticks.
        link: Gives addresses.
    """
    parts = []
    for part in _CODE.split(text):
        if not part.startswith("`"):
            parts.append(escaped(part))
            continue
        code = part.strip("`").strip()
        address = link(code.removesuffix("()"))
        parts.append(f"[`{code}`]({address})" if address else f"`{code}`")
    return "".join(parts)
