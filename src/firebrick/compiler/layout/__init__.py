"""Where the elements of arrays and their views lie in memory."""
