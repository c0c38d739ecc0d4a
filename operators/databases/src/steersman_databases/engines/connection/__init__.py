"""Connections to servers: names, pools, and limits of what they send."""
