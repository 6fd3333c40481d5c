"""Observer for SGLang: runs inside its scheduler and reports what happens to the pages of its pool,
and inside each rank how far its start is.

SGLang calls `register` in each of its processes, through the entry-point group
`sglang.srt.plugins`. Importing this package imports none of its modules.

The path of an event: `hooks` lists SGLang's methods by release · `patching` calls ours around
each · `pages` counts what a call did to the pool, `steps` what it did to requests · `content` has
the names · `observer` compares the counts with SGLang's own and hands the step's batch to the
outlet. `switch` takes an observer out by order, and `present` lets the next one go on. No tensor is
ever read. `start` has a stream of its own, which begins with the scheduler's constructor.
"""


def register() -> None:
    """Prepare this process to be observed; never raises, and opens nothing yet."""
    try:
        from kvscope_events.observers.endpoints import settle, switched_off
        from kvscope_events.observers.log import warn
        from kvscope_events.observers.sglang.plugin import install

        if not switched_off():
            for odd in settle():
                warn(odd)
            install()
    except Exception as error:  # a broken installation must not end a foreign server
        import sys

        print(f"kvscope: off: {error!r}", file=sys.stderr)
