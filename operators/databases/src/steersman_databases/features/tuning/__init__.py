"""Recommendations for parameters, with evidence, and trials of a value."""
