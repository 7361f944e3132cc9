import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * A replica assigner as a user writes it with Kafka Streams: joins and creates from
 * {@code <prefix>events}, maps to {@code <prefix>maps}, exactly once; a cluster's ring and chain
 * index and the names of its topics in a persistent store with a changelog.
 *
 * <p>It knows what the plain loop knows: joins, creates, and Fluvio's placement without racks. A
 * create that cannot be met gets no answer.
 */
public final class StreamsAssigner {
  private static final String STORE = "clusters";
  private static final Duration END = Duration.ofSeconds(20);

  /** The ids of the schemas, as they stand in a message's frame. */
  private record Schemas(int spuJoined, int topicCreate, int replicaMap) {}

  public static void main(String[] args) throws InterruptedException {
    if (args.length != 8) {
      System.err.println(
          "usage: StreamsAssigner BOOTSTRAP PREFIX STATE_FOLDER COMMIT_MS THREADS"
              + " SPU_JOINED_ID TOPIC_CREATE_ID REPLICA_MAP_ID");
      System.exit(2);
    }
    String prefix = args[1];
    long commitMs = Long.parseLong(args[3]);
    Schemas schemas =
        new Schemas(
            Integer.parseInt(args[5]), Integer.parseInt(args[6]), Integer.parseInt(args[7]));

    StreamsBuilder builder = new StreamsBuilder();
    // The cache lets a commit write what changed once, however often it did.
    builder.addStateStore(
        Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.ByteArray())
            .withCachingEnabled());
    builder.stream(prefix + "events", Consumed.with(Serdes.String(), Serdes.ByteArray()))
        .process(() -> new Assigner(schemas), STORE)
        .to(prefix + "maps", Produced.with(Serdes.String(), Serdes.ByteArray()));

