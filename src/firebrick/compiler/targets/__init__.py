"""Code for kinds of processors, one folder each."""
