# Kafka in KRaft mode, of the jars that stream/local/jvm/jars.lock.json names; `make docker-build` builds it.
# It is started and configured as the official image apache/kafka is (KAFKA_* variables, CLUSTER_ID,
# /var/lib/kafka/data), so that docker/compose.yaml works with either: KAFKA_IMAGE names the other.
# Kafka's command-line tools are where the official image has them, /opt/kafka/bin, and on the PATH.
ARG BASE=debian:bookworm-slim
FROM ${BASE}

# The same line as in job.Dockerfile: one layer for both images.
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
      openjdk-17-jre-headless python3 \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/dpkg.log

RUN groupadd --gid 1000 appuser \
 && useradd --uid 1000 --gid 1000 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin appuser \
 && install -d -o appuser -g appuser /var/lib/kafka/data

COPY jars /opt/kafka/libs
COPY log4j2.properties tools-log4j2.properties run /etc/kafka/docker/
COPY kafka-tool /opt/kafka/bin/
RUN /opt/kafka/bin/kafka-tool
ENV PATH=/opt/kafka/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

USER appuser
WORKDIR /tmp
VOLUME /var/lib/kafka/data
EXPOSE 9092
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=6 \
  CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/9092"]
CMD ["/etc/kafka/docker/run"]
