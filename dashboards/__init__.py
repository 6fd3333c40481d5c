"""Grafana dashboards: functions that return builders, and the JSON they write (`*.json` here).

`python -m dashboards` writes the JSON anew. Needs `kvscope[dashboards]`; importing this does not.
"""
