package io.spuassigner.spark;

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LongSummaryStatistics;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InterruptException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReadMaxRows;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.kafka010.KafkaSourceProvider;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's Kafka source that waits at the broker until there is something to read.
 *
 * <p>Spark asks the sources of a query for their latest offsets again and again, and Kafka's own
 * source asks the broker each time. Here the first source of a query waits before it asks: in a
 * fetch that the broker holds back (a long poll), from where the query has read to, in the topics
 * of all its sources. An idle query costs next to nothing, and an event wakes it at once.
 * Offsets, their form in the checkpoint, and partitions are the Kafka source's own; what its readers
 * read becomes rows of {@link EventReaders}. Where the topics end is asked here ({@link TopicEnds}),
 * with two waits in place of six; the Kafka source is asked when there are more events than a batch
 * may read, other partitions, or a fault that it reports.
 *
 * <p>A trigger that has waited finds nothing, and the next one asks: so the time of a batch, as
 * Spark reports it, contains no waiting. `processAllAvailable` may therefore return when the news
 * have come but before they are processed; a second call does not.
 *
 * <p>Options beside those of the Kafka source: {@code eventSource} and {@code eventShards} (labels,
 * with commas between them), for {@link EventReaders}; {@code longPollGroup}, equal for all sources of a
 * query and for them alone; {@code longPollSources}, how many they are; {@code longPollFirst}, true
 * for the one that Spark asks first; {@code heldBehind}, a topic whose events are read first ({@link
 * HeldEvents}); {@code longPollIntervalMs}, how long after the begin of a batch
 * of several events the next one begins at the earliest. A batch costs the same for one event as for
 * a hundred: under a steady load fewer batches answer as many. After a batch of few events, as of
 * who asks for one thing at a time, the next one begins at once; so it does when a thousand wait.
 */
