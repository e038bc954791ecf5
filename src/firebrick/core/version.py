"""The version of Firebrick, where checkpoints and ranks can read it without importing the whole package."""

__version__ = "0.1.0"
