"""What is wrong with the size of a pool."""


class PoolSizeError(Exception):
    """The pool cannot be built, or could not hold one sequence; the text has the numbers."""
