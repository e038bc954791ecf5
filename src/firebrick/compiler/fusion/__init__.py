"""From a graph to groups of nodes, each of which becomes kernels; and the proof that they mean the same."""
