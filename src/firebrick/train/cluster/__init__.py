"""A training function on the nodes of a Ray cluster."""

from firebrick.train.cluster.cluster import Cluster
from firebrick.train.cluster.worker import Worker

__all__ = ["Cluster", "Worker"]
