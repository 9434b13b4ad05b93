"""A protocol each. Doors call the log and the state, never each other."""
