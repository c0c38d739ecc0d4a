"""Who may do what: users and their roles, who may grant them, tokens, reviews."""
