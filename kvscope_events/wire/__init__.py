"""The wire: batches from one process to another, bounded, lossless within a ring's reach.

Importing this package imports none of its modules.
"""
