"""Fields: how two values of one merge, who owns which, and the patches and applies that rest on it."""
