# Two images:
#
#   docker build -t kvscope .                                the engine with its exporter
#   docker build -t kvscope-exporter --target exporter .     everything that needs no torch
#   docker run --rm -p 127.0.0.1:8000:8000 kvscope demo --host 0.0.0.0
#
# TORCH picks the torch build. From the package index that pip asks by default it comes with CUDA,
# several gigabytes; name an index of CPU builds in PIP_EXTRA_INDEX_URL to get the small one. EXTRAS
# names the extras of pyproject.toml that both images have: --build-arg EXTRAS=otlp,kv-events,basic-auth

ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ENV PIP_CACHE_DIR=/pip-cache PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/kvscope
ARG EXTRAS=otlp,top
# Not Triton: torch for CUDA brings the one that it was built with, and torch for CPUs runs none.
COPY constraints.txt pyproject.toml ./
RUN grep -Ev '^(torch|triton)==' constraints.txt > /tmp/constraints.txt \
    && python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; extras = project["optional-dependencies"]; print("\n".join(sum([extras[name] for name in "'"$EXTRAS"'".split(",") if name], project["dependencies"])), file=open("/tmp/exporter.txt", "w")); print("\n".join(d for d in extras["engine"] if not d.startswith("triton")), file=open("/tmp/engine.txt", "w"))'

# What changes least comes first: torch, then the other dependencies, then ourselves.
FROM build AS build-engine
ARG TORCH=torch==2.13.0
ARG PIP_EXTRA_INDEX_URL=
RUN --mount=type=cache,target=/pip-cache \
    /opt/kvscope/bin/pip install -c /tmp/constraints.txt "$TORCH"
RUN --mount=type=cache,target=/pip-cache \
    /opt/kvscope/bin/pip install -c /tmp/constraints.txt -r /tmp/exporter.txt -r /tmp/engine.txt
COPY LICENSE README.md hatch_build.py ./
COPY alerts/*.rules.yml alerts/
COPY alerts/kvscope_alerts alerts/kvscope_alerts
COPY dashboards/*.json dashboards/
COPY deploy/alertmanager/alertmanager.yml deploy/alertmanager/
COPY engine/kvscope_engine engine/kvscope_engine
COPY exporter/kvscope_exporter exporter/kvscope_exporter
COPY kvscope kvscope
COPY kvscope_events kvscope_events
COPY monitoring/kvscope_monitoring monitoring/kvscope_monitoring
RUN --mount=type=cache,target=/pip-cache /opt/kvscope/bin/pip install --no-deps . \
    && /opt/kvscope/bin/pip uninstall --yes setuptools pip

FROM build AS build-exporter
RUN --mount=type=cache,target=/pip-cache \
    /opt/kvscope/bin/pip install -c /tmp/constraints.txt -r /tmp/exporter.txt
COPY LICENSE README.md hatch_build.py ./
COPY alerts/*.rules.yml alerts/
COPY alerts/kvscope_alerts alerts/kvscope_alerts
COPY dashboards/*.json dashboards/
COPY deploy/alertmanager/alertmanager.yml deploy/alertmanager/
COPY engine/kvscope_engine engine/kvscope_engine
COPY exporter/kvscope_exporter exporter/kvscope_exporter
COPY kvscope kvscope
COPY kvscope_events kvscope_events
COPY monitoring/kvscope_monitoring monitoring/kvscope_monitoring
RUN --mount=type=cache,target=/pip-cache /opt/kvscope/bin/pip install --no-deps . \
    && /opt/kvscope/bin/pip uninstall --yes setuptools pip

FROM ${PYTHON_IMAGE} AS base
# Volumes take over the rights of these: /models, for checkpoints, belongs to the user that writes
# it; /kvscope/observer is written by an observer, which has the number of its server's user.
RUN useradd --uid 10001 --create-home --home-dir /home/kvscope kvscope \
    && mkdir -p /models /kvscope/observer && chown 10001:10001 /models && chmod 0777 /kvscope/observer
ENV PATH=/opt/kvscope/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/kvscope
ENTRYPOINT ["kvscope"]

# For sidecar, load, plan, doctor and docs; engine serve and demo report that they need torch.
FROM base AS exporter
COPY --from=build-exporter /opt/kvscope /opt/kvscope
CMD ["--help"]

FROM base AS engine
# What computes attention is compiled here: Triton's launchers on a GPU, a C kernel on a CPU. What
# Triton makes goes to /tmp, which is writable where the root file system is not.
USER root
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
USER 10001
ENV TRITON_CACHE_DIR=/tmp/triton
COPY --from=build-engine /opt/kvscope /opt/kvscope
EXPOSE 8000
# Loading a large model takes minutes: failures do not count before the start period is over.
HEALTHCHECK --interval=5s --timeout=3s --start-period=300s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=2)"]
CMD ["engine", "serve", "--host", "0.0.0.0"]
