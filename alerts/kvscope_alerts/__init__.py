"""Alerts and recording rules as data, with all thresholds in one place.

`python -m kvscope_alerts` generates `alerts/kvscope.rules.yml` from them.
"""
