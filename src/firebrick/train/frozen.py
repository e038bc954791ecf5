"""Training that stands still, noticed: a loss that repeats bit for bit, a gradient that is missing or exactly zero.

Each is said once, as a ``FrozenTrainingWarning`` that names the parameters and the likely causes. Losses are compared at
every step. Gradients are looked at during the first ``patience`` steps of each epoch only, which costs little on engines
where reading waits, and finds what stands still no later than the next epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from firebrick.autodiff.gradients import Gradients
from firebrick.backends.dispatch import read
from firebrick.core.dtypes import bool_
from firebrick.core.lines import warn
from firebrick.core.tensor import Tensor
from firebrick.functions.creation import zeros
from firebrick.functions.elementwise import logical_not, not_equal
from firebrick.functions.movement import stack
from firebrick.functions.utility import any as any_
from firebrick.graph import cond
from firebrick.train.errors import FrozenTrainingWarning

HOST_ENGINES = ("cpu", "numpy")  # whose results are there at once, so that reading them waits for nothing
_LEARNED = 1e-6  # of the first loss: one that stands still below that has nothing left to learn


class FrozenWatch:
    """Counts the steps in which something stood still.

    Args:
        patience: Steps after which it is said.
    """

    def __init__(self, patience: int = 10) -> None:
        self.patience = patience
        self._loss: float | None = None
        self._repeats = 0
        self._still: dict[str, int] = {}
        self._said: set[str] = set()
        self._first: float | None = None
        self._before: list[Tensor] = []
        self._updates = 0
        self._moved = False

    def losses(self, values: Iterable[float]) -> None:
        """Take in the losses of further steps."""
        for value in values:
            self._repeats = self._repeats + 1 if value == self._loss else 1
            self._loss = value
            self._first = value if self._first is None else self._first
            learned = abs(value) <= _LEARNED * abs(self._first)
            if self._repeats >= self.patience and not learned and "loss" not in self._said:
                self._said.add("loss")
                fell = f", after {self._first!r} at first" if value < self._first else ""
                warn(
                    f"the loss has been exactly {value!r} for {self.patience} steps{fell}: nothing is being learned. Look "
                    "whether the learning rate is 0, the parameters are trainable, and the loss depends on them",
                    FrozenTrainingWarning,
                )

    def parameters(self, parameters: Iterable[tuple[str, Tensor]]) -> None:
        """Look, before each update, whether the updates so far changed anything, until one did."""
        if self._moved:
            return
        now = [p.detach() for _, p in parameters]
        if not self._before:
            self._before, self._updates = now, 0
            return
        self._updates += 1
        if self._updates < self.patience:
            return
        hosts = read([*self._before, *now])
        self._moved = any(a.tobytes() != b.tobytes() for a, b in zip(hosts[: len(now)], hosts[len(now) :], strict=True))
        self._before = []
        if not self._moved and "parameters" not in self._said:
            self._said.add("parameters")
            warn(
                f"no parameter has changed in {self.patience} updates: nothing is being learned. Look whether the learning "
                "rate is 0 and the gradients are not; if both are fine, the device loses what is written",
                FrozenTrainingWarning,
            )

    def gradients(self, zeros: Sequence[Zeros]) -> None:
        """Take in the gradients of further steps."""
        for found, flags in zip(zeros, read([z.flags for z in zeros]), strict=True):
            self._step(found.missing, dict(zip(found.names, flags.tolist(), strict=True)))

    def _step(self, missing: Sequence[str], zero: Mapping[str, bool]) -> None:
        still = {"missing": missing, "exactly zero": [n for n, is_zero in zero.items() if is_zero]}
        self._still.update((n, 0) for n, is_zero in zero.items() if not is_zero)
        stuck: dict[str, list[str]] = {"missing": [], "exactly zero": []}
        for how, names in still.items():
            for name in names:
                self._still[name] = self._still.get(name, 0) + 1
                if self._still[name] >= self.patience and name not in self._said:
                    stuck[how].append(name)
        for how, names in stuck.items():
            if names:
                self._said.update(names)
                cause = "is it used in the forward pass?" if how == "missing" else "dead units, or zero initial values?"
                warn(
                    f"the gradient of {', '.join(names)} has been {how} for {self.patience} steps, "
                    f"so it does not learn: {cause}",
                    FrozenTrainingWarning,
                )


class Zeros(NamedTuple):
    """What the gradients of a step hold.

    Attributes:
        missing: Names of parameters without gradient.
        names: Names of parameters with one.
        flags: bool [names], whether it holds nothing but zeros; False for all where nobody looked.
    """

    missing: tuple[str, ...]
    names: tuple[str, ...]
    flags: Tensor


def zeros_of(watching: Tensor, parameters: Sequence[tuple[str, Tensor]], gradients: Gradients) -> Zeros:
    """Look at gradients, where ``watching``, a bool [], says so.

    Args:
        watching: Whether to look for zeros.
        parameters: By name.
        gradients: Theirs.
    """
    found = [(name, gradients.get(p)) for name, p in parameters]
    present = [(name, g) for name, g in found if g is not None]

    def look() -> Tensor:
        return stack([logical_not(any_(not_equal(g, 0))) for g in grads])

    def look_away() -> Tensor:
        return zeros((len(grads),), dtype=bool_, device=watching.device)

    grads = [g.detach().to(watching.device) for _, g in present]
    flags = cond(watching, look, look_away) if grads else look_away()
    return Zeros(tuple(n for n, g in found if g is None), tuple(n for n, _ in present), flags)
