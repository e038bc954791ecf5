"""Checks that anyone can run on an engine: conformance with the op table, gradient checks and planted faults."""

import firebrick.backends.numpy as _numpy  # noqa: F401  before its parts
import firebrick.optim as _optim  # noqa: F401  before its parts
from firebrick.testing import faults
from firebrick.testing.batching import check_batching
from firebrick.testing.cases import DESTINATIONS, EXCLUDED, Case, cases
from firebrick.testing.conformance import conformance, run_case, run_cases
from firebrick.testing.doctor import Examination, Finding, examine
from firebrick.testing.engines import engines
from firebrick.testing.gradients import check_gradients
from firebrick.testing.layer import LayerError, LayerReport, check_layer
from firebrick.testing.layouts import LAYOUTS
from firebrick.testing.report import Report, Verdict
from firebrick.testing.tangents import check_tangents
from firebrick.testing.traces import assert_max_traces

__all__ = [
    "DESTINATIONS", "EXCLUDED", "LAYOUTS", "Case", "Examination", "Finding", "LayerError", "LayerReport", "Report", "Verdict",
    "assert_max_traces", "cases", "check_batching", "check_gradients", "check_layer", "check_tangents", "conformance",
    "engines", "examine", "faults", "run_case", "run_cases",
]  # fmt: skip
