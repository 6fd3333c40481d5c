"""What dashboards and alerts both stand on: selectors, formulas, addresses. Imports neither."""
