"""`kvscope top`: a server in a terminal, from its page of metrics and its answers.

Readings come from a URL or a recording, courses keep their headline numbers, panels draw a reading,
an app puts them on a screen. Nothing is computed here that a page or an answer has.
"""