public final class LongPollKafkaProvider implements TableProvider {
  private final TableProvider kafka = new KafkaSourceProvider();

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return EventReaders.SCHEMA;
  }

  @Override
  public Table getTable(
      StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new LongPollTable((SupportsRead) kafka.getTable(schema, partitioning, properties));
  }

  private record LongPollTable(SupportsRead kafka) implements SupportsRead {
    @Override
    public String name() {
      return kafka.name();
    }

    @Override
    public Column[] columns() {
      return Arrays.stream(EventReaders.SCHEMA.fields())
          .map(each -> Column.create(each.name(), each.dataType(), each.nullable()))
          .toArray(Column[]::new);
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      ScanBuilder builder = kafka.newScanBuilder(options);
      return () -> new LongPollScan(builder.build(), options);
    }
  }

  private record LongPollScan(Scan kafka, CaseInsensitiveStringMap options) implements Scan {
    @Override
    public StructType readSchema() {
      return EventReaders.SCHEMA;
    }

    @Override
    public String description() {
      return kafka.description();
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new LongPollStream(kafka.toMicroBatchStream(checkpoint), options);
    }

    @Override
    public CustomMetric[] supportedCustomMetrics() {
      return kafka.supportedCustomMetrics();
    }
  }

  private static final class LongPollStream
      implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
    private final MicroBatchStream kafka;
    private final String description; // asked for in each batch, and long to put together
    private final SupportsTriggerAvailableNow admission;
    private final LongPoll poll;
    private final KafkaAdmin admin;
    private final TopicEnds topic;
    private final HeldEvents held; // null: events of this source overtake none
    private final boolean isFirst;
    private final int source;
    private final int[] shards;
    private boolean isBounded; // reads to where the topics ended at its start, and waits for nothing
    private Offset latest;
    private Offset end; // of the topic, as it was asked here; null: the Kafka source asked last

    LongPollStream(MicroBatchStream kafka, CaseInsensitiveStringMap options) {
      this.kafka = kafka;
      description = kafka.toString();
      admission = (SupportsTriggerAvailableNow) kafka;
      isFirst = options.getBoolean("longPollFirst", false);
      source = Integer.parseInt(options.get("eventSource"));
      shards =
          Arrays.stream(options.get("eventShards").split(",")).mapToInt(Integer::parseInt).toArray();
      poll = LongPoll.of(options);
      admin = new KafkaAdmin(options.asCaseSensitiveMap());
      topic = new TopicEnds(options.get("subscribe"));
      String behind = options.get("heldBehind");
      held = behind == null ? null : new HeldEvents(behind, admin);
    }

    @Override
    public Offset latestOffset(Offset start, ReadLimit limit) {
      if (!isBounded && (isFirst ? poll.await() : poll.hasWaited())) {
        return latest;
      }
      Offset found = admitted(start, limit);
      if (found != null && !found.equals(latest)) {
        latest = found;
        poll.moved(this, found);
      }
      return found;
    }

    private Offset admitted(Offset start, ReadLimit limit) {
      try {
        if (held == null) {
          return latest(start, limit, poll.takeReadable());
        }
        Offset found = held.admitted(start, () -> latest(start, limit, committed()));
        poll.readable = held.stable();
        return found;
      } catch (InterruptedException reason) {
        LongPoll.<RuntimeException>raise(reason);
        return start;
      }
    }

    /** Where the topic ends; null: the Kafka source is to ask, and to report what is wrong. */
    private Map<TopicPartition, Long> committed() {
      try {
        return isBounded
            ? null
            : admin.ask(client -> topic.ask(client, IsolationLevel.READ_COMMITTED)).get(0);
      } catch (ExecutionException | KafkaException reported) {
        return null;
      } catch (InterruptedException reason) {
        LongPoll.<RuntimeException>raise(reason);
        return null;
      }
    }

    /** These ends of the topic; where they say not all, what the Kafka source makes of it. */
    private Offset latest(Offset start, ReadLimit limit, Map<TopicPartition, Long> ends) {
      boolean areAll = ends != null && !isBounded && areAll(ends, TopicEnds.of(start), limit);
      end = areAll ? kafka.deserializeOffset(TopicEnds.json(ends)) : null;
      return areAll ? end : admission.latestOffset(start, limit);
    }

    /** Whether there are neither more events than one batch may read nor other partitions. */
    private static boolean areAll(
        Map<TopicPartition, Long> ends, Map<TopicPartition, Long> start, ReadLimit limit) {
      if (!ends.keySet().equals(start.keySet())) {
        return false;
      }
      long most = limit instanceof ReadMaxRows rows ? rows.maxRows() : Long.MAX_VALUE;
      for (var each : ends.entrySet()) {
        long events = each.getValue() - start.get(each.getKey());
        most -= events;
        if (events < 0 || most < 0) {
          return false;
        }
      }
      return true;
    }

    @Override
    public void prepareForTriggerAvailableNow() {
      isBounded = true;
      admission.prepareForTriggerAvailableNow();
    }

    @Override
    public void stop() {
      poll.close();
      admin.close();
      kafka.stop();
    }

    @Override
    public Offset latestOffset() {
      return kafka.latestOffset();
    }

    @Override
    public Offset initialOffset() {
      return kafka.initialOffset();
    }

    @Override
    public ReadLimit getDefaultReadLimit() {
      return admission.getDefaultReadLimit();
    }

    @Override
    public Offset reportLatestOffset() {
      return end != null ? end : admission.reportLatestOffset();
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      return kafka.planInputPartitions(start, end);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new EventReaders(kafka.createReaderFactory(), source, shards);
    }

    @Override
    public Offset deserializeOffset(String json) {
      return kafka.deserializeOffset(json);
    }

    @Override
    public void commit(Offset end) {
      kafka.commit(end);
    }

    @Override
    public Map<String, String> metrics(Optional<Offset> latestConsumed) {
      if (end == null || latestConsumed.isEmpty()) {
        return ((ReportsSourceMetrics) kafka).metrics(latestConsumed);
      }
      Map<TopicPartition, Long> consumed = TopicEnds.of(latestConsumed.get());
      LongSummaryStatistics behind =
          TopicEnds.of(end).entrySet().stream()
              .mapToLong(each -> each.getValue() - consumed.getOrDefault(each.getKey(), 0L))
              .summaryStatistics();
      return Map.of(
          "minOffsetsBehindLatest", String.valueOf(behind.getMin()),
          "maxOffsetsBehindLatest", String.valueOf(behind.getMax()),
          "avgOffsetsBehindLatest", String.valueOf(behind.getAverage()));
    }

    @Override
    public String toString() {
      return description;
    }
  }

  /** How many triggers the query of this group has begun: one a second at least while it lives. */
  public static long triggersBegun(String group) {
    LongPoll poll = LongPoll.ALL.get(group);
    return poll == null ? 0 : poll.triggers;
  }

  /** How many offsets the batch at hand reads; 0 where its sources have not said it. */
  static long offsetsPlanned(String group) {
    LongPoll poll = LongPoll.ALL.get(group);
    return poll == null ? 0 : poll.events;
  }

  /** The wait of one query: a consumer that stands where its sources have read to. */
  private static final class LongPoll {
    /** How long one wait lasts at most. After it Spark asks, so it sees new partitions. */
    private static final Duration WAIT = Duration.ofSeconds(1);

    /** Offsets that a batch has moved, from which on the next one is not due at once. */
    private static final long SEVERAL = 8;

    /** Events from which on a batch is worth what it costs, so it is due at once. */
    private static final long MANY = 1_000;

    /** How often it is looked for so many. */
    private static final long LOOK = Duration.ofMillis(100).toNanos();

    private static final String STOPPED = "the query is stopped";
    private static final Map<String, LongPoll> ALL = new ConcurrentHashMap<>();

    private final String group;
    private final int sources;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<Object, Map<TopicPartition, Long>> ends = new HashMap<>(); // by source
    private final Map<TopicPartition, Long> positions = new HashMap<>(); // of the consumer
    private Map<TopicPartition, Long> readable; // of the source asked last, if known in this trigger
    private boolean hasWaited; // in this trigger
    private final long interval; // ns
    private boolean hasMoved; // a source, since the trigger began
    private long events; // that this trigger's batch reads
    private long begun; // when it began, ns
    private volatile long triggers;

    private LongPoll(String group, CaseInsensitiveStringMap options) {
      this.group = group;
      sources = options.getInt("longPollSources", 1);
      interval = Duration.ofMillis(options.getLong("longPollIntervalMs", 0)).toNanos();
      Map<String, Object> settings = new HashMap<>();
      options
          .asCaseSensitiveMap()
          .forEach(
              (name, value) -> {
                if (name.startsWith("kafka.")) {
                  settings.put(name.substring("kafka.".length()), value);
                }
              });
      settings.put("enable.auto.commit", false);
      settings.put("auto.offset.reset", "latest");
      settings.put("fetch.min.bytes", 1);
      settings.put("fetch.max.wait.ms", (int) WAIT.toMillis());
      // The broker sends one batch all the same; that there is one is enough.
      settings.put("fetch.max.bytes", 1);
      settings.put("max.partition.fetch.bytes", 1);
      // All that came is taken: a partition with records left would be in no fetch under way.
      settings.put("max.poll.records", Integer.MAX_VALUE);
      settings.put("reconnect.backoff.max.ms", WAIT.toMillis());
      consumer =
          new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static LongPoll of(CaseInsensitiveStringMap options) {
      return ALL.computeIfAbsent(
          options.get("longPollGroup"), group -> new LongPoll(group, options));
    }

    void close() {
      if (ALL.remove(group, this)) {
        consumer.close(Duration.ZERO);
      }
    }

    /** A source will have read to here after this trigger. */
    void moved(Object source, Offset end) {
      Map<TopicPartition, Long> own = TopicEnds.of(end);
      Map<TopicPartition, Long> before = ends.put(source, own);
      if (before != null) {
        own.forEach((partition, at) -> events += at - before.getOrDefault(partition, 0L));
      }
      hasMoved = true;
    }

    Map<TopicPartition, Long> takeReadable() {
      Map<TopicPartition, Long> found = readable;
      readable = null;
      return found;
    }

    boolean hasWaited() {
      return hasWaited;
    }

    /** Begin a trigger. One that follows another that asked and found nothing waits for news. */
    boolean await() {
      triggers++;
      boolean keepsDistance = events >= SEVERAL && events < MANY;
      events = 0;
      if (keepsDistance && System.nanoTime() < begun + interval) {
        keepDistance(begun + interval);
        hasMoved = false;
        hasWaited = true;
        return true;
      }
      hasWaited = !hasWaited && !hasMoved && ends.size() == sources;
      hasMoved = false;
      if (hasWaited) {
        poll();
      }
      begun = System.nanoTime();
      return hasWaited;
    }

    /** Wait until then, or until many events have come. */
    private void keepDistance(long end) {
      for (long rest = end - System.nanoTime(); rest > 0; rest = end - System.nanoTime()) {
        try {
          TimeUnit.NANOSECONDS.sleep(Math.min(rest, LOOK));
        } catch (InterruptedException reason) {
          LongPoll.<RuntimeException>raise(reason);
        }
        if (rest > LOOK && waiting() >= MANY) {
          return;
        }
      }
    }

    /** How many events there are that no batch has read; 0 where nobody says it. */
    private long waiting() {
      Map<TopicPartition, Long> all = allEnds();
      try {
        return consumer.endOffsets(all.keySet(), WAIT).entrySet().stream()
            .mapToLong(each -> each.getValue() - all.get(each.getKey()))
            .sum();
      } catch (InterruptException reason) {
        LongPoll.<RuntimeException>raise(new InterruptedException(STOPPED));
        return 0;
      } catch (KafkaException ignored) {
        return 0; // the Kafka source meets the same fault and reports it
      }
    }

    private Map<TopicPartition, Long> allEnds() {
      Map<TopicPartition, Long> all = new HashMap<>();
      ends.values().forEach(all::putAll);
      return all;
    }

    private void poll() {
      Map<TopicPartition, Long> all = allEnds();
      try {
        if (!consumer.assignment().equals(all.keySet())) {
          consumer.assign(all.keySet());
          positions.keySet().retainAll(all.keySet());
        }
        all.forEach(
            (partition, end) -> {
              if (positions.getOrDefault(partition, -1L) < end) {
                consumer.seek(partition, end);
                positions.put(partition, end);
              }
            });
        for (TopicPartition partition : consumer.poll(WAIT).partitions()) {
          positions.put(partition, consumer.position(partition));
        }
      } catch (InterruptException reason) {
        LongPoll.<RuntimeException>raise(new InterruptedException(STOPPED));
      } catch (KafkaException ignored) {
        // The Kafka source, which asks in the next trigger, meets the same fault and reports it.
      }
    }

    /** Spark takes an InterruptedException for the end of the query, and no other for it. */
    @SuppressWarnings("unchecked")
    private static <E extends Throwable> void raise(Throwable reason) throws E {
      throw (E) reason;
    }
  }
}
