"""Program of a read replica: it clones and follows the primary.

It reports lag and load.
"""
