"""Parts of the controller of clusters: engine, kind, metrics and predicates."""
