"""The `kvscope` program: its commands, and what only they need; it joins engine and exporter."""
