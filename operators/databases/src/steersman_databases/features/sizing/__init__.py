"""Parameters that follow from the resources of instances."""
