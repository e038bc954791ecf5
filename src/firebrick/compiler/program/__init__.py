"""What runs when and where: the order of nodes, memory, segments and launches."""
