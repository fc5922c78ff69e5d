"""Reports of runs: report.html, training curves, comparisons, tables for the terminal."""
