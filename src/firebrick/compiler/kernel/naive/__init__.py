"""The naive form of every specification: plain kernel IR, an item for an element or a row."""

from firebrick.compiler.kernel.naive.building import Array, Buffer, Naive, NaiveLaunch
from firebrick.compiler.kernel.naive.dispatch import NAIVE, naive

__all__ = ["NAIVE", "Array", "Buffer", "Naive", "NaiveLaunch", "naive"]
