"""Building blocks of boards: panels, tables, the frame with variables and links, thresholds."""
