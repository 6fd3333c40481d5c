"""Wall display: which model should I use now?"""

from dashboards.boards.wall import figures
from dashboards.boards.wall.now import WORDS_PER_SECOND
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.levels import used
from dashboards.kit.panels import COUNT, RATIO, SECONDS, TIMES, Q
from dashboards.kit.queries import TILE_WINDOW, recent, worst
from dashboards.kit.tables import Column, rows


def row() -> Row:
    by = "model_name"
    burn = {name: worst(each, by) for name, each in used(TILE_WINDOW).items()}
    return Row(
        300,
        "By model",
        [
            rows(
                301,
                "Models",
                "The same figures for each model that is served, over five minutes, the one that "
                "breaks its promise fastest first. Budget: how many times faster than allowed it "
                "is being used, by late first tokens and by failures. If one is red while the "
                "others are green, use another model until it has recovered.",
                Q(figures.ready(by), "up"),
                Q(recent(figures.first_token(0.5, by)), "first"),
                Q(recent(figures.first_token(0.95, by)), "late"),
                Q(burn["first token"], "late_burn"),
                Q(recent(figures.speed(by)), "speed"),
                Q(figures.succeeded(by, TILE_WINDOW), "success"),
                Q(burn["answered"], "failed_burn"),
                Q(figures.waiting(by), "waiting"),
                Q(figures.oldest_wait(by), "oldest"),
                columns={
                    "model_name": Column("Model"),
                    "up": Column("Servers up", COUNT, limits.AT_LEAST_ONE, width=100),
                    "first": Column("First word", SECONDS, width=100),
                    "late": Column("Slowest 5 %", SECONDS, width=105),
                    "late_burn": Column("Budget, late", TIMES, limits.BURN_RATE, width=115),
                    "speed": Column(
                        "Speed", WORDS_PER_SECOND, limits.TOKENS_A_SECOND, decimals=0, width=120
                    ),
                    "success": Column("Success", RATIO, width=90),
                    "failed_burn": Column("Budget, failed", TIMES, limits.BURN_RATE, width=120),
                    "waiting": Column("Waiting", COUNT, width=85),
                    "oldest": Column("Oldest waited", SECONDS, width=115),
                },
                height=5,
                worst_first=("Budget, late",),
            ),
        ],
    )
