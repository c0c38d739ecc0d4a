"""Controllers of Database and DatabaseUser."""
