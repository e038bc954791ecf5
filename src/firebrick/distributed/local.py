"""``LocalGroup``: collective operations over devices of one process, of any engines. A rank is a place in the list of devices.

Terms meet on one device and are folded there in the order of the devices; what comes of it goes back to all. Between engines
that work on host memory the ways there and back copy nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from firebrick.autodiff.tape import no_grad
from firebrick.backends.registry import find_device
from firebrick.core.device import Device
from firebrick.core.errors import CollectiveMismatchError, ConfigError
from firebrick.core.operands import describe
from firebrick.core.tensor import Tensor
from firebrick.distributed.reductions import FOLDS, check_fold, constants, fold_dtype, rows, slices, weighed
from firebrick.functions import elementwise
from firebrick.functions.elementwise import astype

_FOLDS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {op: getattr(elementwise, name) for op, name in FOLDS.items()}


class LocalGroup:
    """Collectives over devices of this process.

    Each takes a list with one untracked tensor for each device, all of one dtype and shape, and returns untracked ones. Results
    have the bits that ``Group`` gives for the same terms over as many processes.

    Args:
        devices: Distinct devices, of any engines.

    Raises:
        ConfigError: There is no device, or one is named twice.
        DeviceError: A device is unknown or absent.

    Example:
        >>> import firebrick as fb
        >>> from firebrick.distributed import LocalGroup
        >>> group = LocalGroup(["cpu:0", "cpu:1", "numpy:0"])
        >>> terms = [fb.full(2, float(r), device=d) for r, d in enumerate(group.devices)]
        >>> [(x.device.name, x.tolist()) for x in group.all_reduce(terms)]
        [('cpu:0', [3.0, 3.0]), ('cpu:1', [3.0, 3.0]), ('numpy:0', [3.0, 3.0])]
    """

    def __init__(self, devices: Sequence[Device | str]) -> None:
        self.devices = tuple(find_device(d) for d in devices)
        if not self.devices or len(set(self.devices)) != len(self.devices):
            names = ", ".join(d.name for d in self.devices) or "none"
            raise ConfigError("LocalGroup takes one or more distinct devices", names, 'name each once: ["cpu:0", "cpu:1"]')

    @property
    def size(self) -> int:
        """Number of devices."""
        return len(self.devices)

    def __repr__(self) -> str:
        return f"LocalGroup([{', '.join(d.name for d in self.devices)}])"

    def reduce(
        self, xs: Sequence[Tensor | None], op: str = "sum", weights: Sequence[float] | None = None, *, to: int = 0
    ) -> Tensor:
        """The reduction of one term from each device, on ``devices[to]``.

        Args:
            xs: One tensor for each device, or None where a device has no term.
            op: ``sum``, ``prod``, ``max`` or ``min``.
            weights: A factor for each device's term; for sums of floats.
            to: The place of the device that gets the result.

        Raises:
            CollectiveMismatchError: Shapes or dtypes differ, a tensor is on another device than its place, or all are None.
            ConfigError: There is no such reduction, or a number of weights other than that of the devices.
            DTypeError: The dtype cannot be reduced so.
        """
        return self._reduce("LocalGroup.reduce", xs, op, weights, to)

    def all_reduce(self, xs: Sequence[Tensor | None], op: str = "sum", weights: Sequence[float] | None = None) -> list[Tensor]:
        """The reduction of one term from each device, on each device; arguments and errors as of ``reduce``.

        Args:
            xs: As of ``reduce``.
            op: As of ``reduce``.
            weights: As of ``reduce``.
        """
        return self.broadcast(self._reduce("LocalGroup.all_reduce", xs, op, weights, 0))

    def reduce_scatter(
        self, xs: Sequence[Tensor | None], op: str = "sum", weights: Sequence[float] | None = None
    ) -> list[Tensor]:
        """The reduction, divided: of its n rows, device r of P gets rows ⌊n · r / P⌋ to ⌊n · (r + 1) / P⌋ - 1.

        Arguments and errors as of ``reduce``; tensors have at least one axis.

        Args:
            xs: As of ``reduce``.
            op: As of ``reduce``.
            weights: As of ``reduce``.
        """
        whole = self._reduce("LocalGroup.reduce_scatter", xs, op, weights, 0)
        cuts = slices(rows("LocalGroup.reduce_scatter", whole), self.size)
        with no_grad():
            return [whole[cut].to(device) for cut, device in zip(cuts, self.devices, strict=True)]

    def all_gather(self, xs: Sequence[Tensor]) -> list[list[Tensor]]:
        """Each device's tensor on every device: the result's entry r is the list that device r gets, in order of devices.

        Args:
            xs: One tensor on each device, in the order of the devices.

        Raises:
            CollectiveMismatchError: As of ``reduce``; here no entry may be None.
        """
        terms = [x for _, x in self._terms("LocalGroup.all_gather", xs)]
        if len(terms) < self.size:
            raise CollectiveMismatchError("LocalGroup.all_gather: each device has a tensor", "None", "pass a tensor for each")
        with no_grad():
            return [[x.to(device) for x in terms] for device in self.devices]

    def broadcast(self, x: Tensor) -> list[Tensor]:
        """A tensor of any device, on each device of the group.

        Args:
            x: Tensor on any device.
        """
        (term,) = constants("LocalGroup.broadcast", [x])
        with no_grad():
            return [term.to(device) for device in self.devices]

    def _reduce(self, where: str, xs: Sequence[Tensor | None], op: str, weights: Sequence[float] | None, to: int) -> Tensor:
        terms = self._terms(where, xs)
        dtype = terms[0][1].dtype
        check_fold(where, op, dtype)
        if weights is not None and len(weights) != self.size:
            raise ConfigError(f"{where}: one weight for each of {self.size} devices", f"{len(weights)}", "give one for each")
        fold, wide, home = _FOLDS[op], fold_dtype(dtype), self.devices[to]
        with no_grad():
            total: Tensor | None = None
            for place, x in terms:
                term = astype(weighed(where, x, op, None if weights is None else weights[place]).to(home), wide, copy=False)
                total = term if total is None else fold(total, term)
            assert total is not None
            return astype(total, dtype, copy=False)

    def _terms(self, where: str, xs: Sequence[Tensor | None]) -> list[tuple[int, Tensor]]:
        """The tensors that are there, each with its place, after all checks."""
        if len(xs) != self.size:
            raise CollectiveMismatchError(
                f"{where}: one entry for each of {self.size} devices", f"{len(xs)}", "add None where none is"
            )
        places = [place for place, x in enumerate(xs) if x is not None]
        terms = list(zip(places, constants(where, (x for x in xs if x is not None)), strict=True))
        shown = "; ".join(describe(f"entry {place}", x) for place, x in terms)
        if not terms:
            raise CollectiveMismatchError(f"{where}: at least one device has a tensor", "None for each", "pass one")
        if any(x.device is not self.devices[place] for place, x in terms):
            names = ", ".join(d.name for d in self.devices)
            raise CollectiveMismatchError(
                f"{where}: entries lie on the group's devices in order, {names}", shown, "use x.to(device)"
            )
        if len({x.aval for _, x in terms}) > 1:
            raise CollectiveMismatchError(
                f"{where}: tensors of one dtype and shape", shown, "give every device the same operand"
            )
        return terms
