"""Certificate authorities, certificates and the Secrets of a cluster."""
