"""All attacks by name, in the order in which they are laid on."""

from collections.abc import Callable

from tools.chaos.attacks.answers import (
    large_log_probabilities,
    stop_strings,
    streamed_log_probabilities,
)
from tools.chaos.attacks.bodies import (
    deep_nesting,
    huge_numbers,
    many_errors,
    many_names,
    many_stop_tokens,
    many_wrong_parts,
)
from tools.chaos.attacks.connections import (
    connection_flood,
    dripping_headers,
    half_headers,
    half_headers_for_metrics,
    kept_alive,
    large_uploads,
    resets,
    silent_connections,
    unfinished_bodies,
)
from tools.chaos.attacks.foreign_pages import cross_site
from tools.chaos.attacks.half_closed import half_closed
from tools.chaos.attacks.malformed import bodies_over_the_limit, broken_messages, huge_headers
from tools.chaos.attacks.prompts import (
    empty_messages,
    long_roles,
    long_text,
    long_word,
    many_token_ids,
)
from tools.chaos.attacks.readers import never_reading_streams, slow_readers, stopped_client
from tools.chaos.attacks.requests import cancelled_requests, request_flood
from tools.chaos.attacks.scrapers import aborted_scrapes, many_scrapers
from tools.chaos.attacks.templates import failing_templates, large_templates, slow_templates
from tools.chaos.target import Target

Attack = Callable[[Target], None]
"""Attacks until the target's deadline. Raises NotHeldError if the server broke a promise."""

_ALL: tuple[Attack, ...] = (
    many_errors,
    many_wrong_parts,
    many_stop_tokens,
    many_names,
    deep_nesting,
    huge_numbers,
    empty_messages,
    long_roles,
    long_text,
    long_word,
    many_token_ids,
    large_log_probabilities,
    streamed_log_probabilities,
    stop_strings,
    slow_templates,
    large_templates,
    failing_templates,
    half_headers,
    dripping_headers,
    silent_connections,
    unfinished_bodies,
    large_uploads,
    kept_alive,
    half_headers_for_metrics,
    resets,
    connection_flood,
    never_reading_streams,
    slow_readers,
    stopped_client,
    broken_messages,
    huge_headers,
    bodies_over_the_limit,
    aborted_scrapes,
    many_scrapers,
    cross_site,
    half_closed,
    request_flood,
    cancelled_requests,
)
ATTACKS: dict[str, Attack] = {attack.__name__: attack for attack in _ALL}
