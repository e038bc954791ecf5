"""Data sets, and the loaders that bring them to a device in batches."""
