"""Whether a PyTorch build has kernels for a GPU, and which wheel has them. Pure: needs no GPU and no PyTorch.

A CUDA binary (``sm_XY``) runs on GPUs of its major capability and the same or a higher minor one; PTX
(``compute_XY``) is compiled by the driver for every later GPU. A suffix ``a`` ties either to one capability, ``f``
to one major.

Source: CUDA C++ Programming Guide, "Binary Compatibility" and "PTX Compatibility"; for the wheels, PyTorch's release
compatibility matrix (RELEASE.md), pull request 158301 and the notice on CUDA 12.6 wheels at dev-discuss.pytorch.org.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Wheel:
    """Official wheels with kernels for a capability: for CUDA ``cuda``, of PyTorch ``first`` to ``last``."""

    cuda: str
    first: str
    last: str | None = None

    def __str__(self) -> str:
        versions = f"torch ≥ {self.first}" + (f" and ≤ {self.last}" if self.last else "")
        return f"{versions} built for CUDA {self.cuda}"

    @property
    def install(self) -> str:
        """How to install such a wheel."""
        bound = f",<={self.last}.99" if self.last else ""
        tag = "cu" + self.cuda.replace(".", "")
        return f"pip install 'torch>={self.first}{bound}' from PyTorch's {tag} wheels (pytorch.org, Get Started)"


# Lowest capability of a generation → wheels. Builds for CUDA 12.8 lack Maxwell and Pascal (PyTorch 2.7 Volta too),
# those for CUDA 13 all three; PyTorch 2.14 is the last with wheels for CUDA 12.6, which lack Blackwell.
WHEELS: dict[tuple[int, int], Wheel] = {
    (5, 0): Wheel("12.6", "2.6", "2.14"),
    (7, 0): Wheel("12.6", "2.6", "2.14"),
    (7, 5): Wheel("12.8", "2.7"),
    (8, 0): Wheel("12.8", "2.7"),
    (9, 0): Wheel("12.8", "2.7"),
    (10, 0): Wheel("12.8", "2.7"),
    (11, 0): Wheel("13.0", "2.9"),
    (12, 0): Wheel("12.8", "2.7"),
}

_ARCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)$")


def _runs(arch: str, capability: tuple[int, int]) -> bool:
    """Whether code built for ``arch`` runs on a GPU of ``capability``."""
    match = _ARCH.match(arch)
    if not match:
        return False
    kind, major, minor, suffix = match.groups()
    built = (int(major), int(minor))
    if suffix == "a":
        return built == capability
    if kind == "compute" and not suffix:
        return built <= capability
    return built[0] == capability[0] and built[1] <= capability[1]


def missing_capability(
    capability: tuple[int, int], arch_list: list[str], torch_version: str, cuda_version: str | None
) -> str | None:
    """Why a PyTorch build cannot run on a GPU, with the wheel to install; None if it can.

    Args:
        capability: The GPU's compute capability, e.g. ``(12, 0)``.
        arch_list: ``torch.cuda.get_arch_list()``.
        torch_version: ``torch.__version__``.
        cuda_version: ``torch.version.cuda``.

    Example:
        >>> from firebrick.backends.torch import missing_capability
        >>> missing_capability((8, 9), ["sm_80", "sm_90"], "2.7.0", "12.8") is None
        True
        >>> print(missing_capability((12, 0), ["sm_80", "sm_90"], "2.8.0", "12.6").splitlines()[-1])
        Install it: pip install 'torch>=2.7' from PyTorch's cu128 wheels (pytorch.org, Get Started)
    """
    if any(_runs(arch, capability) for arch in arch_list):
        return None
    built = ", ".join(arch_list) or "none"
    major, minor = capability
    text = (
        f"the GPU has compute capability {major}.{minor} (sm_{major}{minor}), but PyTorch {torch_version} for CUDA "
        f"{cuda_version or 'none'} has kernels for {built} only."
    )
    known = [c for c in WHEELS if c <= capability]
    if not known:
        return f"{text}\nNo PyTorch that Firebrick runs with supports this GPU; use torch:cpu."
    if major > max(WHEELS)[0]:
        return f"{text}\nThe GPU is newer than this Firebrick: install the latest PyTorch for the latest CUDA."
    wheel = WHEELS[max(known)]
    return f"{text}\nIt needs {wheel}.\nInstall it: {wheel.install}"
