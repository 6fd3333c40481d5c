"""`kvscope advise URL`: what to change about a server, as its exporter sees it."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from exporter.cli.asking import Authorities, KeyFile, TargetName
from exporter.cli.output import fail, printable

if TYPE_CHECKING:
    from exporter.adviser.proposal import Proposal
    from exporter.answers.advice import AdviceAnswer
    from exporter.cli.answer_document import EngineAnswer

_STYLES = {"high": "green", "medium": "yellow", "low": "red"}


def advise(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="Base URL of a kvscope: of `serve` or `demo`, of `run`, or of a sidecar.",
        ),
    ],
    target: TargetName = "",
    metrics_key_file: KeyFile = None,
    ca: Authorities = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for the answer.")] = 10.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")] = False,
) -> None:
    """Recommend changes to a server, with their cost and gain.

    At most five proposals for each engine, the best first. Each is an option of the server with a
    value, and says how sure it is and what it assumes. Nothing is proposed that the memory forbids.

    Exit status: 0, also if there is nothing to change; 2 if the server cannot be asked.

    Example: kvscope advise http://127.0.0.1:8000
    """
    from exporter.answers.advice import ADVICE, AdviceAnswer
    from exporter.cli.answer_document import AnswerError, decode, fetch

    try:
        body = fetch(
            url, ADVICE.name, target=target, key_file=metrics_key_file, ca=ca, seconds=timeout
        )
        engines = decode(body, url, ADVICE.name, AdviceAnswer)
    except AnswerError as error:
        raise fail(error) from None
    if as_json:
        typer.echo(body)
        return
    console = Console(highlight=False)
    if not engines:
        console.print("nothing is known yet: no engine has said who it is")
    for engine in engines:
        _print_engine(console, engine, is_one_of_many=len(engines) > 1)


def _print_engine(
    console: Console, engine: "EngineAnswer[AdviceAnswer]", *, is_one_of_many: bool
) -> None:
    if is_one_of_many:
        name = f"{engine.model_name or 'a model without a name'}, engine {engine.engine}"
        console.print(Text(printable(name), "bold"))
    answer = engine.answer
    if answer is None:
        console.print(Text(printable(f"unknown: {engine.unknown or 'no reason is given'}")))
        return
    for number, proposal in enumerate(answer.proposals, 1):
        _print_proposal(console, number, proposal)
    if not answer.proposals:
        console.print(Text("nothing to change", "green"), end="")
        console.print(f": {answer.seconds:,.0f} s were observed, and this is not proposed")
    elif answer.declined:
        console.print(Text("Not proposed", "bold"))
    for reason in answer.declined:
        console.print(Padding(Text(printable(f"- {reason}")), (0, 0, 0, 2), expand=False))


def _print_proposal(console: Console, number: int, proposal: "Proposal") -> None:
    console.print(Text(printable(f"{number}. {proposal.text}"), "bold"))
    rows = [("why", proposal.why, "")]
    if proposal.price.text:
        rows.append(("price", proposal.price.text, ""))
    certainty = f"{proposal.confidence}: {proposal.because}"
    rows.append(("confidence", certainty, _STYLES.get(proposal.confidence, "")))
    rows += [("assumes", sentence, "") for sentence in proposal.assumes]
    for name, text, style in rows:
        line = Text(f"{name}: ", style or "dim")
        line.append(printable(text), "")
        console.print(Padding(line, (0, 0, 0, 3), expand=False))
    console.print()
