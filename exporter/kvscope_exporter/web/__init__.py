"""HTTP: pages of metrics, the sidecar's app, and listeners; none of it knows the engine."""
