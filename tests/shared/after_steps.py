"""Something to do after each step of a learner, on every engine: a step's numbers, and so callbacks, may come later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firebrick.train import Learner
from firebrick.train.progress import Lines


class AfterSteps(Lines):
    """Progress that calls a function when it is asked, after each step, whether it is due."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(None)
        self.call = call

    def due(self) -> bool:
        self.call()
        return False


def after_steps(learner: Learner, call: Callable[[], Any]) -> Learner:
    """The learner, with a call after each of its steps."""
    learner.progress = AfterSteps(call)
    return learner
