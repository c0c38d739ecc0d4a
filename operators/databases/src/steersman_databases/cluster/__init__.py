"""Controllers of clusters: observe, plan one action, execute it, write the status."""
