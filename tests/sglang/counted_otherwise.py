"""Sums that may differ rightly from SGLang's own, each with the reason in its source.

Those of `WHEN_CLIENTS_LEAVE` are its front end's, which learns of an end in other ways than the
scheduler. All sums of the scheduler itself stay equal.
"""

from tests.support.environments import Reason

_IN_THE_QUEUE = Reason(
    "srt/managers/tokenizer_manager.py",
    (
        "(AbortReq, self._handle_abort_req)",
        "def collect_metrics(",
        "self.metrics_collector.observe_one_finished_request(",
        "def _handle_abort_req(self, recv_obj: AbortReq):",
    ),
)
"""A request that is aborted before it ran is answered beside the stream of results, which is where
requests are counted."""
_WHEN_ASKED = Reason(
    "srt/managers/tokenizer_manager.py",
    (
        "def abort_request(self, rid",
        "self._dispatch_to_scheduler(req)",
        "self.metrics_collector.observe_one_aborted_request(",
    ),
)
"""An abort is counted where it is asked for; the request may end by itself before it is heard."""
_THE_NEWEST_TOKEN = Reason(
    "srt/managers/scheduler.py",
    (
        "def pause_generation(self",
        "self.process_batch_result(tmp_batch, tmp_result)",
        "retract_all(",
    ),
)
"""A pause waits for the last result, and the token that this brings has no KV yet: it is computed
with those that were given up, without having been one of them."""

WHEN_CLIENTS_LEAVE = {"requests": _IN_THE_QUEUE, "aborted": _WHEN_ASKED}
"""By sum: what differs once clients have left."""
WHEN_RETRACTED_CLIENTS_LEAVE = {
    "prompt": _IN_THE_QUEUE,
    "generated": _IN_THE_QUEUE,
    "hit, by the front end": _IN_THE_QUEUE,
}
"""By sum: what differs besides if some of them waited after a retraction."""
AFTER_A_PAUSE = {"computed again": _THE_NEWEST_TOKEN}
"""By sum: what differs once a pause has retracted requests, by a token for each."""
ALL = WHEN_CLIENTS_LEAVE | WHEN_RETRACTED_CLIENTS_LEAVE | AFTER_A_PAUSE
REASONS = frozenset(ALL.values())
