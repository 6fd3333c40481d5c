"""The live page's data: snapshots of an engine's pool and sequences, and their changes.

An engine is followed only while it is looked at. What its blocks are comes from the folds that its
metrics come from; `following.py` only notes which of them changed, and what the folds do not keep.
The format is described in docs/reference/live-stream.md.
"""
