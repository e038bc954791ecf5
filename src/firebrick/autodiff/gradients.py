"""``Gradients``: the result of a backward pass, keyed by leaf."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from weakref import ref

from firebrick.autodiff.tape import Node, next_leaf_id
from firebrick.core import html
from firebrick.core.commit import Commit
from firebrick.core.errors import DeviceMismatchError, DTypeError, GradientError, OperandError, ShapeError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor

_MOST_SHOWN = 20


class Gradients:
    """Gradients of one scalar (or of a cotangent-weighted sum), one for each leaf that it depends on.

    Read with the leaf's own handle: ``grads[x]``. A handle that was rebound since the forward pass (``x[i] = v``, ``x += v``,
    ``out=x``, an optimizer's update) no longer shows what was differentiated, so reading with it raises.

    Attributes:
        valid: Bool []; where it is False, an optimizer's update by these gradients changes nothing. None is always.

    Example:
        >>> import firebrick as fb
        >>> x = fb.asarray([1.0, 2.0]).require_grad()
        >>> grads = fb.backward(fb.sum(x * x))
        >>> grads[x].tolist()
        [2.0, 4.0]
        >>> grads[x] = grads[x] * 0.5
        >>> grads[x].tolist()
        [1.0, 2.0]
    """

    def __init__(self, found: dict[Node, Tensor]) -> None:
        self.valid: Tensor | None = None
        self._found = {node.leaf: g for node, g in found.items()}
        live = [(node, t) for node in found if (t := node.handle()) is not None]
        self._handles = {id(t): node.handle for node, t in live}
        self._labels = {node.leaf: t.label for node, t in live if t.label}

    @classmethod
    def of(
        cls, pairs: Sequence[tuple[Tensor | None, Tensor]], rebound: Sequence[Tensor] = (), labels: Sequence[str | None] = ()
    ) -> Gradients:
        """Gradients of handles as they are now.

        Args:
            pairs: Leaves with their gradients; None for a leaf whose handle is gone or was rebound.
            rebound: Handles that were leaves and were rebound since: reading with them raises.
            labels: The labels of the leaves, which count for those without a handle.
        """
        made = cls({})
        for i, (t, g) in enumerate(pairs):
            if t is None:
                leaf, label = next_leaf_id(), labels[i] if labels else None
            else:
                leaf, label = t.leaf if t.leaf > 0 else next_leaf_id(), t.label
                t.leaf, made._handles[id(t)] = leaf, ref(t)
            made._found[leaf] = g
            if label:
                made._labels[leaf] = label
        made._handles.update((id(t), ref(t)) for t in rebound)
        return made

    def parts(self) -> list[tuple[Tensor | None, str | None, Tensor]]:
        """Handle, label and gradient of each leaf, in order. The handle is None if it is gone or no longer shows what was
        differentiated."""
        live = {t.leaf: t for known in self._handles.values() if (t := known()) is not None}
        return [(live.get(leaf), self._labels.get(leaf), g) for leaf, g in self._found.items()]

    def rebound(self) -> list[Tensor]:
        """The handles that still live and no longer show what was differentiated."""
        live = [t for known in self._handles.values() if (t := known()) is not None]
        return [t for t in live if t.leaf not in self._found]

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[int]:
        return iter(self._found)

    def __contains__(self, leaf: Tensor) -> bool:
        return self.get(leaf) is not None

    def get(self, leaf: Tensor) -> Tensor | None:
        """The gradient of a leaf, or None if the result does not depend on it.

        Args:
            leaf: A tensor or parameter that the result depends on.

        Raises:
            GradientError: The handle was rebound since the forward pass.
            OperandError: It is no tensor.
        """
        if not isinstance(leaf, Tensor):
            raise OperandError(
                "gradients are read with a tensor or parameter that was differentiated by",
                f"{type(leaf).__name__} {leaf!r:.60}",
                "pass it, as in grads[model.weight]",
            )
        found = self._found.get(leaf.leaf)
        if found is None and (known := self._handles.get(id(leaf))) is not None and known() is leaf:
            raise GradientError(
                "gradients are read with the handle as it was in the forward pass",
                f"{describe('x', leaf)}, rebound since by an assignment, an update or out=",
                "read the gradient before changing the tensor, or keep x.detach() of the new value elsewhere",
            )
        return found

    def __getitem__(self, leaf: Tensor) -> Tensor:
        found = self.get(leaf)
        if found is None:
            why = "it was never tracked" if leaf.leaf == 0 else "the result does not depend on it"
            raise GradientError(
                "there is a gradient for each tracked leaf that the result depends on",
                f"{describe('x', leaf)}: {why}",
                "call x.require_grad() before the forward pass, and check that x is used in it",
            )
        return found

    def __setitem__(self, leaf: Tensor, gradient: Tensor) -> None:
        self.replace(leaf, gradient)

    def remove(self, leaf: Tensor) -> Tensor | None:
        """Remove a gradient and return it; None if there is none.

        Args:
            leaf: A tensor or parameter.
        """
        self.get(leaf)
        self._handles.pop(id(leaf), None)
        return self._found.pop(leaf.leaf, None)

    def replace(self, leaf: Tensor, gradient: Tensor) -> None:
        """Set the gradient of a leaf, also where there was none: ``grads[leaf] = gradient``.

        Args:
            leaf: A tensor or parameter.
            gradient: Tensor of its shape, dtype and device.

        Raises:
            DeviceMismatchError, DTypeError, ShapeError: The gradient differs from the leaf in device, dtype or shape.
            GradientError: The handle is no leaf, or was rebound.
        """
        self.get(leaf)
        if leaf.leaf <= 0:
            raise GradientError(
                "a gradient belongs to a leaf",
                describe("x", leaf),
                "call x.require_grad() before the forward pass",
            )
        received = f"{describe('x', leaf)} and {describe('gradient', gradient)}"
        if gradient.device is not leaf.device:
            raise DeviceMismatchError(
                "a gradient lies on its leaf's device", received, f'move it: gradient.to("{leaf.device}")'
            )
        if gradient.dtype is not leaf.dtype:
            raise DTypeError("a gradient has its leaf's dtype", received, f"cast it: fb.astype(gradient, fb.{leaf.dtype})")
        if gradient.shape != leaf.shape:
            raise ShapeError("a gradient has its leaf's shape", received, "reshape or sum it")
        self._found[leaf.leaf] = gradient

    def change(self, fn: Callable[[Tensor], Tensor], commit: Commit | None = None) -> None:
        """Replace every gradient by ``fn`` of it.

        Args:
            fn: Of a gradient.
            commit: What the change is to be part of; at once by default.

        Raises:
            ShapeError, DeviceMismatchError, DTypeError: It is of another shape, device or dtype; nothing was changed.
        """
        changed = {leaf: fn(g) for leaf, g in self._found.items()}
        for leaf, g in changed.items():
            old = self._found[leaf]
            if (g.shape, g.dtype, g.device) != (old.shape, old.dtype, old.device):
                kind = ShapeError if g.shape != old.shape else DTypeError if g.dtype is not old.dtype else DeviceMismatchError
                raise kind(
                    "a changed gradient has the shape, dtype and device it had",
                    f"{describe('gradient', old)} and {describe('changed', g)}",
                    "reshape, cast or move it back",
                )
        if commit is None:
            self._found.update(changed)
        else:
            commit.call(dict.update, self._found, changed)

    def mapped(self, fn: Callable[[Tensor], Tensor]) -> Gradients:
        """``fn`` of every gradient, which may have another shape.

        Args:
            fn: Of a gradient.
        """
        made = Gradients({})
        made.valid = None if self.valid is None else fn(self.valid)
        made._found = {leaf: fn(g) for leaf, g in self._found.items()}
        made._handles, made._labels = dict(self._handles), dict(self._labels)
        return made

    def items(self) -> list[tuple[int, Tensor]]:
        """(leaf id, gradient) pairs."""
        return list(self._found.items())

    def _named(self) -> list[tuple[str, Tensor]]:
        """The gradients in the order of their leaves, by the leaves' labels; the number of a leaf without one."""
        return [(self._labels.get(leaf, f"leaf {leaf}"), self._found[leaf]) for leaf in sorted(self._found)]

    def __repr__(self) -> str:
        rows = [f"{name}: {g.aval} on {g.device}" for name, g in self._named()]
        if len(rows) > _MOST_SHOWN:
            rows = [*rows[:_MOST_SHOWN], f"… {len(rows) - _MOST_SHOWN} more"]
        return f"Gradients({{{', '.join(rows)}}})"

    def _repr_html_(self) -> str:
        """What notebooks show: names, shapes and dtypes."""
        rows = ((name, g.dtype.name, list(g.shape), g.device) for name, g in self._named())
        return html.table(f"Gradients of {len(self)} tensors", ("tensor", "dtype", "shape", "device"), rows)
