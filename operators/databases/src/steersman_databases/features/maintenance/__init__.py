"""Maintenance windows: unrequested disruptions wait for them."""
