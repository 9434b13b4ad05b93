"""The lbroker door."""
