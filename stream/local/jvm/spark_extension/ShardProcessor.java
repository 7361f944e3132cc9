package io.spuassigner.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.zip.CRC32;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessorWithInitialState;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.LongAccumulator;
import org.apache.spark.util.TaskCompletionListener;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The stateful step of the query: rows of one shard in, bundles of answers out.
 *
 * <p>It decides nothing. A shard has two servers, Python processes, each of which holds the decoded
 * state of half its clusters and decides their events, beside the other; here rows and state are
 * carried to them and back, as bytes. What is said on the way stands in {@code
 * stream/job/shard/server.py}:
 *
 * <pre>
 *   here     the head of the shard's state (empty: there is none)
 *            the rows, in pieces, then an empty message
 *   server   N, with the numbers of the segments that it lacks, mostly none
 *   here     these segments, in order (empty: it is not there)
 *   server   B (bundle) and W (entries for the state) as they come, and L (it lives) between them
 *            while events are decided; then D (done) or F (failed)
 * </pre>
 *
 * <p>However a task ends, its connection is given back after D, or closed: a server that waited for
 * a task which is no more would answer no other one.
 *
 * <p>State: one map of a shard, named {@code shard}, from the half and the name of a head or segment
 * ({@code 0/head}) to bytes, as {@code stream/job/shard/state_log.py} has it.
 */
