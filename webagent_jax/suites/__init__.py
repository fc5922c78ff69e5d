"""Task suites and their scoring."""
