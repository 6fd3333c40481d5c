"""Dashboards by name: a package each, which puts its rows together; a file a row."""
