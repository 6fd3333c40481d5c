"""What boards are made of: panels, tables, the frame with variables and links, thresholds."""
