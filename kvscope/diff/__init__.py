"""Two engines, or one at two times, compared: what differs, and which of it is a surprise."""
