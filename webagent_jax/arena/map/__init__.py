"""Cairn: a map of the arena's region, its places, and the ways between them."""
