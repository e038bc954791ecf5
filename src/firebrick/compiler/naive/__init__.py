"""The naive form of every specification: simple kernel IR with one work item for each element or row."""

from firebrick.compiler.naive.building import Array, Buffer, Naive, NaiveLaunch
from firebrick.compiler.naive.dispatch import NAIVE, naive

__all__ = ["NAIVE", "Array", "Buffer", "Naive", "NaiveLaunch", "naive"]
