"""`kvscope advise`: recommended changes to a server, as its exporter sees it."""

import re
import textwrap
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from kvscope.answer_document import Connection, TargetName
from kvscope.options.generated import with_options
from kvscope.output import Output, OutputOption, fail
from kvscope.places import SERVER_HELP, server_asked
from kvscope_events.printable import printable

if TYPE_CHECKING:
    from kvscope.answer_document import EngineAnswer
    from kvscope_exporter.adviser.proposal import Proposal
    from kvscope_exporter.answers.advice import AdviceAnswer

_STYLES = {"high": "green", "medium": "yellow", "low": "red"}
_IDLE_SECONDS = 60.0
"""Shorter pauses are part of a load."""
_LONG = 120.0
"""Length in seconds above which a window is given in minutes only."""
_NO_BREAK = "\N{NO-BREAK SPACE}"
_FIGURE = re.compile(r"(?<=\d) (?=\S)|(?<=→) ")
"""Spaces between a number and its unit, and around arrows."""


@with_options
def advise(
    server: Annotated[
        str | None, typer.Argument(metavar="SERVER", help=SERVER_HELP, show_default=False)
    ] = None,
    target: TargetName = "",
    connection: Connection = Connection(),
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also print what is not proposed, and why.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Recommend changes to a server, with the cost and gain of each.

    At most five proposals for each engine, the best first. Each is an option of the server with a
    value, a confidence and its assumptions. Proposals that do not fit in memory are omitted. Rates
    are averages over the last five minutes of load, which are printed first.

    A change that would help, but needs a fact or memory that is missing, is printed as "Cannot
    recommend yet", with what is missing.

    Exit status: 0, also if no change is needed; 2 if the server cannot be asked.

    Example: kvscope advise http://127.0.0.1:8010
    """
    from kvscope.answer_document import AnswerError, decode, fetch
    from kvscope_exporter.answers.advice import ADVICE, AdviceAnswer

    url = server_asked(server, "advise")
    try:
        body = fetch(url, ADVICE.name, connection, target=target)
        engines = decode(body, url, ADVICE.name, AdviceAnswer)
    except AnswerError as error:
        raise fail(error) from None
    if output.is_json:
        typer.echo(body)
        return
    console = Console(highlight=False)
    if not engines:
        console.print("nothing is known yet: no engine has identified itself")
    for engine in engines:
        _print_engine(console, engine, is_one_of_many=len(engines) > 1, verbose=verbose)


def _print_engine(
    console: Console, engine: "EngineAnswer[AdviceAnswer]", *, is_one_of_many: bool, verbose: bool
) -> None:
    if is_one_of_many:
        name = f"{engine.model_name or 'a model without a name'}, engine {engine.engine}"
        console.print(Text(printable(name), "bold"))
    answer = engine.answer
    if answer is None:
        _print(console, f"unknown: {engine.unknown or 'no reason is given'}")
        return
    _print(console, f"{minutes_of(answer)}:")
    for number, proposal in enumerate(answer.proposals, 1):
        _print_proposal(console, number, proposal)
    for reason in answer.blocked:
        _print(console, f"Cannot recommend yet: {reason}.")
    if not answer.proposals and not answer.blocked:
        _print(console, _without_proposals(answer))
    if answer.unknown is not None:
        _print(console, f"Not advised on: {answer.unknown}.")
    if not verbose:
        if not answer.proposals:
            _print(console, "--verbose prints what was considered, and why it is not proposed.")
        return
    console.print(Text("Not proposed", "bold"))
    for reason in answer.declined:
        _print(console, f"- {reason}", indent=2)


def _without_proposals(answer: "AdviceAnswer") -> str:
    if not answer.not_judged and answer.unknown is None:
        return "No change needed."
    if len(answer.not_judged) == len(answer.declined):
        return "Nothing can be recommended yet: too little is known."
    kinds = dict.fromkeys(reason.partition(":")[0] for reason in answer.not_judged)
    left_open = f" Not judged: {', '.join(kinds)}." if kinds and answer.unknown is None else ""
    return f"No change needed, as far as it can be judged.{left_open}"


def _print_proposal(console: Console, number: int, proposal: "Proposal") -> None:
    _print(console, f"{number}. {proposal.text}", style="bold")
    rows = [("why", proposal.why, "")]
    if proposal.price.text:
        rows.append(("price", proposal.price.text, ""))
    certainty = f"{proposal.confidence}: {proposal.because}"
    rows.append(("confidence", certainty, _STYLES.get(proposal.confidence, "")))
    rows += [("assumes", sentence, "") for sentence in proposal.assumes]
    for name, text, style in rows:
        _print(console, text, label=f"{name}: ", style=style or "dim", indent=3)
    console.print()


def minutes_of(answer: "AdviceAnswer") -> str:
    """The window, as in 19:32 to 19:37 local time, and how long the engine has been idle."""
    if answer.end_seconds is None:
        return "Before the first step of this server"
    begin, end = (
        time.strftime("%H:%M" if answer.seconds >= _LONG else "%H:%M:%S", time.localtime(seconds))
        for seconds in (answer.end_seconds - answer.seconds, answer.end_seconds)
    )
    idle = answer.idle_seconds or 0.0
    if idle < _IDLE_SECONDS:
        return f"Over {begin} to {end}"
    return f"Over {begin} to {end}, before the engine fell idle {idle / 60:,.0f} min ago"


def _print(
    console: Console, text: str, *, label: str = "", style: str = "", indent: int = 0
) -> None:
    """Print lines that break between words, but not between a number and its unit, or at arrows."""
    whole = _FIGURE.sub(_NO_BREAK, f"{label}{printable(text)}")
    lines = textwrap.wrap(whole, max(20, console.width - indent), break_long_words=False) or [""]
    for number, line in enumerate(lines):
        shown = Text(" " * indent + line.replace(_NO_BREAK, " "), "" if label else style)
        if label and not number:
            shown.stylize(style, indent, indent + len(label))
        console.print(shown, no_wrap=True, overflow="ignore", crop=False)
