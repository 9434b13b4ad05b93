"""Fanlog: every topic is a durable log, a live fan-out and a Spark table."""

__version__ = "0.1.0"
