"""The back office of the shop, for who runs it: what it changes, the shop shows."""
