"""From addresses to partitions, and from records to those who asked for them. Knows no protocol."""
