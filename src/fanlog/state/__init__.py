"""What the broker remembers for its clients, kept in internal topics."""
