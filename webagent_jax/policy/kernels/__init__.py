"""Forest attention that skips what no query sees: one module for each way to run it."""
