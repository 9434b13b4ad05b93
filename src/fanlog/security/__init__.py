"""Who you are, what you may, and who can listen."""
