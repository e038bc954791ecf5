"""Programs in the kernel language, each with the same computation in plain NumPy."""

from kernel_programs.groups import GROUPS
from kernel_programs.matrices import MATRICES
from kernel_programs.points import POINTS
from kernel_programs.program import Program
from kernel_programs.sequences import SEQUENCES
from kernel_programs.stencils import STENCILS

PROGRAMS: dict[str, Program] = {**STENCILS, **POINTS, **SEQUENCES, **MATRICES, **GROUPS}

__all__ = ["PROGRAMS", "Program"]
