"""The shop, and the database it shares with its back office, the admin."""
