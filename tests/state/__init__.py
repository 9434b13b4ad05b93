"""What the broker remembers of its clients."""
