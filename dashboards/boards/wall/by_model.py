"""Wall display: which model should I use now?"""

from dashboards.boards.wall import figures
from dashboards.boards.wall.now import WORDS_PER_SECOND
from dashboards.kit import thresholds as limits
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, RATIO, SECONDS, Q
from dashboards.kit.tables import Column, rows


def row() -> Row:
    by = "model_name"
    return Row(
        300,
        "By model",
        [
            rows(
                301,
                "Models",
                "The same figures for each model that is served, the slowest first. One that is "
                "red while the others are green: use another one until it has recovered.",
                Q(figures.ready(by), "up"),
                Q(figures.first_token(0.5, by), "first"),
                Q(figures.first_token(0.95, by), "late"),
                Q(figures.speed(by), "speed"),
                Q(figures.succeeded(by), "success"),
                Q(figures.waiting(by), "waiting"),
                Q(figures.queue_seconds(by), "queue"),
                columns={
                    "model_name": Column("Model"),
                    "up": Column("Servers up", COUNT, limits.AT_LEAST_ONE),
                    "first": Column("Begins, half", SECONDS, limits.FIRST_TOKEN_SECONDS),
                    "late": Column("Begins, 19 of 20", SECONDS, limits.FIRST_TOKEN_SECONDS),
                    "speed": Column("Speed", WORDS_PER_SECOND, limits.TOKENS_A_SECOND),
                    "success": Column("Success", RATIO, limits.SUCCESS_SHARE),
                    "waiting": Column("Waiting", COUNT),
                    "queue": Column("In the queue", SECONDS, limits.QUEUE_SECONDS),
                },
                height=7,
                worst_first=("Begins, 19 of 20",),
            ),
        ],
    )
