"""The command ``firebrick``: what devices there are, and training, evaluating and using image models."""
