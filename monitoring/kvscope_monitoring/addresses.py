"""Addresses of links: panels and alerts link to the same runbooks."""

RUNBOOKS = "https://github.com/kvscope/kvscope/blob/main/alerts/runbooks"
"""Base address of the runbooks; each file is named after its alert."""
GRAFANA = "http://localhost:3000"
"""Grafana in the compose stack; `--grafana` of the generators sets another address."""
