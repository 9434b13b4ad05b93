"""Bytes to values and back. No sockets, no clock, no loop."""
