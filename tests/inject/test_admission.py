"""A webhook's answers: a pod gets what `kvscope inject --fail-open` adds, and is admitted."""

import base64
import json
import signal
import ssl
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvscope.inject.admission import answer
from kvscope.inject.options import PodOptions
from kvscope.inject.pod import OBSERVER, SIDECAR
from kvscope.serving.webhook import Certificate, webhook_app
from kvscope_exporter.web.http_server import HttpServer
from tests.inject.odd_inputs import OBSERVABLE
from tests.inject.pods import added_to, observed, specs
from tests.inject.run import loaded, run
from tests.support.http_peer import Certificate as Pair
from tests.support.http_peer import make_certificate
from tests.support.process import forked_kvscope

IMAGE = "example.org/kvscope:1"
SERVER = {"name": "engine", "image": "vllm/vllm-openai:v0.32.0", "args": ["--model=m"]}
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


def pod(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    metadata = {"generateName": "engine-5d-", "labels": {"kvscope.io/observe": "true"}}
    return {"metadata": metadata, "spec": {"containers": list(containers) or [SERVER], **spec}}


def review(content: Any) -> bytes:
    request = {"uid": "7f", "namespace": "chat", "object": content, "dryRun": False}
    return json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    ).encode()


def asked(content: Any, **options: Any) -> dict[str, Any]:
    """The response to a review of a pod."""
    options.setdefault("exporter_image", IMAGE)
    whole = json.loads(answer(review(content), PodOptions(**options)))
    response: dict[str, Any] = whole["response"]
    assert (whole["kind"], response["uid"], response["allowed"]) == ("AdmissionReview", "7f", True)
    return response


def admitted(content: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The pod as an API server makes it of the answer (RFC 6902)."""
    response, result = asked(content, **options), json.loads(json.dumps(content))
    for operation in json.loads(base64.b64decode(response.get("patch", "W10="))):
        assert operation["op"] == "add"
        *path, last = operation["path"].split("/")[1:]
        place = result
        for name in path:
            place = place[int(name)] if isinstance(place, list) else place[unescaped(name)]
        if isinstance(place, list):
            place.insert(len(place) if last == "-" else int(last), operation["value"])
        else:
            place[unescaped(last)] = operation["value"]
    return result


def unescaped(name: str) -> str:
    return name.replace("~1", "/").replace("~0", "~")


def pods_in(text: str) -> list[Any]:
    """Those that a controller would create as they are written."""
    return [spec for spec in specs(loaded(text)) if not {"model", "runner"} & spec.keys()]


@pytest.mark.parametrize("text", [text for name, text in OBSERVABLE.items() if name != "scheduled"])
def test_a_pod_gets_what_inject_adds_to_its_template(text: str) -> None:
    bare = pods_in(text)
    wanted = pods_in(run(text, "--fail-open", f"--exporter-image={IMAGE}").text)
    for before, after in zip(bare, wanted, strict=True):
        if not observed([after]) or before.get("restartPolicy") not in (None, "Always"):
            continue
        result = admitted({"metadata": {}, "spec": before})
        if observed([result]):  # a pod alone does not say that KServe's or Ray's controller made it
            assert result["spec"] == after
            assert result["metadata"] == {"labels": {"kvscope": "observed"}}
            assert asked(result).keys() == {"uid", "allowed"}, "asked again, it changes nothing"


def test_annotations_win_over_the_options_of_the_webhook() -> None:
    own = {"name": "mine", "image": "registry/mine:3", "command": ["serve-it"]}
    content = pod(own, {"name": "proxy", "image": "envoy"})
    assert "kvscope.io/container may be mine or proxy" in asked(content)["warnings"][0]
    content["metadata"]["annotations"] = {
        **{"kvscope.io/container": "mine", "kvscope.io/user": "1000", "kvscope.io/port": "8020"},
        **{"kvscope.io/key-secret": "page/word", "sidecar.istio.io/inject": "true"},
    }
    (spec,) = observed([admitted(content, port=9000)])
    assert added_to(spec, SIDECAR)["ports"] == [{"name": "kvscope", "containerPort": 8020}]
    assert added_to(spec, OBSERVER)["securityContext"]["runAsUser"] == 1000
    assert "--metrics-key-file=/kvscope/key/word" in added_to(spec, SIDECAR)["args"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (pod(restartPolicy="Never"), "kvscope inject"),
        (pod({**SERVER, "image": "mine:1", "command": ["vllm", "serve"]}), "kvscope.io/user UID"),
        (pod(SERVER, {**SERVER, "name": "second"}), "kvscope.io/container"),
        (
            {**pod(), "metadata": {"annotations": {"kvscope.io/prot": "1"}}},
            "user, port, key-secret",
        ),
        ({**pod(), "metadata": {"annotations": {"kvscope.io/port": "http"}}}, "1 to 65535"),
        ({**pod(), "metadata": {"annotations": {"kvscope.io/port": "70000"}}}, "1 to 65535"),
        ({**pod(), "metadata": {"annotations": {"kvscope.io/blocks": "999999999"}}}, "1 to"),
        ({**pod(), "metadata": {"annotations": {"kvscope.io/key-secret": "A_b"}}}, "of a Secret"),
    ],
)
def test_a_pod_that_cannot_be_observed_is_admitted_as_it_is(content: Any, reason: str) -> None:
    response = asked(content)
    assert "patch" not in response
    assert reason in response["warnings"][0]


def test_other_pods_of_a_namespace_pass_without_a_word() -> None:
    content = pod({"name": "web", "image": "nginx"})
    content["metadata"].pop("labels")
    assert asked(content).keys() == {"uid", "allowed"}


@given(_JSON | st.fixed_dictionaries({"spec": _JSON | st.builds(pod, _JSON)}))
def test_whatever_an_object_has_in_it_is_admitted(content: Any) -> None:
    asked(content if isinstance(content, dict) else {"spec": content})


def test_an_answer_takes_a_small_part_of_what_an_api_server_waits() -> None:
    asked(pod())
    began = time.process_time()
    for _ in range(5):
        asked(pod())
    assert (time.process_time() - began) / 5 < 0.1


def test_it_serves_an_api_server_until_it_is_ended(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    files = [f"--ssl-certfile={made.file}", f"--ssl-keyfile={made.key}"]
    words = ("webhook", "--listen-port=0", f"--exporter-image={IMAGE}", *files)
    with forked_kvscope(*words) as process:
        url = process.find(r"asked at (https\S+)/observe")
        with trusting(url, made) as client:
            assert client.get("/health").json() == {"status": "ok"}
            assert "patch" in client.post("/observe", content=review(pod())).json()["response"]
            assert client.post("/observe", content=b"{}").status_code == 400
            assert client.post("/observe", content=b" " * (9 << 20)).status_code == 413
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert "chat/engine-5d-: observed" in process.text
    assert "Traceback" not in process.text


def test_it_takes_a_renewed_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made, other = make_certificate(tmp_path), make_certificate(tmp_path, "other")
    certificate = Certificate(made.file, made.key)
    with HttpServer(webhook_app(bytes), "127.0.0.1", 0, tls=certificate.context) as server:
        made.key.write_bytes(other.key.read_bytes())
        certificate.renew()
        assert "stays as it was" in caplog.text, "half of a pair"
        made.file.write_bytes(other.file.read_bytes())
        certificate.renew()
        with trusting(f"https://127.0.0.1:{server.port}", other) as client:
            assert client.get("/health").is_success


def trusting(url: str, certificate: Pair) -> httpx.Client:
    context = ssl.create_default_context(cafile=certificate.file)
    return httpx.Client(base_url=url, verify=context)
