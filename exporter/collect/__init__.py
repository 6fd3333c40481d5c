"""From the folds' state to Prometheus families."""
