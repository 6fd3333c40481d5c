"""A recording that is played: its moment as a coordinate, for pages and answers."""
