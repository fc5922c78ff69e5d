"""Cairn, a map of the arena's region: places, routes and saved lists."""