public final class ShardProcessor
    extends StatefulProcessorWithInitialState<Row, Row, Row, Row> {
  private static final long serialVersionUID = 1;

  private static final String STATE = "shard";
  private static final String HEAD = "head";
  // Built, not parsed: Spark's parser takes some 0.1 s at its first use.
  private static final StructType SHARD =
      new StructType().add("shard", DataTypes.IntegerType, false);
  private static final StructType KEY = new StructType().add("key", DataTypes.StringType);
  static final StructType BUNDLES =
      new StructType()
          .add("shard", DataTypes.IntegerType)
          .add("sequence", DataTypes.IntegerType)
          .add("bundle", DataTypes.BinaryType);
  private static final int SERVERS = 2; // of a shard, as in stream/job/shard/servers.py
  private static final int HALF_BIT = 16; // of a key's CRC-32: which of them has it
  private static final int KEY_SIZE_AT = 4 * Long.BYTES; // in an event
  private static final int PIECE_SIZE = 64 * 1024 * 1024; // bytes; a message may have 1 MiB

  private final ShardServers.Start servers;
  private final long silenceMsMax;
  private final LongAccumulator signs;
  private transient MapState<Row, byte[]> state;

  private ShardProcessor(ShardServers.Start servers, long silenceMsMax, LongAccumulator signs) {
    this.servers = servers;
    this.silenceMsMax = silenceMsMax;
    this.signs = signs;
  }

  /**
   * The query's plan.
   *
   * @param events rows of shard and event, as of {@link EventReaders}
   * @param initial rows of shard, key, value that the state begins with; null: with none
   * @param python the interpreter of the shard servers
   * @param run this one's name: shard servers of other runs are never asked
   * @param options what a shard server needs of the settings, as JSON
   * @param silenceMsMax how long a server may be silent when it was asked
   */
  public static Dataset<Row> plan(
      Dataset<Row> events,
      Dataset<Row> initial,
      String python,
      String run,
      String options,
      long silenceMsMax) {
    ShardProcessor step =
        new ShardProcessor(
            new ShardServers.Start(python, run, options), silenceMsMax, BatchSigns.of(run));
    Encoder<Row> bundles = Encoders.row(BUNDLES);
    KeyValueGroupedDataset<Row, Row> shards = byShard(events);
    if (initial == null) {
      return shards.transformWithState(step, TimeMode.None(), OutputMode.Append(), bundles);
    }
    return shards.transformWithState(
        step,
        TimeMode.None(),
        OutputMode.Append(),
        byShard(initial),
        bundles,
        Encoders.row(initial.schema()));
  }

  private static KeyValueGroupedDataset<Row, Row> byShard(Dataset<Row> rows) {
    Column shard = functions.col("shard");
    return rows.groupBy(shard).as(Encoders.row(SHARD), Encoders.row(rows.schema()));
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    state =
        getHandle()
            .getMapState(
                STATE,
                StateEncoder.of(Encoders.row(KEY)),
                StateEncoder.of(Encoders.BINARY()),
                TTLConfig.NONE());
  }

  @Override
  public void handleInitialState(Row key, Row entry, TimerValues timers) {
    state.updateValue(RowFactory.create(entry.getString(1)), entry.getAs(2));
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    Bundles bundles = new Bundles();
    // Spark may drop the rest of the rows: a task is killed, or what takes them fails.
    TaskContext.get()
        .addTaskCompletionListener((TaskCompletionListener) ended -> bundles.close());
    Pieces[] pieces = pieces(rows);
    for (int half = 0; half < SERVERS; half++) {
      if (!pieces[half].isEmpty()) {
        bundles.ask(new Part(key.getInt(0), half), pieces[half].all());
      }
    }
    return bundles;
  }

  /** What one of a shard's servers holds. */
  private record Part(int shard, int half) {
    /** The server's number, which is the part's in all that is written. */
    int number() {
      return shard * SERVERS + half;
    }

    /** How the state names one of its pieces. */
    Row name(String piece) {
      return RowFactory.create(half + "/" + piece);
    }
  }

  /** The server of a part, which has the whole request. */
  private ShardServers.Connection asked(Part part, List<byte[]> pieces) {
    for (int attempt = 1; ; attempt++) {
      ShardServers.Connection server = servers.connection(part.number(), silenceMsMax, signs);
      try {
        server.send(head(part));
        for (byte[] piece : pieces) {
          server.send(piece);
        }
        server.send(new byte[0]);
        sendSegments(part, server, server.receive('N'));
        return server;
      } catch (IOException reason) {
        server.close();
        if (attempt == 2 || !server.isReused()) {
          throw server.gone(reason);
        } // Else it had ended since it was asked last.
      } catch (Throwable reason) {
        server.close();
        throw reason;
      }
    }
  }

  private void sendSegments(Part part, ShardServers.Connection server, ByteBuffer needed)
      throws IOException {
    long end = needed.getLong(needed.position() + Long.BYTES);
    for (long number = needed.getLong(needed.position()); number < end; number++) {
      server.send(read(part.name(String.format("seg-%012d", number))));
    }
  }

  /** A part's head, or the one head of an earlier format, which the server refuses by name. */
  private byte[] head(Part part) {
    byte[] found = read(part.name(HEAD));
    return found.length > 0 ? found : read(RowFactory.create(HEAD));
  }

  private byte[] read(Row name) {
    byte[] found = state.getValue(name);
    return found == null ? new byte[0] : found;
  }

  /** Entries that the server wants written: key size i32, value size i32 (-1: remove), key, value. */
  private void write(Part part, ByteBuffer entries) {
    while (entries.hasRemaining()) {
      byte[] key = new byte[entries.getInt()];
      int size = entries.getInt();
      entries.get(key);
      Row name = part.name(new String(key, StandardCharsets.UTF_8));
      if (size < 0) {
        state.removeKey(name);
      } else {
        byte[] value = new byte[size];
        entries.get(value);
        state.updateValue(name, value);
      }
    }
  }

  /** The events of each of a shard's servers. */
  private static Pieces[] pieces(Iterator<Row> rows) {
    Pieces[] pieces = new Pieces[SERVERS];
    for (int half = 0; half < SERVERS; half++) {
      pieces[half] = new Pieces();
    }
    while (rows.hasNext()) {
      byte[] event = rows.next().getAs(1);
      pieces[half(event)].add(event);
    }
    return pieces;
  }

  /** The half of a shard that an event's key belongs to. */
  private static int half(byte[] event) {
    ByteBuffer numbers = ByteBuffer.wrap(event).order(ByteOrder.LITTLE_ENDIAN);
    int keySize = (int) numbers.getLong(KEY_SIZE_AT);
    CRC32 hash = new CRC32();
    hash.update(event, EventReaders.NUMBERS * Long.BYTES, Math.max(keySize, 0));
    return (int) (hash.getValue() >>> HALF_BIT & 1);
  }

  /** Events in pieces that a message can hold. */
  private static final class Pieces {
    private final List<byte[]> full = new ArrayList<>();
    private final List<ByteBuffer> piece = new ArrayList<>();
    private long size;

    void add(byte[] event) {
      piece.add(ByteBuffer.wrap(event).order(ByteOrder.LITTLE_ENDIAN));
      size += event.length;
      if (size >= PIECE_SIZE) {
        close();
      }
    }

    boolean isEmpty() {
      return full.isEmpty() && piece.isEmpty();
    }

    List<byte[]> all() {
      if (!piece.isEmpty()) {
        close();
      }
      return full;
    }

    private void close() {
      full.add(bytes(piece, size));
      piece.clear();
      size = 0;
    }
  }

  /**
   * Events ({@link EventReaders}) as one piece, little-endian: how many, i64; each of their numbers
   * as a column of i64; then key and value of each event.
   */
  private static byte[] bytes(List<ByteBuffer> events, long size) {
    ByteBuffer out = ByteBuffer.allocate(Long.BYTES + Math.toIntExact(size));
    out.order(ByteOrder.LITTLE_ENDIAN).putLong(events.size());
    for (int number = 0; number < EventReaders.NUMBERS; number++) {
      for (ByteBuffer event : events) {
        out.putLong(event.getLong());
      }
    }
    for (ByteBuffer event : events) {
      out.put(event);
    }
    return out.array();
  }

  /** What a server that was asked still has to say. */
  private static final class Answer {
    private final Part part;
    private final ShardServers.Connection server;
    private int sequence;

    Answer(Part part, ShardServers.Connection server) {
      this.part = part;
      this.server = server;
    }
  }

  /**
   * Bundles as the servers give them, by turns; entries between them are written to the state. One
   * that is not read cannot go on.
   */
  private final class Bundles extends AbstractIterator<Row> {
    private final Deque<Answer> open = new ArrayDeque<>(); // the one whose turn it is first
    private Row bundle;

    void ask(Part part, List<byte[]> pieces) {
      open.add(new Answer(part, asked(part, pieces)));
    }

    @Override
    public boolean hasNext() {
      while (bundle == null && !open.isEmpty()) {
        Answer turn = open.element();
        try {
          read(turn, turn.server.receive());
        } catch (IOException reason) {
          turn.server.close();
          throw turn.server.gone(reason);
        } catch (Throwable reason) {
          turn.server.close();
          throw reason;
        }
      }
      return bundle != null;
    }

    private void read(Answer turn, ByteBuffer message) {
      open.remove();
      switch (message.get()) {
        case 'W' -> write(turn.part, message);
        case 'B' -> bundle = row(turn, message);
        case 'D' -> {
          turn.server.giveBack();
          return;
        }
        default -> throw turn.server.failed(message);
      }
      open.add(turn);
    }

    private Row row(Answer turn, ByteBuffer message) {
      byte[] data = new byte[message.remaining()];
      message.get(data);
      return RowFactory.create(turn.part.number(), turn.sequence++, data);
    }

    /** Let those servers go that have not answered all. */
    void close() {
      open.forEach(each -> each.server.close());
      open.clear();
    }

    @Override
    public Row next() {
      if (!hasNext()) {
        throw new NoSuchElementException("a shard's bundles have ended");
      }
      Row found = bundle;
      bundle = null;
      return found;
    }
  }
}
