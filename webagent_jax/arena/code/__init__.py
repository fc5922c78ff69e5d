"""Slipway, a host for code: projects, issues, merge requests and the people behind them."""
