"""Prefix cache: selectors and figures of a fleet.

Several processes may follow one fleet, each with the same figures: the board shows one of them.
"""

from grafana_foundation_sdk.builders import dashboard as db
from grafana_foundation_sdk.models import dashboard as dm

from dashboards.kit.queries import WHOLE_RANGE, over_range, series, total
from dashboards.kit.variables import one_of
from kvscope_exporter.fleet.answer import ENOUGH
from kvscope_monitoring import fleet

PROCESS = 'cluster=~"$cluster",instance=~"$fleet"'
"""The selector for families without a model. The place of the process is not that of its servers:
only the cluster is the same."""
SPACE = f'{PROCESS},model_name=~"$model"'
BY_SPACE = "model_name, name_space"
REPLICA = "sidecar, server, engine"
BY_REPLICA = f"model_name, {REPLICA}"
EVERY_ROW = "on () group_left ()"
NO_FLEET = "No `kvscope fleet` is scraped, or nothing was asked for in this time range."

_TIERS = "kvscope_fleet_tier_hit_tokens_total"
_SIZES = f"max by (tier_blocks) ({series('kvscope_fleet_tier_size_blocks', PROCESS)})"


def fleet_variable() -> db.QueryVariable:
    """The process whose figures are shown; the first one unless another is chosen."""
    return one_of(
        "fleet",
        "Fleet process",
        'label_values(kvscope_fleet_replicas{cluster=~"$cluster"}, instance)',
        "Address of the kvscope fleet, or of the kvscope sidecar --fleet, that is shown.",
    ).hide(dm.VariableHide.HIDE_VARIABLE)


def reached(step: str) -> str:
    """Share of the tokens asked for, over the time range."""
    return fleet.reached(step, WHOLE_RANGE, selector=SPACE)


def lost(cause: str) -> str:
    """The same of what a cause lost."""
    return fleet.lost(cause, WHOLE_RANGE, selector=SPACE)


def tier_hits() -> str:
    """Tokens found with a tier of each size, over the time range."""
    return total(over_range(_TIERS, SPACE), "tier_blocks")


def tier_share() -> str:
    """The same as a share of those asked for."""
    asked = total(over_range(fleet.TOKENS, SPACE, step="asked"))
    return f"{tier_hits()} / {EVERY_ROW} ({asked} > 0)"


def tier_sizes() -> str:
    """Blocks of each size. Of several models it is the sum, as each would have such a tier."""
    models = f"count({series('kvscope_fleet_block_tokens', SPACE)})"
    return f"{_SIZES} * {EVERY_ROW} {models}"


def tier_bytes() -> str:
    """Bytes of each size; absent where a block's are not known."""
    return f"{_SIZES} * {EVERY_ROW} {total(series('kvscope_fleet_block_bytes', SPACE))}"


def enough(sizes: str) -> str:
    """The smallest of some sizes with 95 % of all possible hits. sizes: by `tier_blocks`."""
    possible = total(over_range(fleet.TOKENS, SPACE, step="seen"))
    hits = f"{tier_hits()} >= {EVERY_ROW} ({ENOUGH} * ({possible} > 0))"
    return f"min({sizes} and on (tier_blocks) ({hits}))"


def shown(expr: str) -> str:
    """Only up to four times the size that is enough: beyond, nothing changes any more."""
    most = f"(4 * {enough(_SIZES)} or vector(+Inf))"
    return f"({expr})\nand on (tier_blocks) ({_SIZES} <= {EVERY_ROW} {most})"


def at_every_size(expr: str) -> str:
    """One value, repeated in a row for each size."""
    return shown(f"0 * {tier_hits()} + {EVERY_ROW} sum({expr})")
