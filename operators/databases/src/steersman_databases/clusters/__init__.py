"""What a cluster should do next, as pure functions of what was declared and what was seen."""
