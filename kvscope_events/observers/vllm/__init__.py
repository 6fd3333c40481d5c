"""Observer for vLLM: runs inside its engine core and reports all changes of the block pool.

vLLM calls `register` in each of its processes, through the entry-point group
`vllm.general_plugins`. Importing this package imports none of its modules.

The path of an event: `hooks` lists vLLM's methods · `wrappers` call ours around each · `pool`,
`content`, `manager` and `scheduler` find what a call changed · `observer.flush` ends the step ·
`outlet` hands the batch to `kvscope_events/wire/publisher.py`, on whose thread `facts` make events
of it, with names that `facts` cuts from vLLM's hashes.
"""


def register() -> None:
    """Prepare this process to be observed; never raises, and opens nothing yet."""
    try:
        from kvscope_events.observers.endpoints import settle, switched_off
        from kvscope_events.observers.log import warn
        from kvscope_events.observers.vllm.front_end import install_front_end
        from kvscope_events.observers.vllm.plugin import install
        from kvscope_events.observers.vllm.signals import answer_signals
        from kvscope_events.observers.vllm.worker import install_worker_hooks

        if switched_off():
            return
        for odd in settle():
            warn(odd)
    except Exception as error:  # a broken installation must not end a foreign server
        import sys

        print(f"kvscope: off: {error!r}", file=sys.stderr)
        return
    answer_signals()
    install()
    install_worker_hooks()
    install_front_end()
