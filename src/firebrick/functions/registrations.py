"""Registration with libraries that look for it inside themselves: done when such a library is imported, and not before.

einops finds backends among the subclasses of a class of its own, and opt_einsum in a table of its own; neither has an entry
point. Importing them for that would cost each program that does not use them. So a finder waits at the front of
``sys.meta_path``: for the modules of its table it lets the ordinary finders find the module, and imports a module of this
package right after it. It answers nothing for other modules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from firebrick.core.lines import warn

if TYPE_CHECKING:  # which take longer to import than all of this package's part
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec

REGISTRATIONS: Mapping[str, str] = {
    "einops._backends": "firebrick.interop.einops_backend",
    "opt_einsum.backends.dispatch": "firebrick.interop.opt_einsum_functions",
}
"""The module of this package that is imported after a module of another library."""


class _Loader:
    """A loader that calls a function when it has loaded a module; in all else it is the loader that it replaces."""

    def __init__(self, loader: Loader, then: Callable[[], None]) -> None:
        self._loader, self._then = loader, then

    def __getattr__(self, name: str) -> object:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._then()


def _register_with(module: str, after: str) -> None:
    """Import a module of this package; a library that has changed inside is still imported, without tensors."""
    try:
        import_module(after)
    except (ImportError, AttributeError) as e:
        warn(f"{module.partition('.')[0]} cannot take Firebrick's tensors: {e}", UserWarning)


class _Finder:
    """Waits for modules that another module is to be imported after."""

    def __init__(self, waiting: Mapping[str, str]) -> None:
        self.waiting = dict(waiting)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.waiting:
            return None
        for finder in list(sys.meta_path):
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    loader: Any = _Loader(spec.loader, partial(self._loaded, fullname))
                    spec.loader = loader
                return spec
        return None

    def _loaded(self, name: str) -> None:
        """Import what comes after a module.

        The finder stays when it waits for nothing more: another thread may be going through ``sys.meta_path``, and would pass
        over a finder if one before it went away.
        """
        after = self.waiting.pop(name, None)
        if after is not None:
            _register_with(name, after)


def register(registrations: Mapping[str, str] = REGISTRATIONS) -> None:
    """Import the modules of this package whose libraries are imported, and the others when theirs are.

    Args:
        registrations: Module to import by the module that it comes after.
    """
    later = {}
    for module, after in registrations.items():
        if module in sys.modules:
            _register_with(module, after)
        else:
            later[module] = after
    if later and not any(isinstance(f, _Finder) for f in sys.meta_path):
        sys.meta_path.insert(0, _Finder(later))
