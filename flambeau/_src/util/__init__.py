"""Rank 0: what every other part may use and what itself uses nothing but the standard library."""
