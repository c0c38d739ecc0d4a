"""Group state, decisions and leadership of a member."""
