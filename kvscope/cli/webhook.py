"""`kvscope webhook`: pods that ask for it are observed as they are created."""

import logging
from dataclasses import dataclass
from pathlib import Path

from kvscope.inject.options import PodOptions
from kvscope.options.generated import with_options
from kvscope.output import configure_logging, fail
from kvscope.serving.stacks import show_stacks
from kvscope_engine.option import option

RENEWAL_SECONDS = 60.0
"""Interval at which a renewed certificate is looked for; a kubelet takes about as long itself."""
logger = logging.getLogger("kvscope")


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookOptions:
    """The command line: the page's address and certificate, and what pods get by default."""

    ssl_certfile: Path | None = option(
        None,
        "Certificate in PEM for the name of the webhook's Service, read again when it is renewed. "
        "Needed: an API server asks over https alone.",
        "FILE",
    )
    ssl_keyfile: Path | None = option(
        None, "TLS private key. Default: read from --ssl-certfile.", "FILE"
    )
    host: str = option("127.0.0.1", "Address to listen on.", "HOST")
    listen_port: int = option(
        8443, "Port to listen on; 0: any free one.", "PORT", least=0, most=65535
    )
    """Not --port, which is the sidecar's in the pods, as in `kvscope inject`."""
    pods: PodOptions = PodOptions()


@with_options
def webhook(options: WebhookOptions = WebhookOptions()) -> None:
    """Observe pods as a cluster creates them.

    Serves a mutating admission webhook. An API server asks POST /observe about each pod with the
    label kvscope.io/observe=true, or in a namespace with it, and adds what the answer contains. The
    server starts whatever happens here, because it waits for no container of ours, and a pod that
    cannot be observed stays as it is. Annotations of a pod (kvscope.io/container, user, port,
    blocks, key-secret, cpu-limit) win over the options. The chart installs the webhook with its
    certificate (webhook.enabled).

    Example: kvscope webhook --exporter-image IMAGE --host 0.0.0.0 --ssl-certfile tls.crt
    --ssl-keyfile tls.key
    """
    from kvscope.inject.admission import answer, prepare
    from kvscope.serving.listen import listening, url_of
    from kvscope.serving.run import AppServer
    from kvscope.serving.signals import signals_end
    from kvscope.serving.webhook import Certificate, webhook_app
    from kvscope_exporter.clock import BackgroundLoop

    configure_logging()
    show_stacks()
    try:
        prepare(options.pods)
        certificate = Certificate(options.ssl_certfile, options.ssl_keyfile)
    except ValueError as error:
        raise fail(error) from None
    host = options.host
    renewal = BackgroundLoop("kvscope-certificate", RENEWAL_SECONDS, certificate.renew)
    with signals_end() as ending, listening(host, options.listen_port) as listener:
        logger.info("asked at %s/observe", url_of(host, listener.getsockname()[1], tls=True))
        renewal.start()
        try:
            app = webhook_app(lambda body: answer(body, options.pods))
            AppServer(app, tls=certificate.context).run_until_end(listener, ending)
        finally:
            renewal.stop()
    logger.info("stopped")
