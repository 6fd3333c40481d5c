"""Alerts and recording rules: data here, thresholds in one place, the YAML written from both.

`python -m alerts` writes `alerts/kvscope.rules.yml` anew.
"""
