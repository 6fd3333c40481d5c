"""Shared by dashboards and alerts: selectors, formulas, addresses. Imports neither of them."""
