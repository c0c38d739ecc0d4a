"""``steersman top``: the load of a running operator."""
