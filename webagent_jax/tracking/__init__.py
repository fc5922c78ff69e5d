"""Experiment tracking: progress, metrics, episode logs, run metadata, evaluation statistics."""
