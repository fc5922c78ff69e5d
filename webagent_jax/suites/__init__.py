"""What there is to do, and how it is judged."""
