"""The embedded arena: a shop, its back office, a forum, a code host and a map, in one process.

Started in a second, reset for free, one private copy per episode, the same every time. See
docs/arena.md for how a site, its data and its tasks are made.
"""
