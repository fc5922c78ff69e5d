# webagent_jax on CPU, with Chromium. For GPUs: --build-arg EXTRA=cuda on a machine with the NVIDIA container toolkit;
# for TPUs: --build-arg EXTRA=tpu.
#
#   docker build -t webagent_jax .
#   mkdir -p runs  # otherwise Docker creates it as root
#   docker run --rm --user "$(id -u)" -e HOME=/tmp -v "$PWD/runs:/webagent_jax/runs" \
#       webagent_jax quickstart --workdir=runs/quickstart
FROM python:3.11.13-slim-bookworm

# The list of packages is not kept, and versions are those of the image's Debian release.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends chromium git make tini \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /webagent_jax
# Before the code, so that a change of the code does not install the packages again.
COPY requirements.lock ./
RUN pip install --no-cache-dir --no-deps -r requirements.lock

COPY . .
ARG EXTRA=""
# The extra has its versions in pyproject.toml.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable . \
    && if [ -n "$EXTRA" ]; then pip install --no-cache-dir "webagent_jax[$EXTRA]"; fi

# Chromium needs no privileges here; its sandbox is off by default in containers (docs/security.md).
RUN useradd --uid 1000 --create-home agent && mkdir -p runs .auth && chown agent runs .auth
USER 1000

# tini reaps the processes of Chromium and passes signals on. Python as process 1 would do neither:
# SIGTERM would not end an evaluation.
ENTRYPOINT ["tini", "--", "webagent"]
CMD ["doctor", "--config=quickstart", "--workdir=runs/doctor"]
