"""The pages as Markdown."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import firebrick as fb
from api_reference.docstrings import LISTED, SECTIONS, Docstring, Link, markdown, parse
from api_reference.names import Name, public_names
from api_reference.pages import PAGES, Page, place
from firebrick.core import other_names
from firebrick.core.config import SETTINGS
from firebrick.core.other_arguments import ARGUMENTS, NOTES

_WIDTH = 88
_CALLS = ("__call__", "__enter__", "__iter__", "__getitem__")
"""Special methods that are described if they have a docstring of their own."""
_PROTOCOLS = (fb.train.Strategy,)
"""Protocols whose methods describe the arguments for the classes that implement them."""
OTHER_NAMES = {
    "Functions and modules, as in fb.NAME": other_names.FUNCTIONS,
    "Layers, as in nn.NAME": other_names.LAYERS,
    "Optimizers and schedules, as in optim.NAME": other_names.OPTIMIZERS,
    "Random numbers, as in fb.random.NAME": other_names.RANDOM,
    "Methods and attributes of tensors, as in x.NAME": other_names.METHODS,
    "Attributes of dtypes, as in x.dtype.NAME": other_names.OF_DTYPES,
    "Methods and attributes of modules": other_names.OF_MODULES,
    "Methods and attributes of optimizers": other_names.OF_OPTIMIZERS,
    "Methods of schedules": other_names.OF_SCHEDULES,
    "Keyword arguments": {name: ", ".join(f"{n}=" for n in here) for name, here in ARGUMENTS.items()},
    "Keyword arguments without a counterpart": NOTES,
}
"""Names of other libraries, by where they are used."""


def write() -> dict[str, str]:
    """The text of each page, by its path below the documents.

    Raises:
        UnplacedNameError: A public name is on no page.
        UndescribedNameError: A public name has no docstring.
    """
    names = public_names()
    places = {n.path: place(n) for n in names}
    pages = {p.file: p for group in PAGES.values() for p in group}
    on: dict[str, list[Name]] = {file: [] for file in pages}
    for n in sorted(names, key=lambda n: (places[n.path][1], n.path.rpartition(".")[0], n.path.lower())):
        on[places[n.path][0]].append(n)
    files = {n.path: places[n.path][0] for n in names}
    files |= {m: files[n.path] for n in names if not n.same_as for m in members(n)}
    out = {f"reference/{file}.md": _page(pages[file], on[file], files) for file in pages}
    return {"reference/index.md": _index(on), "reference/other-names.md": _other_names(), **out}


def _address(code: str, file: str, files: dict[str, str], near: str = "fb") -> str | None:
    """Where a name stands, seen from a page.

    Args:
        code: Name, whole or within its namespace.
        file: The page.
        files: The page of each name.
        near: Name in whose text the code stands.
    """
    path = code.replace("firebrick.", "fb.", 1)
    if not path.startswith("fb."):
        around = near.split(".")
        # a name within the class, or within its namespace, but not the described name itself
        paths = [".".join([*around[:k], path]) for k in range(len(around), 0, -1)]
        path = next((p for p in paths if p in files), path)
    if path not in files or path == near:
        return None
    return f"#{path}" if files[path] == file else f"{files[path]}.md#{path}"


def _without(names: set[str], link: Link) -> Link:
    """Links to all but some names: ``warmup`` in the text of a function with such an argument is the argument."""
    return lambda code: None if code in names else link(code)


def _index(on: dict[str, list[Name]]) -> str:
    lines = ["# API reference", "", "All public names by chapter. The search field finds each of them.", ""]
    for group, pages in PAGES.items():
        lines += [f"## {group}", ""]
        for page in pages:
            lines += [f"### [{page.title}]({page.file}.md)", "", markdown(page.intro, lambda _: None), ""]
            lines += [" · ".join(f"[`{n.path.removeprefix('fb.')}`]({page.file}.md#{n.path})" for n in on[page.file]), ""]
    return "\n".join(lines)


def _other_names() -> str:
    lines = ["# Names of other libraries", "", (
        "Names of PyTorch, NumPy, JAX and Keras for which Firebrick has another name. Their use is an error whose text has the "
        "right column. See also coming from [PyTorch](../from-pytorch.md), [NumPy](../from-numpy.md), [JAX](../from-jax.md), "
        "[Keras](../from-keras.md) and [MLX](../from-mlx.md), and [the arguments of layers](../layers.md)."
    ), ""]  # fmt: skip
    for title, names in OTHER_NAMES.items():
        lines += [f"## {title}", "", "| name | write |", "|---|---|"]
        lines += [f"| `{name}` | `{written}` |" for name, written in sorted(names.items(), key=lambda n: n[0].lower())] + [""]
    return "\n".join(lines)


def _page(page: Page, names: list[Name], files: dict[str, str]) -> str:
    address = partial(_address, file=page.file, files=files)
    link: Link = address
    lines = [f"# {page.title}", "", markdown(page.intro, link), "", "| name | summary |", "|---|---|"]
    for n in names:
        doc = parse(f"Same as ``{n.same_as}``." if n.same_as else n.doc)
        near = partial(address, near=n.path)
        lines.append(f"| [`{n.path}`](#{n.path}) | {markdown(doc.summary, _without(doc.names(), near))} |")
    lines.append("")
    for n in names:
        link = partial(address, near=n.path)
        lines += [f"## `{n.path}` {{#{n.path}}}", ""]
        if n.same_as:
            lines += [markdown(f"Same as ``{n.same_as}``.", link), ""]
            continue
        lines += _described(n.path, n.value, n.kind, parse(n.doc), link)
        if n.path == "fb.config":
            lines += ["| setting | default | meaning |", "|---|---|---|"]
            lines += [f"| `{k}` | `{v.default!r}` | {markdown(v.meaning, link)} |" for k, v in SETTINGS.items()] + [""]
        owner = n.value if n.kind == "class" else type(n.value)
        for path, (value, kind) in members(n).items():
            lines += [f"### `{'.'.join(path.split('.')[-2:])}` {{#{path}}}", ""]
            lines += _described(path, value, kind, member_docstring(owner, value), link)
        if isinstance(owner, type) and n.kind == "class":
            bases = [f"``{_public(b)}``" for b in owner.__mro__[1:] if _public(b) in files]
            if bases:
                lines += [markdown(f"Its other members are those of {', '.join(bases)}.", link), ""]
    return "\n".join(lines)


_PATHS = {id(n.value): n.path for n in public_names() if not n.same_as and isinstance(n.value, type)}


def _public(cls: type) -> str:
    """Public name of a class, or ""."""
    return _PATHS.get(id(cls), "")


def members(name: Name) -> dict[str, tuple[Any, str]]:
    """The documented methods and properties of a class, those of bases that are not public included."""
    if name.path == "fb.config":
        classes: tuple[type, ...] = (type(name.value),)
    elif name.kind == "class":
        mro = name.value.__mro__
        public = next((k for k, c in enumerate(mro[1:], 1) if _public(c)), len(mro))
        classes = tuple(c for c in mro[:public] if c.__module__.startswith("firebrick"))
    else:
        return {}
    found: dict[str, tuple[Any, str]] = {}
    for cls in classes:
        for n, v in vars(cls).items():
            value = v.__func__ if isinstance(v, staticmethod | classmethod) else v
            kind = "property" if isinstance(value, property) else "method"
            if (n.startswith("_") and n not in _CALLS) or not (inspect.isfunction(value) or kind == "property"):
                continue
            if value.__doc__:
                kind = type(v).__name__ if isinstance(v, staticmethod | classmethod) else kind
                found.setdefault(f"{name.path}.{n}", (value, kind))
    return found


def parameters(value: Any, kind: str) -> list[str]:
    """Names of the arguments of a function or method, without ``self`` and private ones."""
    names = list(inspect.signature(value).parameters)
    return [n for n in (names[1:] if kind in ("method", "classmethod") else names) if not n.startswith("_")]


def member_docstring(owner: type, value: Any) -> Docstring:
    """The docstring of a method; arguments that it does not describe are those of the method that it implements."""
    doc = parse(inspect.cleandoc(value.__doc__))
    if isinstance(value, property):
        return doc
    lacking = [p for p in inspect.signature(value).parameters if p not in doc.names()]
    implemented = [p for p in _PROTOCOLS if all(hasattr(owner, n) for n, f in vars(p).items() if inspect.isfunction(f))]
    for base in (*owner.__mro__[1:], *implemented):
        of_base = getattr(vars(base).get(value.__name__), "__doc__", None)
        for names, text in parse(inspect.cleandoc(of_base)).items("Args") if of_base else ():
            kept = [n.strip() for n in names.split(",") if n.strip(" *") in lacking]
            if kept:
                doc.sections.setdefault("Args", []).append(f"{', '.join(kept)}: {text}")
                lacking = [p for p in lacking if p not in {k.strip("*") for k in kept}]
    return doc


def _described(path: str, value: Any, kind: str, doc: Docstring, link: Link) -> Iterator[str]:
    link = _without(doc.names(), link)
    if signature := _signature(path, value, kind):
        yield from ["```python", signature, "```", ""]
    yield from [markdown(doc.text, link), ""]
    for section in SECTIONS:
        if section not in doc.sections:
            continue
        yield from [f"**{section}**", ""]
        if section in LISTED:
            for names, text in doc.items(section):
                codes = ", ".join(f"`{n.strip()}`" for n in names.split(","))
                yield f"- {markdown(codes, link) if section == 'Raises' else codes}: {markdown(text, link)}"
        elif section == "Example":
            yield from ["```pycon", *(line for line in doc.sections[section]), "```"]
        else:
            yield markdown("\n".join(doc.sections[section]), link)
        yield ""


def _signature(path: str, value: Any, kind: str) -> str:
    """How a function or class is called."""
    if kind == "constant":
        text = _type(repr(value))
        return f"{path} = {text}" if len(text) < 100 and " object at " not in text else ""
    short = path.rpartition(".")[2] if kind in ("method", "property", "classmethod", "staticmethod") else path
    if kind == "property":
        returned = getattr(value.fget, "__annotations__", {}).get("return", "")
        return f"{short}: {_type(returned)}" if returned else short
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [p for p in signature.parameters.values() if not p.name.startswith("_")]
    if kind in ("method", "classmethod"):
        parameters = parameters[1:]
    texts = []
    kinds = [p.kind for p in parameters]
    for k, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and p.VAR_POSITIONAL not in kinds and p.KEYWORD_ONLY not in kinds[:k]:
            texts.append("*")
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        text = f"{stars}{p.name}"
        typed = p.annotation is not p.empty
        text += f": {_type(p.annotation)}" if typed else ""
        if p.default is not p.empty:
            text += f"{' = ' if typed else '='}{_default(p.default)}"
        texts.append(text)
        if p.kind is p.POSITIONAL_ONLY and p.POSITIONAL_ONLY not in kinds[k + 1 :]:
            texts.append("/")
    returned = signature.return_annotation
    arrow = "" if returned is signature.empty or kind == "class" else f" -> {_type(returned)}"
    line = f"{short}({', '.join(texts)}){arrow}"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{short}(", *(f"    {t}," for t in texts), f"){arrow}"])


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:firebrick|collections|typing|numpy)(?:\.[a-z_0-9]+)*\.(?=\w)", "", text)


def _default(value: Any) -> str:
    text = getattr(value, "__name__", "...") if inspect.isroutine(value) or isinstance(value, type) else repr(value)
    text = re.sub(r"^firebrick\.", "fb.", text)
    return "..." if " at 0x" in text else text
