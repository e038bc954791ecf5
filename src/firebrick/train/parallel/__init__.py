"""Strategies: where the steps of a ``Learner`` run."""

from firebrick.train.parallel.data_parallel import DataParallel
from firebrick.train.parallel.distributed import Distributed
from firebrick.train.parallel.passes import together
from firebrick.train.parallel.single import SingleDevice

__all__ = ["DataParallel", "Distributed", "SingleDevice", "together"]
