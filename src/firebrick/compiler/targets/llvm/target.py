"""``Target``: a processor to generate code for: triple, name, features and vector width.

Generators query the target for lanes, registers and features, never the machine they run on, so that code for any target can
be generated on any machine. Narrower vectors than the host's are targets too, without the features of the wider ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from firebrick.core.config import config
from firebrick.core.errors import ConfigError, UnsupportedError

# For each narrower width on x86-64: the microarchitecture level whose widest registers have it.
_X86_LEVELS = {256: "x86-64-v3", 128: "x86-64-v2"}
_X86_FEATURES = {
    512: frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "avx", "fma", "f16c", "sse4.1", "sse4.2"}),
    256: frozenset({"avx2", "avx", "fma", "f16c", "bmi", "bmi2", "sse4.1", "sse4.2"}),
    128: frozenset({"sse4.1", "sse4.2"}),
}
_GPU_TRIPLES = {"sm_": "nvptx64-nvidia-cuda", "gfx": "amdgcn-amd-amdhsa"}
_AVX512 = ("avx512f", "avx512bw", "avx512dq", "avx512vl")
_AVX2 = ("avx2", "fma", "f16c")


@dataclass(frozen=True, slots=True)
class Target:
    """A processor to generate code for.

    Attributes:
        triple: LLVM's name of architecture and system, such as ``x86_64-unknown-linux-gnu``.
        cpu: LLVM's name of the processor, such as ``znver4``.
        features: Its features as LLVM writes them, such as ``+avx2,+fma,-avx512f``.
        width_bits: Bits of a vector register that generators use: 128, 256 or 512.
    """

    triple: str
    cpu: str
    features: str
    width_bits: int

    @staticmethod
    def host(width_bits: int = 0) -> Target:
        """The machine this program runs on.

        Args:
            width_bits: 128, 256 or 512 for vectors of that width, and none of the features that belong to wider ones; 0 for
                the setting ``cpu_vector_bits``, which by default takes the widest there is.

        Raises:
            UnsupportedError: The machine has no vectors so wide.
        """
        return _host(width_bits or config.cpu_vector_bits)

    @staticmethod
    def named(arch: str, width_bits: int = 0) -> Target:
        """A typical processor of an architecture, to generate code for it on any machine.

        Args:
            arch: ``x86_64`` or ``aarch64``, or a GPU by LLVM's name of it: ``sm_80``, ``gfx90a``.
            width_bits: Bits of its vectors; the widest by default.

        Raises:
            ConfigError: The architecture is not one of these, or has no vectors so wide.
        """
        if arch == "x86_64" and width_bits in (0, 128, 256, 512):
            cpu = _X86_LEVELS.get(width_bits, "x86-64-v4")
            return Target("x86_64-unknown-linux-gnu", cpu, _flat(_X86_FEATURES[width_bits or 512]), width_bits or 512)
        if arch == "aarch64" and width_bits in (0, 128):
            return Target("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon,+fullfp16,+dotprod", 128)
        for prefix, triple in _GPU_TRIPLES.items():
            if arch.startswith(prefix) and arch.removeprefix(prefix).isalnum() and not width_bits:
                return Target(triple, arch, "", 32)
        raise ConfigError(
            "a target is x86_64 with 128, 256 or 512 bits, aarch64 with 128, or a GPU such as sm_80 or gfx90a",
            f"{arch}, {width_bits} bits" if width_bits else arch, "choose one of these",
        )  # fmt: skip

    @property
    def arch(self) -> str:
        """The architecture: ``x86_64``, ``aarch64``, …"""
        first = self.triple.split("-")[0]
        return {"amd64": "x86_64", "arm64": "aarch64"}.get(first, first)

    def has(self, feature: str) -> bool:
        """Whether the processor has a feature, by LLVM's name (``fma``, ``avx512bf16``, ``fullfp16``)."""
        return f"+{feature}" in self.features.split(",")

    @property
    def fma(self) -> bool:
        """Whether the processor has an instruction for ``a * b + c`` with one rounding; elsewhere it is a slow library call."""
        return self.has("fma") if self.arch == "x86_64" else self.arch in ("aarch64", "nvptx64", "amdgcn")

    @property
    def registers(self) -> int:
        """Number of vector registers."""
        return 32 if self.arch == "aarch64" or self.width_bits == 512 else 16

    def lanes(self, bits: int) -> int:
        """Elements of ``bits`` bits in a vector register; at least 1."""
        return max(1, self.width_bits // max(8, bits))

    def __str__(self) -> str:
        vectors = "" if self.arch in ("nvptx64", "amdgcn") else f", vectors of {self.width_bits} bits"
        return f"{self.cpu} ({self.triple}){vectors}"


def _flat(features: frozenset[str]) -> str:
    return ",".join(f"+{f}" for f in sorted(features))


@lru_cache(maxsize=8)
def _host(width_bits: int) -> Target:
    import llvmlite.binding as llvm

    triple, cpu = llvm.get_process_triple(), llvm.get_host_cpu_name()
    try:
        features = dict(llvm.get_host_cpu_features())
    except RuntimeError:  # LLVM cannot query this system
        features = {}
    target = Target(triple, cpu, "", 128)
    widest = 128
    if target.arch == "x86_64":
        if all(features.get(f) for f in _AVX512):
            widest = 512
        elif all(features.get(f) for f in _AVX2):
            widest = 256
    width = width_bits or widest
    if width > widest:
        raise UnsupportedError(
            f"vectors of at most {widest} bits on this machine ({cpu})",
            f"cpu_vector_bits={width}",
            "take a smaller width, or 0",
        )
    if width < widest:  # also name a narrower processor, or LLVM would use wider registers by itself
        level = {f for f in _X86_FEATURES[width] if features.get(f)}
        return Target(triple, _X86_LEVELS[width], _flat(frozenset(level)), width)
    flat = ",".join(("+" if on else "-") + name for name, on in sorted(features.items()))
    return Target(triple, cpu, flat, width)
