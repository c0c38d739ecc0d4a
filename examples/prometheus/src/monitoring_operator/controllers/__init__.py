"""Controllers, one module per kind."""
