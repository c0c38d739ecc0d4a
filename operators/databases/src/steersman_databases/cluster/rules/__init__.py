"""Planner rules, one subject a module."""
