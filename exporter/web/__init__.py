"""HTTP: pages of metrics, the sidecar's app, and listeners. Knows no engine."""
