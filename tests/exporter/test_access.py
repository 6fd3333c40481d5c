"""Access control: keys before bodies, passwords, and pages of other sites kept out."""

import asyncio
import base64
import socket
from pathlib import Path
from typing import Any

import bcrypt
import httpx
import pytest
from starlette.types import Receive, Scope, Send

from kvscope_events.vocabulary import CLIENT_KEY
from kvscope_exporter.web.access import Access, AccessConfig, Credentials
from kvscope_exporter.web.access import passwords as passwords_module
from kvscope_exporter.web.access.keys import MAX_KEYS, check_key, read_keys

pytestmark = pytest.mark.anyio

BASE = "http://127.0.0.1:8000"
JSON = {"Content-Type": "application/json"}
RESET = "/reset_prefix_cache"
RELEASE = "/api/gpu/release"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class App:
    """Answers everything with 200, and remembers what reached it."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"fine"})


async def ask(
    config: AccessConfig,
    method: str,
    path: str,
    app: App | None = None,
    client_address: str = "127.0.0.1",
    **options: Any,
) -> httpx.Response:
    transport = httpx.ASGITransport(Access(app or App(), config), client=(client_address, 1))
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        return await client.request(method, path, **options)


def bearer(key: str, scheme: str = "Bearer") -> dict[str, bytes]:
    return {"Authorization": f"{scheme} {key}".encode()}


def basic(user: str, password: str) -> dict[str, str]:
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def hashed(password: str) -> bytes:
    return bcrypt.hashpw(password.encode(), bcrypt.gensalt(4))


KEYED = AccessConfig(api=Credentials(["first", "schlüssel"]))
OPEN = AccessConfig(hosts=frozenset(["kvscope.example"]))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/completions"),
        ("GET", "/v1/models"),
        ("GET", "/openapi.json"),
        ("GET", "/nothing/here"),
        ("POST", RESET),
        ("POST", RELEASE),
        ("POST", "/metrics/"),
    ],
)
async def test_a_key_is_asked_for_everything_but_health_and_metrics(method: str, path: str) -> None:
    app = App()
    refused = await ask(KEYED, method, path, app)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    error = refused.json()["error"]
    assert error["code"] == 401
    assert error["type"] == "invalid_request_error"
    assert "Authorization: Bearer" in error["message"]
    for wrong in (bearer("wrong"), bearer("firs"), bearer("first", "Basic"), bearer("\xff")):
        assert (await ask(KEYED, method, path, app, headers=wrong)).status_code == 401
    assert app.scopes == [], "nothing has reached the app"
    for right in (bearer("first"), bearer("schlüssel"), bearer("first", "bearer")):
        assert (await ask(KEYED, method, path, app, headers=right)).status_code == 200


@pytest.mark.parametrize("path", ["/health", "/metrics"])
async def test_health_and_metrics_need_no_key_of_the_api(path: str) -> None:
    assert (await ask(KEYED, "GET", path)).status_code == 200


async def test_two_authorizations_are_none() -> None:
    """A proxy in front could have looked at the other one."""
    twice = [("Authorization", "Bearer first"), ("Authorization", "Bearer wrong")]
    assert (await ask(KEYED, "GET", "/v1/models", headers=twice)).status_code == 401


async def test_no_byte_of_a_body_is_read_before_the_key() -> None:
    async def receive() -> Any:
        raise AssertionError("the body was asked for")

    sent = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json"), (b"content-length", b"8000000")]
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": headers}
    await Access(App(), KEYED)(scope, receive, send)
    assert sent[0]["status"] == 401


async def test_a_key_names_its_client_without_showing_itself() -> None:
    app = App()
    for key in ("first", "schlüssel", "first"):
        await ask(KEYED, "GET", "/v1/models", app, headers=bearer(key))
    names = [scope[CLIENT_KEY] for scope in app.scopes]
    assert names[0] == names[2] != names[1]
    assert "first" not in str(names)
    await ask(OPEN, "GET", "/v1/models", app)
    assert CLIENT_KEY not in app.scopes[-1]


@pytest.mark.parametrize("path", [RESET, RELEASE, "/api/gpu/resume"])
async def test_a_page_of_another_site_changes_nothing(path: str) -> None:
    app = App()
    forms = {
        "a form": {"Content-Type": "application/x-www-form-urlencoded"},
        "text": {"Content-Type": "text/plain"},
        "nothing": {},
    }
    for headers in forms.values():
        assert (await ask(OPEN, "POST", path, app, headers=headers)).status_code == 415
    for origin in ("http://evil.example", "null", "https://127.0.0.1:8000", "http://127.0.0.1"):
        refused = await ask(OPEN, "POST", path, app, headers={**JSON, "Origin": origin})
        assert refused.status_code == 403, origin
    for host in ("evil.example", "evil.example:8000", "localhost.evil.example", "", "[::1", "1"):
        refused = await ask(OPEN, "POST", path, app, headers={**JSON, "Host": host})
        assert refused.status_code == 403, host
        assert refused.json()["error"]["code"] == 403
    rebound = {**JSON, "Host": "evil.example", "Origin": "http://evil.example"}
    assert (await ask(OPEN, "POST", path, app, headers=rebound)).status_code == 403
    assert app.scopes == []


@pytest.mark.parametrize(
    "host",
    [
        "localhost:8000",
        "LOCALHOST",
        "127.0.0.1:8000",
        "127.8.8.8",
        "[::1]:8000",
        "kvscope.example:8000",
        "KVscope.example.",
    ],
)
async def test_same_origin_json_changes_things_without_a_key(host: str) -> None:
    for origin in ({}, {"Origin": f"http://{host}"}):
        headers = {**JSON, **origin, "Host": host}
        assert (await ask(OPEN, "POST", RESET, headers=headers)).status_code == 200
    charset = {"Content-Type": "application/json; charset=utf-8"}
    assert (await ask(OPEN, "POST", RESET, headers=charset)).status_code == 200


READ = (
    *("/metrics", "/metrics/compact", "/scrape", "/targets", "/", "/live", "/live/static/page.js"),
    *("/live/events", "/live/past/page", "/api/why", "/api/recordings/a.kvsr"),
)


@pytest.mark.parametrize("path", READ)
async def test_a_page_of_another_site_reads_nothing(path: str) -> None:
    app = App()
    rebound = (
        *("evil.example", "evil.example:8000", "evil.example.", "localhost.evil.example"),
        *("127.0.0.1.evil.example", "svc.evil.example", "evil.example, localhost"),
        *("", "[::1", "kvscope.example.evil.example", f"{socket.gethostname()}.evil.example"),
    )
    for host in rebound:
        refused = await ask(OPEN, "GET", path, app, headers={"Host": host})
        assert refused.status_code == 403, host
        assert "--allowed-host" in refused.json()["error"]["message"]
    assert app.scopes == []
    assert (await ask(OPEN, "GET", "/health", headers={"Host": "evil.example"})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        *("10.1.2.3:8010", "[fd00::7]:8010", "127.0.0.1", "localhost:3000", "pod.localhost"),
        *("demo:8000", "vllm_sidecar:8010", "host.docker.internal:8010", "KVscope.example."),
        *("kvscope.monitoring.svc:8010", "kvscope.monitoring.svc.cluster.local.", "DEMO"),
        socket.gethostname(),
    ],
)
async def test_prometheus_reads_by_address_and_by_any_name_that_nobody_can_register(
    host: str,
) -> None:
    for path in READ:
        answer = await ask(OPEN, "GET", path, client_address="10.0.0.9", headers={"Host": host})
        assert answer.status_code == 200, path


async def test_with_a_key_for_pages_any_name_will_do() -> None:
    config = AccessConfig(pages=Credentials(["scraper"]), hosts=frozenset())
    headers = {**bearer("scraper"), "Host": b"monitor.example"}
    assert (await ask(config, "GET", "/metrics", headers=headers)).status_code == 200
    assert (await ask(config, "GET", "/live", headers=headers)).status_code == 200
    refused = await ask(config, "GET", "/metrics", headers={"Host": "monitor.example"})
    assert refused.status_code == 401


async def test_a_key_makes_host_and_type_irrelevant() -> None:
    headers = {**bearer("first"), "Host": b"other.example"}
    for address in ("127.0.0.1", "192.0.2.7"):
        answer = await ask(KEYED, "POST", RESET, client_address=address, headers=headers)
        assert answer.status_code == 200


@pytest.mark.parametrize("path", [RESET, RELEASE, "/api/gpu/resume", "/api/retire"])
async def test_without_a_key_another_machine_changes_nothing(path: str) -> None:
    app = App()
    for address in ("192.0.2.7", "10.0.0.1", "::ffff:10.0.0.1", "2001:db8::1", "testclient"):
        refused = await ask(OPEN, "POST", path, app, client_address=address, headers=JSON)
        assert refused.status_code == 403, address
        assert "from the same machine only" in refused.json()["error"]["message"]
    assert app.scopes == []
    for address in ("127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1"):
        admitted = await ask(OPEN, "POST", path, app, client_address=address, headers=JSON)
        assert admitted.status_code == 200, address
    for method, readable in (("GET", "/metrics"), ("POST", "/v1/completions")):
        answer = await ask(OPEN, method, readable, client_address="192.0.2.7")
        assert answer.status_code == 200


async def test_without_a_key_the_api_is_open_under_any_name() -> None:
    headers = {"Host": "engine:8000"}
    for method, path in (("POST", "/v1/completions"), ("GET", "/metrics"), ("GET", "/v1/models")):
        assert (await ask(OPEN, method, path, headers=headers)).status_code == 200


async def test_metrics_take_their_own_keys_and_passwords() -> None:
    pages = Credentials(["scraper"], {"prometheus": hashed("secret")})
    config = AccessConfig(api=Credentials(["first"]), pages=pages)
    for wrong in (
        {},
        bearer("first"),
        bearer("secret"),
        basic("prometheus", "wrong"),
        basic("other", "secret"),
        basic("prometheus", "s" * 100),
        basic("prometheus", "secret\0"),
        {"Authorization": "Basic !!!"},
    ):
        assert (await ask(config, "GET", "/metrics", headers=wrong)).status_code == 401, wrong
    for right in (bearer("scraper"), basic("prometheus", "secret")):
        assert (await ask(config, "GET", "/metrics", headers=right)).status_code == 200
        assert (await ask(config, "GET", "/v1/models", headers=right)).status_code == 401
        assert (await ask(config, "POST", RELEASE, headers=right)).status_code == 401


async def test_without_an_api_key_what_changes_something_takes_the_one_for_metrics() -> None:
    config = AccessConfig(pages=Credentials([], {"prometheus": hashed("secret")}))
    refused = await ask(config, "POST", RELEASE, headers=JSON)
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Basic realm=")
    right = basic("prometheus", "secret")
    assert (await ask(config, "POST", RELEASE, headers=right)).status_code == 200


async def test_a_flood_of_wrong_passwords_does_not_lock_out_one_that_was_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = AccessConfig(pages=Credentials([], {"prometheus": hashed("secret")}))
    access = Access(App(), config)
    compared = bcrypt.checkpw
    under_way = 0
    most = 0

    def check(password: bytes, hash: bytes) -> bool:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        matches = compared(password, hash)
        under_way -= 1
        return matches

    monkeypatch.setattr(passwords_module.bcrypt, "checkpw", check)
    transport = httpx.ASGITransport(access)
    async with httpx.AsyncClient(transport=transport, base_url=BASE) as client:
        right = basic("prometheus", "secret")
        assert (await client.get("/metrics", headers=right)).status_code == 200
        flood = [client.get("/metrics", headers=basic("prometheus", f"{n}")) for n in range(200)]
        answers = await asyncio.gather(*flood, client.get("/metrics", headers=right))
    assert most == 1, "one core at most"
    assert answers[-1].status_code == 200
    assert {answer.status_code for answer in answers[:-1]} == {401, 503}
    assert sum(answer.status_code == 401 for answer in answers) <= 2 * passwords_module.MAX_WAITING


async def test_a_first_right_password_does_not_wait_for_those_guessed_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    access = Access(App(), AccessConfig(pages=Credentials([], {"prometheus": hashed("secret")})))
    compared = bcrypt.checkpw
    checked: list[bytes] = []

    def check(password: bytes, hash: bytes) -> bool:
        checked.append(password)
        return compared(password, hash)

    monkeypatch.setattr(passwords_module.bcrypt, "checkpw", check)
    near, far = (
        httpx.AsyncClient(transport=httpx.ASGITransport(access, client=(name, 1)), base_url=BASE)
        for name in ("192.0.2.1", "192.0.2.2")
    )
    async with near, far:
        flood = [far.get("/metrics", headers=basic("prometheus", f"{n}")) for n in range(50)]
        right = near.get("/metrics", headers=basic("prometheus", "secret"))
        answers = await asyncio.gather(*flood, right)
        assert answers[-1].status_code == 200
        assert sum(answer.status_code == 401 for answer in answers) == 2
        before = len(checked)
        for _ in range(20):
            wrong = await far.get("/metrics", headers=basic("prometheus", "0"))
            assert wrong.status_code == 401, "one that was wrong before is refused at once"
        assert len(checked) == before


@pytest.mark.parametrize(
    "key", ["", "a b", "a\n", "a\0b", "\udcff", "a" * 1025, "\x7f"], ids=lambda key: repr(key)[:12]
)
def test_what_cannot_be_a_key_is_refused_without_being_shown(key: str) -> None:
    with pytest.raises(ValueError, match=r"must not be|is not UTF-8|is longer|has a") as caught:
        check_key(key)
    assert not key or key not in str(caught.value)


def test_a_file_of_keys_has_one_a_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("\n first\r\n\nschlüssel\n")
    assert read_keys(file) == ("first", "schlüssel")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no key in it"),
        (b" \n\n", "no key in it"),
        (b"first\nsecret word\n", ":2: the key has a space"),
        (b"\xff\xfe", "not UTF-8 at byte 0"),
        (b"k\n" * (MAX_KEYS + 1), "over 256 keys"),
        (b"k" * 2000, ":1: the key is longer than 1024 bytes"),
        (b"k" * 1_000_000, "larger than"),
    ],
)
def test_a_file_that_has_no_keys_is_one_line(tmp_path: Path, content: bytes, problem: str) -> None:
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=problem) as caught:
        read_keys(file)
    assert str(file) in str(caught.value)
    assert "secret" not in str(caught.value)
    with pytest.raises(ValueError, match=r"cannot be read|not a file"):
        read_keys(tmp_path)
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_keys(tmp_path / "missing")
