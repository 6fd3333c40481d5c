"""The server within a shell's script: its own words are read, and no others."""

import json

import pytest

from kvscope.inject.script import commands_of
from kvscope.inject.servers import Server, server_in
from kvscope.inject.tree import LeftAloneError
from tests.inject.run import run
from tests.inject.test_left_alone import container, deployment

SIDE_BY_SIDE = "its script starts several servers, which would share one folder of sockets"


def server_of(script: str) -> Server:
    found = server_in(["sh", "-c", script], "ours/llm", has_command=True)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("script", "port"),
    [
        ("vllm serve m --port 8001 & exec proxy --port 9000", 8001),
        ("vllm serve m &\nsleep 60; vllm bench serve --host 10.0.0.1 --port 9000", 8000),
        ("vllm serve m\nproxy --port 9000", 8000),
        ("vllm serve m --port 8001 2>&1 | tee log --port 9000", 8001),
        ("vllm serve m >log 2>&1 --port 8001 && proxy --port 9000", 8001),
        ("vllm serve m &>log --port 8001", 8001),
        ("(vllm serve m --port 8001) ; proxy --port 9000", 8001),
        ("vllm serve m & other --headless", 8000),
        ("vllm serve m \\\n  --port 8001", 8001),
        ("vllm serve m --po\\\nrt 8001", 8001),
        ("vllm serve m # not \\\n --port 9000", 8000),
        ("vllm serve m --chat-template ';' --port 8001", 8001),
        ('vllm serve m --x "a & b $(nproc | wc -l) \\" ;" --port 8001', 8001),
        ("vllm serve m --tp $(nvidia-smi -L | wc -l) --port 8001", 8001),
        ("vllm serve m --tp `nvidia-smi -L | wc -l` --port 8001", 8001),
        ("vllm serve m --tp $(( (1 + 1) * 2 )) --port 8001", 8001),
        ("vllm serve m --name ${NAME:-a;b} --port 8001", 8001),
        ("vllm serve m {{ .Name | quote }} --port 8001", 8001),
        ("vllm serve org/m#rev --port 9000", 9000),
        ("# it's ours\nvllm serve m --port 8001", 8001),
        ("cat <<E\nit's\nE\nvllm serve m --port 8001 & proxy --port 9000", 8001),
    ],
)
def test_the_address_is_read_from_the_servers_own_words(script: str, port: int) -> None:
    assert server_of(script).url == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    "option", ["{{ if .EnableTLS }}--ssl-certfile tls.crt {{ end }}", "${TLS:+--ssl-certfile c}"]
)
def test_a_page_that_may_be_https_is_not_read(option: str) -> None:
    found = server_of(f"vllm serve m --port 8001 {option}")
    assert found.url is None
    assert "a condition in its script decides whether it is https" in found.remark


@pytest.mark.parametrize("host", ["$(hostname -i)", "$HOST", "`hostname -i`", "${HOST}"])
def test_a_host_that_only_the_shell_knows_is_not_read(host: str) -> None:
    found = server_of(f"vllm serve m --host {host}")
    assert (found.url, found.remark) == (
        None,
        "its page is not read: its host is not in its command",
    )


@pytest.mark.parametrize(
    "script",
    [
        "vllm serve a --port 8100 & vllm serve b --port 8200 & toy_proxy_server.py --port 8192",
        "vllm serve a 2>&1 | tee log & vllm serve b",
        "vllm serve a &\nready || exit 1\nvllm serve b",
        "vllm serve a\nvllm serve b",
        "vllm serve a & python3 -m sglang.launch_server --model-path b",
    ],
)
def test_a_container_with_servers_side_by_side_is_left_alone(script: str) -> None:
    text = deployment(container(f"command: [sh, -c, {json.dumps(script)}]"))
    outcome = run(text)
    assert (outcome.text, outcome.code) == ("", 1)
    assert f"left alone: {SIDE_BY_SIDE}: give each a container of its own" in outcome.said


