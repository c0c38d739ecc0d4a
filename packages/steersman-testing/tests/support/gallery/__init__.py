"""Operators with one published bug each, and a corrected twin."""
