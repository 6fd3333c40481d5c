"""`kvscope diff`: two engines, or one at two times, and what differs beyond chance."""

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from kvscope.answer_document import Connection, EngineAnswer
from kvscope.options.generated import with_options
from kvscope.output import Output, OutputOption, fail
from kvscope_engine.option import option
from kvscope_events.printable import printable

if TYPE_CHECKING:
    from kvscope.cli.sides import Side
    from kvscope_exporter.answers.course import CourseAnswer

    Engines = list[EngineAnswer[CourseAnswer]]
    Pair = tuple[EngineAnswer[CourseAnswer], EngineAnswer[CourseAnswer]]

EXIT_DIFFERENT = 1
_WIDTH = 100
_FEWEST_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class SideOptions:
    """The part of A and of B that is compared."""

    at_a: str | None = option(
        None,
        "End of what is compared of recording A, as in kvscope rec play: 03:12:40, +90s from the "
        "beginning, -5m from the end. Default: its end.",
        "TIME",
    )
    at_b: str | None = option(None, "The same of B.", "TIME")
    last: float = option(
        1800.0,
        "Compare this much of each side; half an hour is the most that is kept.",
        "DURATION",
        least=_FEWEST_SECONDS,
        most=1800,
    )
    target_a: str = option("", "Server of sidecar A, if it watches several.", "NAME")
    target_b: str = option("", "The same of B.", "NAME")


@with_options
def diff(
    a: Annotated[
        str,
        typer.Argument(
            metavar="A", help="A recording, *.kvsr, or a kvscope server: URL, HOST:PORT or HOST."
        ),
    ],
    b: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    options: SideOptions = SideOptions(),
    connection: Connection = Connection(),
    output: OutputOption = Output.TEXT,
) -> None:
    """Compare two replicas, or a server before and after a change.

    Each side is a recording or a running server. Settings that differ come first; then figures,
    those first that are furthest apart for how much they vary by themselves. A figure that one side
    does not report is named as such.

    Exit status: 0 if nothing differs beyond its own variation, 1 if something does, 2 if a side
    cannot be read or is too short.

    Example: kvscope diff before.kvsr http://127.0.0.1:8010

    Example: kvscope diff night.kvsr night.kvsr --at-a 03:05 --at-b 03:15 --last 5m
    """
    from kvscope.cli.sides import Side, engines_of

    sides = (
        Side(letter="A", source=a, at=options.at_a, target=options.target_a),
        Side(letter="B", source=b, at=options.at_b, target=options.target_b),
    )
    engines = [engines_of(side, connection) for side in sides]
    pairs, alone = _pairs(sides, *engines)
    for text in alone:
        typer.echo(f"kvscope: {printable(text)}", err=True)
    if not pairs:
        raise fail("no engine of A can be compared with one of B")
    raise typer.Exit(_compared(sides, pairs, options.last, as_json=output.is_json))


def _pairs(
    sides: "tuple[Side, Side]", of_a: "Engines", of_b: "Engines"
) -> "tuple[list[Pair], list[str]]":
    """One engine of each side, whatever their names; several, by name. And those left over."""
    alone, known = [], []
    for side, engines in zip(sides, (of_a, of_b), strict=True):
        if not engines:
            alone.append(f"{side.letter}: no engine has identified itself")
        for engine in engines:
            if engine.answer is None:
                alone.append(f"{side.letter}: {_name(engine)}: {engine.unknown or 'unknown'}")
        known.append([engine for engine in engines if engine.answer is not None])
    left, right = known
    if len(left) == len(right) == 1:
        return [(left[0], right[0])], alone
    others = {_name(engine): engine for engine in right}
    pairs = [(engine, others.pop(_name(engine))) for engine in left if _name(engine) in others]
    paired = {_name(engine) for engine, _ in pairs}
    for side, engines in zip(sides, known, strict=True):
        alone += [
            f"{side.letter}: {_name(engine)} has no counterpart"
            for engine in engines
            if _name(engine) not in paired
        ]
    return pairs, alone


def _name(engine: "EngineAnswer[CourseAnswer]") -> str:
    return f"{engine.model_name}, engine {engine.engine}"


def _compared(
    sides: "tuple[Side, Side]", pairs: "list[Pair]", last: float, *, as_json: bool
) -> int:
    import msgspec

    from kvscope.diff.compare import compare
    from kvscope.diff.report import lines_of

    document, is_different = [], False
    for number, pair in enumerate(pairs):
        courses = [
            _stretch(side, engine.answer, last) for side, engine in zip(sides, pair, strict=True)
        ]
        comparison = compare(*courses)
        is_different = is_different or bool(comparison.settings or comparison.surprises)
        heads = [
            _described(side, engine, course)
            for side, engine, course in zip(sides, pair, courses, strict=True)
        ]
        if as_json:
            document.append({"a": heads[0], "b": heads[1], **msgspec.structs.asdict(comparison)})
            continue
        if number:
            typer.echo()
        for side, head in zip(sides, heads, strict=True):
            typer.echo(
                printable(
                    f"{side.letter}: {head['source']}, {head['model_name']} engine "
                    f"{head['engine']}, {head['begins']} to {head['ends']} UTC"
                )
            )
        for line in lines_of(comparison):
            typer.echo(textwrap.fill(line, _WIDTH, subsequent_indent="           "))
    if as_json:
        typer.echo(msgspec.json.encode({"different": is_different, "engines": document}))
    return EXIT_DIFFERENT if is_different else 0


def _stretch(side: "Side", course: "CourseAnswer | None", last: float) -> "CourseAnswer":
    """Its last slices. Raises typer.Exit(2)."""
    import msgspec

    assert course is not None
    count = int(last / course.slice_seconds)
    seconds = len(course.slices) * course.slice_seconds
    if seconds < _FEWEST_SECONDS:
        raise fail(
            f"{side.letter}: {side.source}: only {seconds:.0f} s are known; a minute is the least "
            "that shows how much a figure varies by itself"
        )
    gpus = [
        msgspec.structs.replace(
            gpu, slowed=gpu.slowed[-count:], other_bytes=gpu.other_bytes[-count:]
        )
        for gpu in course.gpus
    ]
    return msgspec.structs.replace(course, slices=course.slices[-count:], gpus=gpus)


def _described(
    side: "Side", engine: "EngineAnswer[CourseAnswer]", course: "CourseAnswer"
) -> dict[str, str]:
    from kvscope.replay.moment import shown

    ends_ns = round(course.ends_seconds * 1e9)
    begins_ns = ends_ns - round(len(course.slices) * course.slice_seconds * 1e9)
    return {
        "source": side.source,
        "model_name": engine.model_name,
        "engine": engine.engine,
        "begins": shown(begins_ns)[:19],
        "ends": shown(ends_ns)[:19],
    }
