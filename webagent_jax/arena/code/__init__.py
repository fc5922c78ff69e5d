"""Slipway, a code host: projects, issues, merge requests and their users."""
