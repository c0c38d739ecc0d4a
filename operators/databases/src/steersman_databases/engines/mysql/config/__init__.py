"""System variables of MySQL."""
