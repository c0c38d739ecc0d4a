"""Values held to a schema: structure, formats, patterns, lists of sets and maps, rules."""
