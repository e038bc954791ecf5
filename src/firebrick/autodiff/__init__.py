"""Automatic differentiation of every op on every engine."""

from firebrick.autodiff.anomaly import detect_anomaly
from firebrick.autodiff.backward import backward, register_hook, require_grad
from firebrick.autodiff.checkpoint import checkpoint, checkpointing
from firebrick.autodiff.gradcheck import gradcheck
from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.tape import grad_enabled, no_grad
from firebrick.autodiff.transforms import grad, jvp, value_and_grad, vjp

__all__ = [
    "Gradients", "backward", "checkpoint", "checkpointing", "detect_anomaly", "grad", "grad_enabled", "gradcheck", "jvp",
    "no_grad", "register_hook", "require_grad", "value_and_grad", "vjp",
]  # fmt: skip
