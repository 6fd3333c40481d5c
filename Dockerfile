# The engine with its exporter, on a CPU or a GPU:
#
#   docker build -t kvscope .
#   docker run --rm -p 127.0.0.1:8000:8000 kvscope demo --host 0.0.0.0
#
# TORCH picks the torch build. From the package index that pip asks by default it comes with CUDA,
# several gigabytes; name an index of CPU builds in PIP_EXTRA_INDEX_URL to get the small one.

ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
ARG TORCH=torch==2.13.0
ARG PIP_EXTRA_INDEX_URL=
ENV PIP_CACHE_DIR=/pip-cache PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN python -m venv /opt/kvscope
COPY constraints.txt pyproject.toml ./
# What changes least comes first: torch, then the other dependencies, then ourselves.
RUN --mount=type=cache,target=/pip-cache \
    grep -v '^torch==' constraints.txt > /tmp/constraints.txt \
    && /opt/kvscope/bin/pip install -c /tmp/constraints.txt "$TORCH"
RUN --mount=type=cache,target=/pip-cache \
    python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; print("\n".join(project["dependencies"] + project["optional-dependencies"]["engine"]))' > /tmp/requirements.txt \
    && /opt/kvscope/bin/pip install -c /tmp/constraints.txt -r /tmp/requirements.txt
COPY LICENSE README.md ./
COPY dashboards dashboards
COPY engine engine
COPY exporter exporter
RUN --mount=type=cache,target=/pip-cache /opt/kvscope/bin/pip install --no-deps .

FROM ${PYTHON_IMAGE} AS engine
RUN useradd --uid 10001 --create-home --home-dir /home/kvscope kvscope
COPY --from=build /opt/kvscope /opt/kvscope
ENV PATH=/opt/kvscope/bin:$PATH PYTHONUNBUFFERED=1
USER 10001
WORKDIR /home/kvscope
EXPOSE 8000
# Loading a large model takes minutes: failures do not count before the start period is over.
HEALTHCHECK --interval=5s --timeout=3s --start-period=300s --retries=3 \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=2)"]
ENTRYPOINT ["kvscope"]
CMD ["serve", "--host", "0.0.0.0"]
