"""The durable log: segments, indexes, commit levels, recovery, retention, compaction."""
