"""Triton kernels that read K and V from their blocks in place, and the backend made of them.

Importing anything in here imports Triton; only `kvscope_engine.model.attention.choice` does so.
"""
