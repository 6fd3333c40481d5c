"""Pages for people, written from the declarations: docs/metrics.md and docs/servers.md."""
