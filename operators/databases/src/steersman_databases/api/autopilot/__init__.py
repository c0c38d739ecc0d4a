"""Fields for what the operator decides by itself."""
