"""Where links lead: panels and alerts send the reader to the same runbooks."""

RUNBOOKS = "https://github.com/kvscope/kvscope/blob/main/alerts/runbooks"
"""Base address; a runbook's file is named after its alert."""
GRAFANA = "http://localhost:3000"
"""The Grafana of the compose stack; `--grafana` of the generators names another."""
