"""Everything people see of a run: metrics, progress, episodes on disk, and the report page."""
