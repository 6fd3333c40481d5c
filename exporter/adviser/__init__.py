"""What to change about an engine, by how much, at what price and for what gain: pure functions.

`facts.py` is what is known of one engine; every other file but `proposal.py`, `rank.py` and
`gather.py` is one kind of proposal.
"""
