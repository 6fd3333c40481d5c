"""What dashboards and alerts share: selectors, formulas, addresses. It imports neither of them."""
