"""Shop, with the database that it shares with its back office, the admin."""
