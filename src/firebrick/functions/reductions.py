"""Reductions, searching and sorting functions, which live in the files of their chapters."""

from firebrick.functions.searching import argmax, argmin
from firebrick.functions.sorting import argsort, sort
from firebrick.functions.statistical import max, mean, min, prod, std, sum, var
from firebrick.functions.utility import all, any

__all__ = ["all", "any", "argmax", "argmin", "argsort", "max", "mean", "min", "prod", "sort", "std", "sum", "var"]
