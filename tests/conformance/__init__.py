"""Other people's clients, unmodified, against a running broker."""
