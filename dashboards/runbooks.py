"""Where the runbooks are: panels and alerts lead to the same ones."""

RUNBOOKS = "https://github.com/kvscope/kvscope/blob/main/alerts/runbooks"
"""Base address; a runbook is its alert's name and `.md`."""
