# syntax=docker/dockerfile:1
# The server in a container. CPU by default; `--build-arg TORCH=cu130` for NVIDIA GPUs. docs/serving.md says how to run it.
#   docker build --tag yaie .
#   docker run --init --publish 127.0.0.1:8000:8000 --env YAIE_API_KEY yaie
ARG PYTHON=3.12.11-slim-bookworm

FROM python:${PYTHON} AS build
# Which build of PyTorch: cpu, or a CUDA version such as cu130.
ARG TORCH=cpu
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/yaie
ENV PATH=/opt/yaie/bin:$PATH
WORKDIR /src
# PyTorch alone and first: it is by far the largest layer, and nothing else can choose another build of it.
COPY constraints.txt ./
RUN pip install --no-cache-dir --constraint constraints.txt --index-url "https://download.pytorch.org/whl/${TORCH}" torch
COPY pyproject.toml README.md LICENSE ./
COPY cuda ./cuda
COPY engine ./engine
COPY widgets ./widgets
COPY yaie_magic ./yaie_magic
RUN pip install --no-cache-dir --constraint constraints.txt ".[gguf]"

FROM python:${PYTHON}
LABEL org.opencontainers.image.title="yaie" \
      org.opencontainers.image.description="An LLM inference engine with the OpenAI API" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin yaie \
    && install --directory --owner=yaie --group=yaie --mode=0700 /var/cache/yaie \
    && install --directory --mode=0755 /models
COPY --from=build /opt/yaie /opt/yaie
# Weights are mounted below /models and never downloaded: HF_HUB_OFFLINE=0 at run time allows that.
ENV PATH=/opt/yaie/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    HF_HOME=/models/huggingface \
    HF_HUB_OFFLINE=1 \
    YAIE_CACHE_DIR=/var/cache/yaie \
    YAIE_HOST=0.0.0.0 \
    YAIE_PORT=8000
USER 10001:10001
WORKDIR /models
EXPOSE 8000
STOPSIGNAL SIGTERM
# /health needs no key. It says 503 while the model loads; until the start period is over that does not count.
HEALTHCHECK --interval=15s --timeout=5s --start-period=10m --retries=3 \
    CMD ["python", "-c", "import http.client, os, sys; c = http.client.HTTPConnection('127.0.0.1', int(os.environ['YAIE_PORT']), timeout=4); c.request('GET', '/health'); sys.exit(c.getresponse().status != 200)"]
ENTRYPOINT ["yaie"]
CMD ["serve", "tiny", "--log-format", "json"]
