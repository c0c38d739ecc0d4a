"""Real database servers as local processes."""
