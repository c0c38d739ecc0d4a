"""The operator redis-operator."""
