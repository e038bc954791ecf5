"""Spectral normalisation: a layer's weight divided by its largest singular value, which power iteration follows."""

from __future__ import annotations

from typing import Any

from firebrick.autodiff.tape import no_grad
from firebrick.core.commit import Commit
from firebrick.core.errors import ConfigError
from firebrick.core.operands import describe
from firebrick.core.other_arguments import answers_arguments
from firebrick.core.settings import number, whole
from firebrick.core.shapes import normalize_axis
from firebrick.core.tensor import Tensor
from firebrick.functions.elementwise import maximum
from firebrick.functions.linear import matmul
from firebrick.functions.movement import moveaxis, reshape
from firebrick.functions.norms import vector_norm
from firebrick.functions.statistical import sum as sum_
from firebrick.nn import initial
from firebrick.nn.module import Module
from firebrick.nn.parameter import Buffer, Parameter
from firebrick.nn.weight_norm import call_with
from firebrick.random import Generator

_FIRST = 15
"""Iterations with which the vectors start."""


class SpectralNorm(Module):
    """A layer whose weight W is W / σ, with σ the largest singular value of W as a matrix of ``axis`` against the others.

    σ is uᵀ W v with vectors u and v that each call in training improves by steps of power iteration. Gradients take them for
    constants. The wrapped layer has the weight only while it is called.

    Args:
        layer: Module with a parameter of that name.
        name: Name of the parameter.
        iterations: Steps of power iteration of each call in training.
        eps: Least norm that a vector is divided by.
        axis: Axis of the matrix's rows: the outputs, 0; 1 for transposed convolutions.
        generator: Source of the first vectors; ``fb.random.initial_generator()`` by default.

    Attributes:
        layer: The module.
        original: Parameter of the weight's shape: W.
        u: Buffer [rows].
        v: Buffer [columns].

    Raises:
        ConfigError: The layer has no such parameter, or it has fewer than two axes.

    Source: Miyato et al., "Spectral Normalization for Generative Adversarial Networks", arXiv:1802.05957.

    Example:
        >>> import firebrick as fb
        >>> layer = fb.nn.SpectralNorm(fb.nn.Linear(8, 8, bias=False))
        >>> [name for name, _ in layer.named_parameters()]
        ['original']
        >>> 0.9 < fb.linalg.norm(layer.normalized(), 2).item() < 1.2
        True
    """

    def __init__(
        self, layer: Module, name: str = "weight", *, iterations: int = 1, eps: float = 1e-12, axis: int = 0,
        generator: Generator | None = None,
    ) -> None:  # fmt: skip
        weight = getattr(layer, name, None)
        if not isinstance(weight, Parameter) or weight.ndim < 2:
            shown = describe(name, weight) if isinstance(weight, Tensor) else repr(weight)
            raise ConfigError(
                f"SpectralNorm: {type(layer).__name__} has a parameter {name} of two axes or more", shown,
                "name one of its own parameters",
            )  # fmt: skip
        self.layer, self.name = layer, name
        self.iterations = whole("SpectralNorm", "iterations", iterations, 1)
        self.eps = number("SpectralNorm", "eps", eps)
        self.axis = normalize_axis(axis, weight.ndim, "SpectralNorm")
        self.original = Parameter(weight.detach(), frozen=weight.frozen)
        delattr(layer, name)
        matrix = self._matrix(self.original.detach())
        how: dict[str, Any] = {"generator": generator, "dtype": weight.dtype, "device": weight.device}
        with no_grad():
            u, v = (self._unit(initial.normal((n,), **how).detach()) for n in matrix.shape)
            u, v = self._improved(matrix, u, v, _FIRST)
        self.u, self.v = Buffer(u), Buffer(v)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the layer computes with the weight divided by its largest singular value.

        Args:
            *args: Those of the layer.
            **kwargs: Those of the layer.
        """
        if self.training:
            with no_grad():
                u, v = self._improved(self._matrix(self.original), self.u, self.v, self.iterations)
                commit = Commit()
                commit.rebind(self.u, u)
                commit.rebind(self.v, v)
                commit.apply()
        return call_with(self.layer, self.name, self.normalized(), *args, **kwargs)

    def normalized(self) -> Tensor:
        """The weight with which the layer computes, W / σ, from the vectors as they are.

        Returns:
            Tensor of the weight's shape.

        Example:
            >>> import firebrick as fb
            >>> fb.nn.SpectralNorm(fb.nn.Linear(3, 2)).normalized().shape
            (2, 3)
        """
        return self.original / sum_(self.u.detach() * matmul(self._matrix(self.original), self.v.detach()))

    def _matrix(self, weight: Tensor) -> Tensor:
        return reshape(moveaxis(weight, self.axis, 0), (weight.shape[self.axis], -1))

    def _unit(self, x: Tensor) -> Tensor:
        return x / maximum(vector_norm(x), self.eps)

    def _improved(self, matrix: Tensor, u: Tensor, v: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        for _ in range(steps):
            u = self._unit(matmul(matrix, v))
            v = self._unit(matmul(u, matrix))
        return u, v

    def describe(self) -> str:
        return f"{self.name}, iterations={self.iterations}, axis={self.axis}"


@answers_arguments
def spectral_norm(
    layer: Module, name: str = "weight", *, iterations: int = 1, eps: float = 1e-12, axis: int = 0
) -> SpectralNorm:  # fmt: skip
    """``SpectralNorm(layer, name, iterations=iterations, eps=eps, axis=axis)``.

    Args:
        layer: Layer with the weight.
        name: Name of the weight.
        iterations: Steps of power iteration of each call in training.
        eps: Least norm that a vector is divided by.
        axis: Axis of the matrix's rows: 0, or 1 for transposed convolutions.

    Example:
        >>> import firebrick as fb
        >>> fb.nn.spectral_norm(fb.nn.Conv2d(1, 4, 3)).u.shape
        (4,)
    """
    return SpectralNorm(layer, name, iterations=iterations, eps=eps, axis=axis)
