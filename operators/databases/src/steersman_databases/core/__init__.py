"""Context, naming, drift and errors that every part of the operator shares."""
