"""Checks that anyone can run on an engine: conformance with the op table, gradient checks and planted faults."""

from firebrick.testing import faults
from firebrick.testing.cases import DESTINATIONS, EXCLUDED, Case, cases
from firebrick.testing.conformance import conformance, run_case
from firebrick.testing.engines import engines
from firebrick.testing.gradients import check_gradients
from firebrick.testing.layouts import LAYOUTS
from firebrick.testing.report import Report, Verdict

__all__ = [
    "DESTINATIONS", "EXCLUDED", "LAYOUTS", "Case", "Report", "Verdict", "cases", "check_gradients", "conformance",
    "engines", "faults", "run_case",
]  # fmt: skip
