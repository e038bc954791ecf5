"""Automatic differentiation of every op on every engine."""

import firebrick.backends as _backends  # noqa: F401  before its parts
import firebrick.ir as _ir  # noqa: F401  before its parts
from firebrick.autodiff.anomaly import detect_anomaly
from firebrick.autodiff.backward import attach, backward, register_hook, require_grad
from firebrick.autodiff.checkpoint import checkpoint, checkpointing
from firebrick.autodiff.distributed import distributed_params, is_distributed, reducing, set_distributed_params
from firebrick.autodiff.forward import jvp, linearize
from firebrick.autodiff.gradcheck import gradcheck
from firebrick.autodiff.gradients import Gradients
from firebrick.autodiff.jacobians import hessian, jacobian
from firebrick.autodiff.own_rules import custom_jvp, custom_vjp
from firebrick.autodiff.tape import grad_enabled, no_grad
from firebrick.autodiff.transforms import grad, value_and_grad, vjp
from firebrick.autodiff.vmap import vmap

__all__ = [
    "Gradients",
    "attach",
    "backward",
    "checkpoint",
    "checkpointing",
    "custom_jvp",
    "custom_vjp",
    "detect_anomaly",
    "distributed_params",
    "grad",
    "grad_enabled",
    "gradcheck",
    "hessian",
    "is_distributed",
    "jacobian",
    "jvp",
    "linearize",
    "no_grad",
    "reducing",
    "register_hook",
    "require_grad",
    "set_distributed_params",
    "value_and_grad",
    "vjp",
    "vmap",
]
