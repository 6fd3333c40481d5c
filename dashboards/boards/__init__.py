"""Dashboards by name: a folder each, a file a row, `board.py` puts the rows together."""
