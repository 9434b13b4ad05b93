"""One module per call of Kafka's protocol (or per family of calls that are one thing)."""
