"""Firebrick beside its peers, in one run: interleaved rounds, medians, ratios. Run with ``make bench``."""
