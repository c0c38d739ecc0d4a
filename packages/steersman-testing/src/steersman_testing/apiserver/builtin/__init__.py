"""Built-in kinds: types, defaults, validation and immutable fields."""
