"""Shared inspection of servers."""
