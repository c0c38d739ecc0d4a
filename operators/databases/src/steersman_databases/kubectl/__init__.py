"""``kubectl steersman``: what people do with clusters, as one command each. It talks to the Kubernetes API only."""
