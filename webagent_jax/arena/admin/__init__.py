"""Back office of the shop, for its staff; the shop shows the changes made in it."""
