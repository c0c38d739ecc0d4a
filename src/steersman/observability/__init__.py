"""What makes a running operator visible, and the seams that make it testable.

``runtime`` carries the clock, the randomness and task spawning; ``metrics`` the Prometheus registry with
controller-runtime's names; ``logging`` structured logs.
"""
