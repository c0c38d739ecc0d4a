"""Bugs that a crash between two writes exposes."""
