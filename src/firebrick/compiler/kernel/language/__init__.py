"""The kernel language: a restricted Python function as kernel IR."""
