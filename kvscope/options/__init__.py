"""Options that commands share, and the settings that they become; no server is imported here."""
