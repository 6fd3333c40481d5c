"""Pages for people, written from the declarations: metrics.md and servers.md."""
