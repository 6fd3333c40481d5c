"""Options that commands share, and the settings made from them; imports no server."""
