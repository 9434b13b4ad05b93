"""What several kinds of tests share: a broker as a process, topics, waiting with a deadline."""
