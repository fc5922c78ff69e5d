"""Fencepost, a forum: communities, posts, nested comments, votes."""
