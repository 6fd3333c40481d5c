"""Limits for an attack's cost to others; each number with its reason."""

MORE_P99_SECONDS = 0.25
"""p99 of an unrelated client under attack, over its p99 while nothing disturbs the server."""
MORE_P99_SECONDS_BRIEFLY = 0.5
"""The same where an attack takes a few seconds: the 99th percentile of fifty times is a maximum."""
MORE_RSS_MIB = 300
"""Memory of the server over that at its start: a few bodies of 8 MB, decoded."""
MORE_DESCRIPTORS = 8
"""At the end, over the start: files that are opened with their first use."""
MORE_THREADS = 16
"""At the end, over the start: pools of workers start their threads with the first work."""
LOG_LINES = 40
"""Log lines during one attack. A failure that repeats is logged once per kind and minute."""
SETTLE_SECONDS = 15.0
"""After the last attack: connections that are idle are closed by then, and requests have ended."""
ROUNDS = 3
"""Rounds of an attack that missed a time limit, which other work on the machine can cause as well;
the median of the rounds counts."""
FRESH_SECONDS = 2.0
"""Without an attack, before each further round: what other work on the machine costs just then."""
MOST_UNDISTURBED_SECONDS = 0.5
"""The most that a p99 without an attack may excuse: it could be what an attack has left behind."""
