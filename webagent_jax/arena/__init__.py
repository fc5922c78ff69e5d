"""Embedded arena: a shop, its back office, a forum, a code host and a map, in one process.

The server starts in a second and resets at no cost. Each episode gets a private copy with the same
initial state. docs/arena.md describes how sites, data and tasks are made.
"""
