"""Random networks from all layers, trained beside torch's with the same weights: see ``drawing``, ``running`` and ``soak``."""
