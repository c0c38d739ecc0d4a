"""Migration from Kopf: convert operators, and clean up their objects.

``handlers`` reads the source without importing it. ``conversion`` says what each handler becomes. ``skeleton`` writes
the new operator. ``cluster`` removes Kopf's finalizers and annotations from live objects.

Source: Kopf 1.45 documentation, "Handlers", "Resource specification" and "Storages".
"""
