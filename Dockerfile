# The key-value store, or any other `verbena` command, in a container. Software wires; for RDMA devices see docs/guide/deploy.md.
#   docker build -t verbena .
#   sudo install -m 400 -o 747 /dev/stdin kv-password        # type the password, then Ctrl-D; 747 is the user of the image
#   docker run -p 6379:6379 -v verbena:/var/lib/verbena -v ./kv-password:/run/secrets/kv-password:ro \
#       -e VERBENA_KV_PASSWORD_FILE=/run/secrets/kv-password verbena
#   docker run --rm verbena doctor
# BASE is Debian 12 or a derivative of it.
ARG BASE=debian:bookworm-slim
FROM ${BASE} AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends g++ cmake ninja-build python3-dev python3-pip python3-venv \
    libibverbs-dev librdmacm-dev libssl-dev \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml CMakeLists.txt README.md LICENSE ./
COPY src src
RUN python3 -m venv /opt/verbena && /opt/verbena/bin/pip install --no-cache-dir .

FROM ${BASE}
# Loaded at run time, and only if a device or a certificate asks for them.
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 libibverbs1 librdmacm1 ibverbs-providers libssl3 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 747 --home-dir /var/lib/verbena --create-home verbena
COPY --from=build /opt/verbena /opt/verbena
ENV PATH=/opt/verbena/bin:$PATH
USER verbena
WORKDIR /var/lib/verbena
VOLUME /var/lib/verbena
# The store, and sessions, which need a secret to be offered beyond loopback.
EXPOSE 6379 7471
# Metrics and the node's page have no access control, and the network may be the host's: loopback only.
ENV VERBENA_KV_PERSISTENCE_DIR=/var/lib/verbena VERBENA_METRICS_LISTEN=127.0.0.1:9121
HEALTHCHECK CMD ["python3", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:9121/healthz', timeout=3)"]
ENTRYPOINT ["verbena"]
CMD ["serve", "--kv-listen-address", "0.0.0.0"]
