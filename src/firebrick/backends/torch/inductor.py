"""Programs handed to ``torch.compile``: ``fb.config.torch_compile``.

PyTorch's compiler fuses kernels, so results agree with the program's to the precision of the dtype and no further. It
compiles at a program's first call, for the CPU with a C++ compiler. Donated inputs are not overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._dynamo.exc import TorchDynamoException
from torch._inductor.exc import InductorError

from firebrick.compiler import Begin, Executable
from firebrick.core.errors import UnsupportedError


class Inductor(Executable):
    """A program that PyTorch's compiler has made faster."""

    def __init__(self, program: Executable) -> None:
        self.__dict__.update(program.__dict__)
        self._run = torch.compile(program._run, dynamic=False)

    def __call__(self, natives: Sequence[Any], begin: Begin | None = None) -> tuple[Any, ...]:
        try:
            found = super().__call__(tuple(natives))
        except (TorchDynamoException, InductorError) as e:
            raise UnsupportedError(
                "fb.config.torch_compile needs programs that PyTorch's compiler accepts, and on the CPU a C++ compiler",
                f"{type(e).__name__}: {str(e).strip().splitlines()[0]}",
                "set fb.config.torch_compile = False, or install what the message names",
            ) from e
        # the compiler may find that outputs are equal and return one tensor for both
        seen: set[int] = set()
        outputs = []
        for x in found:
            at = x.untyped_storage().data_ptr()
            outputs.append(self._copy(x) if at in seen else x)
            seen.add(at)
        return tuple(outputs)

    def explain(self, source: bool = False) -> str:
        return f"compiled by PyTorch {torch.__version__}, which may fuse these nodes\n{super().explain(source)}"
