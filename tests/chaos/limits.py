"""What an attack may cost others; each number with its reason."""

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
"""Of one attack. A failure that repeats is logged once per kind and minute."""
SETTLE_SECONDS = 15.0
"""After the last attack: connections that are idle are closed by then, and requests have ended."""
ROUNDS = 3
"""Of an attack that missed the limit of a time, which other work on the machine can cause as well;
the median of the rounds counts."""
