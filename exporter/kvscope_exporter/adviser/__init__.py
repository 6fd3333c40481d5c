"""Proposals for an engine: which option, by how much, at what price, for what gain; pure functions.

`facts.py` holds the facts about one engine; every other file except `proposal.py`, `rank.py` and
`gather.py` is one kind of proposal.
"""
