"""Cases for every field of the API."""
