"""Turns the state of folds into Prometheus families."""
