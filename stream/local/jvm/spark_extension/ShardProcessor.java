package io.spuassigner.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;
import java.util.NoSuchElementException;
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
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.LongAccumulator;
import org.apache.spark.util.TaskCompletionListener;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The stateful step of the query: rows of one shard in, bundles of answers out.
 *
 * <p>It decides nothing. A shard's server, a Python process, holds the decoded state and processes
 * the batch; here rows and state are carried to it and back, as bytes. What is said on the way
 * stands in {@code stream/job/shard/server.py}:
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
 * <p>State: one map of a shard, named {@code shard}, from the names of the head and the segments to
 * bytes, as {@code stream/job/shard/state_log.py} has it.
 */
public final class ShardProcessor
    extends StatefulProcessorWithInitialState<Row, Row, Row, Row> {
  private static final long serialVersionUID = 1;

  private static final String STATE = "shard";
  private static final String HEAD = "head";
  private static final StructType SHARD = StructType.fromDDL("shard int not null");
  private static final StructType KEY = StructType.fromDDL("key string");
  static final StructType BUNDLES =
      StructType.fromDDL("shard int, sequence int, bundle binary");
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
    state = getHandle().getMapState(STATE, Encoders.row(KEY), Encoders.BINARY(), TTLConfig.NONE());
  }

  @Override
  public void handleInitialState(Row key, Row entry, TimerValues timers) {
    state.updateValue(RowFactory.create(entry.getString(1)), entry.getAs(2));
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    int shard = key.getInt(0);
    Bundles bundles = new Bundles(shard, asked(shard, read(HEAD), pieces(rows)));
    // Spark may drop the rest of the rows: a task is killed, or what takes them fails.
    TaskContext.get()
        .addTaskCompletionListener((TaskCompletionListener) ended -> bundles.close());
    return bundles;
  }

  /** The shard's server, which has the whole request. */
  private ShardServers.Connection asked(int shard, byte[] head, List<byte[]> pieces) {
    for (int attempt = 1; ; attempt++) {
      ShardServers.Connection server = servers.connection(shard, silenceMsMax, signs);
      try {
        server.send(head);
        for (byte[] piece : pieces) {
          server.send(piece);
        }
        server.send(new byte[0]);
        sendSegments(server, server.receive('N'));
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

  private void sendSegments(ShardServers.Connection server, ByteBuffer needed) throws IOException {
    long end = needed.getLong(needed.position() + Long.BYTES);
    for (long number = needed.getLong(needed.position()); number < end; number++) {
      server.send(read(String.format("seg-%012d", number)));
    }
  }

  private byte[] read(String name) {
    byte[] found = state.getValue(RowFactory.create(name));
    return found == null ? new byte[0] : found;
  }

  /** Entries that the server wants written: key size i32, value size i32 (-1: remove), key, value. */
  private void write(ByteBuffer entries) {
    while (entries.hasRemaining()) {
      byte[] key = new byte[entries.getInt()];
      int size = entries.getInt();
      entries.get(key);
      Row name = RowFactory.create(new String(key, java.nio.charset.StandardCharsets.UTF_8));
      if (size < 0) {
        state.removeKey(name);
      } else {
        byte[] value = new byte[size];
        entries.get(value);
        state.updateValue(name, value);
      }
    }
  }

  private static List<byte[]> pieces(Iterator<Row> rows) {
    List<byte[]> pieces = new ArrayList<>();
    List<ByteBuffer> piece = new ArrayList<>();
    long size = 0;
    while (rows.hasNext()) {
      byte[] event = rows.next().getAs(1);
      piece.add(ByteBuffer.wrap(event).order(ByteOrder.LITTLE_ENDIAN));
      size += event.length;
      if (size >= PIECE_SIZE) {
        pieces.add(bytes(piece, size));
        piece.clear();
        size = 0;
      }
    }
    if (!piece.isEmpty()) {
      pieces.add(bytes(piece, size));
    }
    return pieces;
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

  /** Bundles as the server gives them; entries between them are written to the state. */
  private final class Bundles extends AbstractIterator<Row> {
    private final int shard;
    private final ShardServers.Connection server;
    private ByteBuffer bundle;
    private int sequence;
    private boolean isDone;

    Bundles(int shard, ShardServers.Connection server) {
      this.shard = shard;
      this.server = server;
    }

    @Override
    public boolean hasNext() {
      try {
        while (bundle == null && !isDone) {
          ByteBuffer answer = server.receive();
          switch (answer.get()) {
            case 'W' -> write(answer);
            case 'B' -> bundle = answer;
            case 'D' -> {
              isDone = true;
              server.giveBack();
            }
            default -> throw server.failed(answer);
          }
        }
      } catch (IOException reason) {
        server.close();
        throw server.gone(reason);
      } catch (Throwable reason) {
        server.close();
        throw reason;
      }
      return bundle != null;
    }

    /** Let the server go unless it has answered all. */
    void close() {
      if (!isDone) {
        server.close();
      }
    }

    @Override
    public Row next() {
      if (!hasNext()) {
        throw new NoSuchElementException("a shard's bundles have ended");
      }
      byte[] data = new byte[bundle.remaining()];
      bundle.get(data);
      bundle = null;
      return RowFactory.create(shard, sequence++, data);
    }
  }
}