@pytest.mark.parametrize(
    ("script", "url"),
    [
        ("if fp8; then vllm serve a; else vllm serve b --enforce-eager; fi", 8000),
        ("vllm serve a --port 8001 || vllm serve b --port 8001", 8001),
        ("case $R in a) vllm serve a ;; *) vllm serve b ;; esac", 8000),
        ("if leader; then vllm serve a; else vllm serve a --headless; fi", None),
        ("if a; then vllm serve a; elif b; then vllm serve b --port 8001; fi", None),
    ],
)
def test_of_servers_that_are_alternatives_the_common_address_is_read(
    script: str, url: int | None
) -> None:
    found = server_of(script)
    assert found.url == (url and f"http://127.0.0.1:{url}")
    if url is None:
        assert found.remark.endswith("its script starts one of several, whose addresses differ")


@pytest.mark.parametrize(
    "command",
    [
        ["sh", "-c", "unset PYTHONPATH; vllm serve m"],
        ["sh", "-c", "unset -v OTHER PYTHONPATH\nvllm serve m"],
        ["sh", "-c", "env -u PYTHONPATH vllm serve m"],
        ["sh", "-c", "env -uPYTHONPATH vllm serve m"],
        ["env", "--unset=PYTHONPATH", "vllm", "serve", "m"],
        ["/usr/bin/env", "-i", "vllm", "serve", "m"],
    ],
)
def test_a_server_whose_command_takes_pythonpath_away_is_left_alone(command: list[str]) -> None:
    with pytest.raises(LeftAloneError, match="takes PYTHONPATH away"):
        server_in(command, "ours/llm", has_command=True)


@pytest.mark.parametrize(
    "command",
    [
        ["env", "PYTHONPATH=/ours", "vllm", "serve", "m"],
        ["sh", "-c", 'export PYTHONPATH="/a b"; vllm serve m'],
    ],
)
def test_a_server_whose_command_sets_pythonpath_is_left_alone(command: list[str]) -> None:
    with pytest.raises(LeftAloneError, match="sets PYTHONPATH"):
        server_in(command, "ours/llm", has_command=True)


@pytest.mark.parametrize("options", ["-I", "-u -I", "-uI", "-W error -X dev -E", "-u -Im"])
def test_each_option_before_the_module_is_looked_at(options: str) -> None:
    with pytest.raises(LeftAloneError, match="ignores PYTHONPATH"):
        server_of(f"python3 {options} -m vllm.entrypoints.openai.api_server")


@pytest.mark.parametrize(
    "script",
    [
        'export PYTHONPATH="/a b:$PYTHONPATH"; vllm serve m',
        "PYTHONPATH=/a:$(PYTHONPATH) vllm serve m",
        "vllm serve m & env -u PYTHONPATH proxy",
        "env -u PYTHONPATH python3 -I prepare.py; vllm serve m",
        "python3 -u -W Error -m vllm.entrypoints.openai.api_server",
        "python3 -um vllm.entrypoints.openai.api_server -I",
        "python3 /usr/bin/vllm serve m -I",
    ],
)
def test_a_server_that_keeps_pythonpath_is_observed(script: str) -> None:
    assert server_of(script).url == "http://127.0.0.1:8000"


def test_words_are_those_that_a_shell_gives_its_commands() -> None:
    found = commands_of("a 'b c'\"d $e\\\"\" f\\ g '' # h\ni>j&&k#l;")
    assert [(command.words, command.end) for command in found] == [
        (["a", 'b cd $e"', "f g", ""], "\n"),
        (["i", ">", "j"], "&&"),
        (["k#l"], ";"),
        ([], ""),
    ]


@pytest.mark.parametrize("script", ['"' + "$(a) " * 5000, "$(" * 2000, "'" + "{{ " * 2000])
def test_a_script_that_never_closes_its_quotes_is_read_all_the_same(script: str) -> None:
    assert server_of(f"vllm serve m --port 8001; {script}").url == "http://127.0.0.1:8001"
