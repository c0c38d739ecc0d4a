"""``steersman dev``: the operator with an API server on this machine."""
