"""Random functions that change tensors in place, under transformations, checkpoints and loops: results, derivatives, and what
arguments and captured tensors show afterwards are those of a second form, which assigns new values to names instead."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from changing_programs import Changing, Statement, arguments, drawn

import firebrick as fb
from firebrick.autodiff import forward
from firebrick.core.errors import StateChangedError
from firebrick.core.hooks import hooks

ENGINES = {"numpy": 12, "cpu": 3, "torch:cpu": 4}
SKIPPED = {"torch:cpu": pytest.mark.skipif(not find_spec("torch"), reason="torch is not installed")}
EXAMPLES = 3
Case = tuple[str, Callable[[], Any], Any]


def _summed(results: Sequence[fb.Tensor]) -> fb.Tensor:
    return fb.sum(fb.stack([fb.sum(fb.sin(y * (0.3 + i))) for i, y in enumerate(results)]))


def _arrays(tensors: Sequence[fb.Tensor]) -> list[Any]:
    return [t.numpy() for t in tensors]


class Held:
    """A program with a captured tensor of its own for each call that is tried."""

    def __init__(self, program: Changing, device: str, rng: np.random.Generator) -> None:
        self.program = program
        self.a, self.b, self.c = arguments(rng, program.shapes, device)
        self.along = tuple(arguments(rng, program.shapes[:2], device))
        plain = program.second_form()
        self.plain = lambda a, b: plain(a, b, self.c.detach())
        self.state = self.c

    def f(self, *, fresh: bool = True) -> Callable[..., tuple[fb.Tensor, ...]]:
        """The function."""
        if fresh:
            self.state = self.c * 1.0
        return self.program.function(self.state)

    def given(self) -> tuple[fb.Tensor, fb.Tensor]:
        """Arguments that a call may change."""
        return self.a * 1.0, self.b * 1.0


def cases(program: Changing, device: str, rng: np.random.Generator) -> Iterator[Case]:
    """What calls of a program must give: results or derivatives, then what the captured tensor shows."""
    h = Held(program, device, rng)
    results, a, b, c = h.plain(*h.given())
    end = c.numpy()
    whole = [*_arrays(results), a.numpy(), b.numpy(), end]

    def called(wrap: Callable[[Any], Any]) -> Callable[[], Any]:
        def run() -> Any:
            f, (a, b) = wrap(h.f()), h.given()
            made = [y * 1.0 for y in f(a, b)]
            return [*made, a, b, h.state]

        return run

    for name, wrap in {
        "call": lambda f: f,
        "jit": fb.jit,
        "checkpoint": fb.checkpoint,
        "jit of checkpoint": lambda f: fb.jit(fb.checkpoint(f)),
    }.items():
        yield name, called(wrap), whole

    def loss_of(f: Callable[..., Any], both: bool = True) -> Callable[..., fb.Tensor]:
        def loss(ab: tuple[fb.Tensor, fb.Tensor]) -> fb.Tensor:
            made = f(*ab)
            return _summed([*made, *(ab if both else ())])

        return loss

    def plain_loss(ab: tuple[fb.Tensor, fb.Tensor]) -> fb.Tensor:
        made, a, b, _ = h.plain(*ab)
        return _summed([*made, a, b])

    slopes = [*_arrays(fb.grad(plain_loss)(h.given())), end]
    gradients: dict[str, Callable[[Any], Any]] = {
        "grad": lambda f: fb.grad(loss_of(f)),
        "grad of checkpoint": lambda f: fb.grad(loss_of(fb.checkpoint(f))),
        "grad of checkpoint of loss": lambda f: fb.grad(fb.checkpoint(loss_of(f))),
        "jit of grad": lambda f: fb.jit(fb.grad(loss_of(f))),
        "jit of grad of checkpoint": lambda f: fb.jit(fb.grad(loss_of(fb.checkpoint(f)))),
        "grad, balanced": lambda f: fb.checkpointing("balanced")(fb.grad(loss_of(f))),
        "grad, by a budget": lambda f: fb.checkpointing(budget=100)(fb.grad(loss_of(f))),
    }
    for name, of in gradients.items():
        yield name, lambda of=of: [*of(h.f())(h.given()), h.state], slopes

    moved = fb.jvp(lambda a, b: h.plain(a, b)[0], h.given(), h.along)
    tangents = [*_arrays(moved[0]), *_arrays(moved[1]), end]

    def jvp(f: Callable[..., Any]) -> list[fb.Tensor]:
        values, directions = fb.jvp(lambda a, b: f(a * 1.0, b * 1.0), h.given(), h.along)
        return [*values, *directions]

    yield "jvp", lambda: [*jvp(h.f()), h.state], tangents
    yield "jvp of the arguments themselves", lambda: [*_pair(fb.jvp(h.f(), h.given(), h.along)), h.state], tangents
    yield "jvp of checkpoint", lambda: [*jvp(fb.checkpoint(h.f())), h.state], tangents
    yield "jvp of jit", lambda: [*jvp(fb.jit(h.f())), h.state], tangents
    yield "jit of jvp", lambda: [*fb.jit(partial(jvp, h.f()))(), h.state], tangents

    def linearized() -> Any:
        values, push = fb.linearize(h.f(), *h.given())
        return [*values, *push(*h.along), h.state]

    yield "linearize", linearized, tangents

    for name, wrap in {"scan": lambda f: f, "jit of scan": fb.jit}.items():
        if not program.state_changes:
            yield name, lambda wrap=wrap: [*_pair(wrap(_looped)(h.f(), *h.given()))], _loop_of(h, program)
    if program.state_changes:
        yield "vmap is refused", lambda: [_refused(h)], [h.c.numpy()]
        return
    each = [arguments(rng, program.shapes[:2], device) for _ in range(EXAMPLES)]
    many = [fb.stack([e[k] for e in each]) for k in range(2)]
    rows = [h.plain(*(t * 1.0 for t in e))[0] for e in each]
    want = [np.stack([r[k].numpy() for r in rows]) for k in range(len(rows[0]))]
    for name, over in {
        "vmap": fb.vmap,
        "jit of vmap": lambda f: fb.jit(fb.vmap(f)),
        "vmap of jit": lambda f: fb.vmap(fb.jit(f)),
        "vmap of checkpoint": lambda f: fb.vmap(fb.checkpoint(f)),
    }.items():
        yield name, lambda over=over: over(h.f())(*(t * 1.0 for t in many)), want
    per = [fb.grad(plain_loss)(tuple(t * 1.0 for t in e)) for e in each]
    want = [np.stack([g[k].numpy() for g in per]) for k in range(2)]
    for name in ("grad", "grad of checkpoint", "jit of grad"):
        yield f"vmap of {name}", lambda of=gradients[name]: fb.vmap(of(h.f()))(tuple(t * 1.0 for t in many)), want

    def of_all(ab: tuple[fb.Tensor, fb.Tensor]) -> fb.Tensor:
        f = h.f()
        return fb.sum(fb.vmap(lambda *e: fb.checkpoint(loss_of(f))(e))(*ab))

    yield "grad of vmap of checkpoint", lambda: fb.grad(of_all)(tuple(many)), want


def _pair(found: tuple[Sequence[fb.Tensor], Sequence[fb.Tensor]]) -> list[fb.Tensor]:
    return [*found[0], *found[1]]


def _looped(f: Callable[..., Any], a: fb.Tensor, b: fb.Tensor) -> Any:
    """Two steps of a loop, each of which changes its carry."""

    def step(carry: tuple[fb.Tensor, fb.Tensor], _: Any) -> Any:
        made = f(*carry)
        return tuple(fb.tanh(t) for t in carry), fb.stack([fb.sum(y) for y in made])

    end, ys = fb.scan(step, (a * 1.0, b * 1.0), length=2)
    return end, [ys]


def _loop_of(h: Held, program: Changing) -> list[Any]:
    (a, b), sums = h.given(), []
    for _ in range(2):
        made, a, b, _c = h.plain(a, b)
        a, b = fb.tanh(a), fb.tanh(b)
        sums.append(np.stack([fb.sum(y).numpy() for y in made]))
    return [a.numpy(), b.numpy(), np.stack(sums)]


def _refused(h: Held) -> fb.Tensor:
    many = [fb.stack([t, t]) for t in h.given()]
    with pytest.raises(StateChangedError):
        fb.vmap(h.f())(*many)
    return h.state


def _differs(got: Sequence[Any], want: Sequence[Any]) -> str:
    for i, (a, right) in enumerate(zip(got, want, strict=True)):
        found = a.numpy()
        if found.shape != right.shape or found.dtype != right.dtype:
            return f"value {i}: {found.dtype}{found.shape} for {right.dtype}{right.shape}"
        scale = max(1.0, float(np.abs(np.nan_to_num(right)).max(initial=0.0)))
        known = np.isfinite(right)  # at other points there is no derivative
        if not np.all(np.abs(found - right)[known] <= 1e-8 * scale):
            return f"value {i}: {found} for {right}"
    return ""


def disagreements(program: Changing, device: str, seed: int) -> list[str]:
    """The calls that give something else."""
    found = []
    with fb.use_device(device), fb.config.scope(fallback="silent"):
        for name, run, want in cases(program, device, np.random.default_rng(seed)):
            try:
                text = _differs(run(), want)
            except fb.FirebrickError as e:
                text = f"{type(e).__name__}: {e}"
            if text:
                found.append(f"{name}: {text}")
    return found


def agree(seed: int, device: str, longest: int) -> None:
    """Hold one random program to all of it."""
    rng = np.random.default_rng(seed)
    program = drawn(rng, int(rng.integers(2, longest + 1)))
    found = disagreements(program, device, seed)
    assert not found, f"seed {seed}\n{program.source}{program.renamed}" + "\n".join(found)


@pytest.mark.parametrize("device", [pytest.param(d, marks=SKIPPED.get(d, ())) for d in ENGINES])
def test_random_functions_that_change_tensors_give_what_their_second_form_gives(device: str, seed: int) -> None:
    for k in range(ENGINES[device]):
        agree(seed * 1000 + k, device, 6)


@pytest.mark.soak
@pytest.mark.parametrize("device", [pytest.param(d, marks=SKIPPED.get(d, ())) for d in ENGINES])
@pytest.mark.parametrize("part", range(20))
def test_many_random_functions_that_change_tensors(device: str, part: int) -> None:
    for k in range(5 * ENGINES[device]):
        agree(2 * 10**7 + part * 1000 + k, device, 12)


def test_tangents_that_are_lost_with_a_change_in_place_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As they were once: what was changed in place and returned lost its tangent before it was read."""
    program = Changing(((2,), (3,), ()), (Statement("add", "a", "fb.sum(b)", "", ("a",)),), ("a",))
    assert not disagreements(program, "numpy", 0)
    right = forward.taken_apart

    def wrong(t: fb.Tensor, level: Any) -> tuple[fb.Tensor, fb.Tensor | None]:
        value, tangent = right(t, level)
        return value, None if any(t is x for journal in hooks.journals for x in journal.rebound()) else tangent

    monkeypatch.setattr(forward, "taken_apart", wrong)
    assert "jvp of the arguments themselves" in " ".join(disagreements(program, "numpy", 0))
