"""Controller of Database."""
