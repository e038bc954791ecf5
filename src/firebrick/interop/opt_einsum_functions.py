"""The functions that opt_einsum calls for tensors, under the names that it calls them by.

It takes them from the module that its table of aliases has for the first part of the name of the tensors' module, which is
``firebrick``. Imported when opt_einsum is; see ``functions.registrations``.
"""

from __future__ import annotations

from opt_einsum.backends.dispatch import _aliases

from firebrick.functions.contraction import einsum
from firebrick.functions.linear import tensordot
from firebrick.functions.movement import permute_dims as transpose

__all__ = ["einsum", "tensordot", "transpose"]

_aliases["firebrick"] = __name__
