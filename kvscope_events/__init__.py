"""The contract between an inference engine and whoever watches it: events, bus, wire.

The ground floor of kvscope and the only part of it that enters a foreign server: Python 3.10 and
later, msgspec and pyzmq, nothing else. Importing the package imports none of its modules.
"""
