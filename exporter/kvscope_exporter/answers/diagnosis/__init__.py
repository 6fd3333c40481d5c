"""The question why: what is wrong with an engine, since when, from which cause."""
