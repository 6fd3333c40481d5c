"""Exporter: the cost of watching, and failed parts."""

from dashboards.kit.fleet import among, outstanding
from dashboards.kit.frame import Row
from dashboards.kit.panels import COUNT, PER_SECOND, RATIO, SECONDS, Q, graph
from dashboards.kit.queries import SERVER, TARGET, every_part, rate, series, total, worst

_SERIES = f"scrape_samples_scraped and on ({TARGET}) {every_part()}"

_BY_FOLD = total(rate("kvscope_fold_seconds_total", SERVER), "instance, fold")
_BY_EXPORTER = total(rate("kvscope_fold_seconds_total", SERVER), "instance")
_COSTLIEST = among(_BY_EXPORTER, "", by="instance", rank="avg", most=1).expr


def row() -> Row:
    return Row(
        400,
        "What does watching cost?",
        [
            graph(
                405,
                "CPU by exporter",
                "Time spent on events, as a share of one core. Above a tenth an exporter competes "
                "with an engine in the same process: run the sidecar instead.",
                RATIO,
                *outstanding(_BY_EXPORTER, "{{instance}}", by="instance", rank="avg"),
                span=8,
            ),
            graph(
                401,
                "CPU by fold, costliest exporter",
                "The same for the busiest exporter, by what the time was spent on. If one fold "
                "takes most of it, please report it, with what the engine did.",
                RATIO,
                Q(f"{_BY_FOLD} and on (instance) ({_COSTLIEST})", "{{fold}}"),
                stacked=True,
                span=8,
                listed=True,
            ),
            graph(
                402,
                "Time to make a page",
                "Time to render the page before the last one, by exporter. Near the scrape "
                "timeout: let Prometheus scrape less often, or watch fewer engines with each "
                "sidecar.",
                SECONDS,
                among(
                    worst(series("kvscope_scrape_duration_seconds", SERVER), "instance"),
                    "{{instance}}",
                    by="instance",
                ),
                span=8,
                calcs=("max",),
            ),
            graph(
                403,
                "Series on a page",
                "Samples that Prometheus took from each page. About 600 for each engine: more is "
                "a bug, please report it. Growing without end: some label is unbounded.",
                COUNT,
                among(worst(_SERIES, "instance"), "{{instance}}", by="instance"),
                span=12,
                height=6,
                listed=True,
            ),
            graph(
                404,
                "Folds and parts that failed",
                "A fold that raised stays disabled until the engine restarts; a part of the page "
                "that raised is left out of that scrape. Their series are absent. Both are bugs: "
                "please report the traceback in the log.",
                PER_SECOND,
                Q(total(rate("kvscope_fold_errors_total", SERVER)), "folds"),
                Q(total(rate("kvscope_collect_errors_total", SERVER)), "parts of pages"),
                span=12,
                height=6,
                listed=True,
            ),
        ],
    )
