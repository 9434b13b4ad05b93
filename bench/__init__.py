"""Side-by-side measurements of Fanlog and other brokers: `python -m bench`, or `make bench`."""
