"""Mutation testing: changes one point of the sources at a time, and looks whether a test notices."""