    Properties settings = new Properties();
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, prefix + "streams");
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, args[2]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, commitMs);
    // A commit that falls due while a thread waits for messages would wait with it.
    settings.put(StreamsConfig.POLL_MS_CONFIG, Math.min(commitMs, 100));
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, Integer.parseInt(args[4]));

    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    CountDownLatch ended = new CountDownLatch(1);
    streams.setUncaughtExceptionHandler(
        error -> {
          error.printStackTrace();
          ended.countDown();
          return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(END)));
    streams.start();
    ended.await(); // SIGTERM ends it by the hook.
    System.exit(1);
  }

  private StreamsAssigner() {}

  /** Answers the events of the clusters of one partition, in order. */
  private static final class Assigner implements Processor<String, byte[], String, byte[]> {
    private final Schemas schemas;
    private final Writer out = new Writer();
    private ProcessorContext<String, byte[]> context;
    private KeyValueStore<String, byte[]> store;

    Assigner(Schemas schemas) {
      this.schemas = schemas;
    }

    @Override
    public void init(ProcessorContext<String, byte[]> context) {
      this.context = context;
      this.store = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<String, byte[]> record) {
      Reader in = new Reader(record.value());
      int schema = in.schemaId();
      String eventId = in.text();
      String clusterId = in.text();
      in.skipNullableLong(); // occurred_at
      Cluster cluster = Cluster.of(store.get(clusterId));
      if (schema == schemas.spuJoined()) {
        cluster.join((int) in.number());
        store.put(clusterId, cluster.bytes(out));
      } else if (schema == schemas.topicCreate()) {
        String topic = in.text();
        int partitions = (int) in.number();
        int replicas = (int) in.number();
        String name = clusterId + "/" + topic;
        if (replicas < 1 || replicas > cluster.size() || store.get(name) != null) {
          return;
        }
        long first = cluster.index;
        cluster.index += partitions;
        store.put(name, eventId.getBytes(StandardCharsets.UTF_8));
        store.put(clusterId, cluster.bytes(out));
        out.begin(schemas.replicaMap());
        out.text(clusterId);
        out.text(topic);
        out.number(1); // revision
        out.number(0); // policy: FLUVIO
        cluster.writeLists(out, first, partitions, replicas);
        out.number(0); // cores: null
        out.number(1); // chain_index: not null
        out.number(cluster.index);
        out.text(eventId); // cause
        out.number(replicas); // replication_factor
        out.flag(false); // ignore_rack
        out.number(0); // own_events: none
        out.number(0); // pinned: no
        out.number(0); // wanted_lengths: null
        out.number(0); // need: null
        out.number(0); // constraints: null
        out.number(0); // reason: null
        context.forward(record.withKey(name).withValue(out.bytes()));
      } else {
        throw new IllegalArgumentException(
            "schema " + schema + " is neither a join's nor a create's: " + schemas);
      }
    }
  }

  /** A ring, by id, and where the next topic starts. */
  private static final class Cluster {
    private long index;
    private int[] ring = {};

    /** Out of the store; a new one if there is none. */
    static Cluster of(byte[] stored) {
      Cluster cluster = new Cluster();
      if (stored != null) {
        Reader in = new Reader(stored);
        cluster.index = in.number();
        cluster.ring = new int[(int) in.number()];
        for (int at = 0; at < cluster.ring.length; at++) {
          cluster.ring[at] = (int) in.number();
        }
      }
      return cluster;
    }

    int size() {
      return ring.length;
    }

    void join(int spuId) {
      int at = Arrays.binarySearch(ring, spuId);
      if (at < 0) {
        int[] longer = Arrays.copyOf(ring, ring.length + 1);
        System.arraycopy(ring, -at - 1, longer, -at, ring.length + at + 1);
        longer[-at - 1] = spuId;
        ring = longer;
      }
    }

    byte[] bytes(Writer out) {
      out.begin();
      out.number(index);
      out.number(ring.length);
      for (int spuId : ring) {
        out.number(spuId);
      }
      return out.bytes();
    }

    /**
     * The lists of partitions first, first + 1, … of one long topic, leader first.
     *
     * <p>Source: Fluvio 0.11.10 documentation, "Replica Assignment", CRA without rack.
     */
    void writeLists(Writer out, long first, int partitions, int replicas) {
      int size = ring.length;
      int gaps = size - replicas + 1;
      out.number(partitions);
      for (long number = first; number < first + partitions; number++) {
        int leader = (int) (number % size);
        int gap = (int) (number / size % gaps);
        out.number(replicas);
        out.number(ring[leader]);
        for (int replica = 1; replica < replicas; replica++) {
          out.number(ring[(leader + replica + gap) % size]);
        }
        out.number(0);
      }
      out.number(0);
    }
  }

  /** Avro's primitives out of bytes. */
  private static final class Reader {
    private final byte[] data;
    private int at;

    Reader(byte[] data) {
      this.data = data;
    }

    /** Of Confluent's frame: a zero and four bytes. */
    int schemaId() {
      int id = 0;
      for (at = 1; at < 5; at++) {
        id = id << 8 | data[at] & 0xFF;
      }
      return id;
    }

    long number() {
      long value = 0;
      int shift = 0;
      byte part;
      do {
        part = data[at++];
        value |= (long) (part & 0x7F) << shift;
        shift += 7;
      } while (part < 0);
      return value >>> 1 ^ -(value & 1);
    }

    String text() {
      int size = (int) number();
      at += size;
      return new String(data, at - size, size, StandardCharsets.UTF_8);
    }

    void skipNullableLong() {
      if (number() != 0) {
        number();
      }
    }
  }

  /** Avro's primitives into bytes; to be used again. */
  private static final class Writer {
    private byte[] data = new byte[512];
    private int size;

    void begin() {
      size = 0;
    }

    /** With Confluent's frame. */
    void begin(int schemaId) {
      size = 0;
      room(5);
      data[size++] = 0;
      for (int shift = 24; shift >= 0; shift -= 8) {
        data[size++] = (byte) (schemaId >> shift);
      }
    }

    void number(long value) {
      room(10);
      long left = value << 1 ^ value >> 63;
      while ((left & ~0x7FL) != 0) {
        data[size++] = (byte) (left | 0x80);
        left >>>= 7;
      }
      data[size++] = (byte) left;
    }

    void flag(boolean value) {
      room(1);
      data[size++] = (byte) (value ? 1 : 0);
    }

    void text(String text) {
      byte[] raw = text.getBytes(StandardCharsets.UTF_8);
      number(raw.length);
      room(raw.length);
      System.arraycopy(raw, 0, data, size, raw.length);
      size += raw.length;
    }

    byte[] bytes() {
      return Arrays.copyOf(data, size);
    }

    private void room(int more) {
      if (size + more > data.length) {
        data = Arrays.copyOf(data, Math.max(size + more, 2 * data.length));
      }
    }
  }
}
