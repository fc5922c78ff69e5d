"""Marigold, a department store; it shares its database with its back office."""
