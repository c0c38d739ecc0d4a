"""Controller of DatabaseUser."""
