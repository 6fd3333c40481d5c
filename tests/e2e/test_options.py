"""An option is a field of a configuration: flag, variable, limits and help follow from it."""

from dataclasses import dataclass
from typing import Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from kvscope.cli.app import Daemon
from kvscope.options.generated import with_options
from kvscope_engine.config import EngineConfig
from kvscope_engine.option import built, option, settings
from kvscope_exporter.adviser.flags import FLAGS


@dataclass(frozen=True, slots=True, kw_only=True)
class Oven:
    celsius: int = option(180, "Heat.", "DEGREES", least=50, most=250)
    """A part of what is configured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kitchen:
    oven: Oven = Oven()
    fan: bool = option(True, "Move the air.")
    mode: Literal["bake", "grill"] = option("bake", "How.", flags=("--cooking-mode", "--mode"))
    minutes: float | None = option(None, "How long.", "MINUTES")
    brand: str = "none of the cook's business"

    def __post_init__(self) -> None:
        if self.minutes is not None and self.minutes < 0:
            raise ValueError("--minutes must not be negative")


def cook(*arguments: str, **variables: str) -> tuple[int, str, list[Kitchen]]:
    """Exit code, output, and the configuration that the command was given."""
    given: list[Kitchen] = []

    @with_options
    def command(context: typer.Context, kitchen: Kitchen = Kitchen(), twice: bool = False) -> None:
        given.append(kitchen)

    app = typer.Typer(rich_markup_mode=None)
    app.command("cook", cls=type("Cook", (Daemon,), {"path": "cook"}))(command)
    done = CliRunner().invoke(app, arguments, env={"COLUMNS": "100", **variables})
    return done.exit_code, done.output, given


def test_without_flags_it_is_the_default() -> None:
    assert cook() == (0, "", [Kitchen()])


def test_a_field_is_a_flag_and_a_variable() -> None:
    flags = ("--celsius", "200", "--no-fan", "--mode", "grill", "--minutes", "2.5", "--twice")
    expected = Kitchen(oven=Oven(celsius=200), fan=False, mode="grill", minutes=2.5)
    assert cook(*flags) == (0, "", [expected])
    variables = {
        "KVSCOPE_COOK_CELSIUS": "200",
        "KVSCOPE_COOK_FAN": "0",
        "KVSCOPE_COOK_COOKING_MODE": "grill",
    }
    assert cook("--minutes", "2.5", **variables) == (0, "", [expected])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--celsius", "300"), "--celsius"),
        (("--cooking-mode", "boil"), "--cooking-mode"),
        (("--minutes", "-1"), "--minutes must not be negative"),
        (("--brand", "x"), "--brand"),
    ],
)
def test_a_bad_value_is_refused_by_name(arguments: tuple[str, ...], reason: str) -> None:
    code, output, given = cook(*arguments)
    assert (code, given) == (2, [])
    assert reason in output


def test_the_help_shows_what_the_field_says() -> None:
    _, shown, _ = cook("--help")
    assert "--celsius DEGREES" in shown
    assert "Heat.  [default: 180; 50 to 250]" in shown
    assert "--fan / --no-fan" in shown
    assert "--cooking-mode, --mode bake|grill" in shown


def test_the_settings_of_the_engine_build_its_defaults() -> None:
    found = settings(EngineConfig())
    values: dict[str, Any] = {setting.name: setting.default for setting in found}
    assert len(values) == len(found), "a flag twice"
    assert built(EngineConfig(), values) == EngineConfig()


def test_the_adviser_names_options_of_the_engine() -> None:
    """Some are only a vLLM's, others SGLang's; the engine has all the rest."""
    flags = {flag for setting in settings(EngineConfig()) for flag in setting.flags}
    others = {
        "kv_offloading_size", "watermark", "prefix_cache_retention_interval",
        "mem_fraction_static", "max_total_tokens", "max_running_requests", "chunked_prefill_size",
        "page_size", "schedule_conservativeness", "hicache_size",
    }  # fmt: skip
    named = {
        word
        for option, text in FLAGS.items()
        if option not in others
        for word in text.split()
        if word.startswith("--")
    }
    assert named
    assert named <= flags
