"""Services and EndpointSlices of a cluster."""
