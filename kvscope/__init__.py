"""The `kvscope` program: its commands and everything only they need; joins engine and exporter."""
