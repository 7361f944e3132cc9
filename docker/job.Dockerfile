# The job, Spark's master and workers, and the command `spu-assigner`: one image, so that all of them
# have the same Python, Spark and packages. `make docker-build` gathers what goes in and builds it.
# It runs as user 10001 and writes to /tmp, /var/lib/spu-assigner and /work alone: the rest may be
# read-only, and is in docker/compose.yaml.
ARG BASE=debian:bookworm-slim
FROM ${BASE} AS system

# The same line as in kafka.Dockerfile: one layer for both images.
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
      openjdk-17-jre-headless python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log

# What the locks name, into an environment that has no pip: nothing is installed later.
FROM system AS packages
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends python3-venv \
 && python3 -m venv /pip \
 && python3 -m venv --without-pip /opt/spu-assigner
COPY wheels /wheels
COPY requirements-build.lock requirements.lock /locks/
RUN set -eu; \
    pip() { /pip/bin/pip --disable-pip-version-check --no-input --quiet --no-cache-dir "$@"; }; \
    pip install --no-index --find-links /wheels --require-hashes \
      --target /tools --requirement /locks/requirements-build.lock; \
    export PYTHONPATH=/tools; \
    pip --python /opt/spu-assigner/bin/python install --no-index --find-links /wheels \
      --require-hashes --no-build-isolation --requirement /locks/requirements.lock

# The product apart from what it needs: a change of it makes one small layer.
FROM packages AS product
COPY product /product
RUN set -eu; \
    /pip/bin/pip --disable-pip-version-check --no-input --quiet --python /opt/spu-assigner/bin/python \
      install --no-index --no-deps /product/*.whl; \
    cd /opt/spu-assigner; \
    find bin/spu-assigner lib/python3*/site-packages/spu_assigner* -type f -print0 \
      | tar -c --null --files-from - | { mkdir /installed; tar -x -C /installed; }

FROM system
RUN groupadd --gid 10001 spu \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin spu \
 && install -d -m 0700 -o spu -g spu /var/lib/spu-assigner /work
COPY --from=packages /opt/spu-assigner /opt/spu-assigner
COPY jars /opt/spu-assigner/cache/jars
COPY --from=product /installed /opt/spu-assigner
COPY entry health /usr/local/bin/

ENV PATH=/opt/spu-assigner/bin:/usr/local/bin:/usr/bin:/bin \
    PYSPARK_PYTHON=/opt/spu-assigner/bin/python \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SPU_ASSIGNER_CACHE=/opt/spu-assigner/cache \
    SPU_ASSIGNER_CHECKPOINT=/var/lib/spu-assigner/checkpoint
USER 10001:10001
WORKDIR /work
EXPOSE 4040 7077 8080 8081
HEALTHCHECK --interval=5s --timeout=10s --start-period=120s --retries=6 \
  CMD ["/opt/spu-assigner/bin/python", "/usr/local/bin/health"]
ENTRYPOINT ["/usr/local/bin/entry"]
CMD ["--help"]
