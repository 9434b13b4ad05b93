"""Which topics there are and who holds them."""
