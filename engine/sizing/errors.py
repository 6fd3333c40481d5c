"""The error of a pool whose size is impossible."""


class PoolSizeError(Exception):
    """The pool cannot be built, or could not hold one sequence; the text has the numbers."""
