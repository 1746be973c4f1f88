"""A conversation in a terminal: reading what a person types, answering, keeping."""
