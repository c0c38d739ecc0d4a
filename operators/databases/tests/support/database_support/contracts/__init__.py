"""Contracts that models and real servers keep."""
