package io.spuassigner.spark;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.ObjectStreamException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomSumMetric;
import org.apache.spark.sql.connector.read.streaming.ReportsSinkMetrics;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.execution.SQLExecution;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The query's sink: hands a batch's bundles to the driver's Python process, which sends them.
 *
 * <p>Spark's {@code foreachBatch} would plan a second query for each batch, and its rows would come
 * through a socket. Here the bundles are the results of the batch's own tasks. Python takes them as
 * a {@link Listener}, which the option {@code listener} names.
 *
 * <p>A bundle is handed over after its shard, its sequence and its size, i32, big-endian. What a
 * task on another machine has made of more than {@link Bundles#MEMORY_SIZE_MAX} bytes lies in a
 * file of the driver's from the moment its result arrives, with notes in the bundles' places ({@code
 * stream/job/shard/spill.py}), so the driver holds no whole large batch.
 *
 * <p>In Spark's UI a batch is called {@code name, batch 12: 40 offsets}: what it does is not known
 * before it is done. Then its {@link #FIGURES} are metrics of the plan's writing node on the SQL
 * page, and the sink's metrics in the query's progress.
 */
public final class AnswersProvider implements TableProvider {
  private static final String BATCH = "streaming.sql.batchId"; // Spark's own local property

  /** What {@link Listener#commit} gives, in its order. */
  private static final String[] FIGURES = {
    "events",
    "clusters",
    "requests answered",
    "requests rejected",
    "dead letters",
    "ring size of the fullest cluster",
    "saturated SPUs of the fullest cluster",
    "lag"
  };

  private static final Map<String, Listener> LISTENERS = new ConcurrentHashMap<>();

  /** Who takes the batches, in the thread of the query; what it raises stops the query. */
  public interface Listener {
    /** A batch's tasks are about to run. */
    void begin(long batch);

    /** All of a batch's bundles; gives its figures, with blanks between them. */
    String commit(long batch, byte[] bundles);
  }

  /** Have the batches of queries that name this listener handed to it. */
  public static void register(String name, Listener listener) {
    LISTENERS.put(name, listener);
  }

  /** Forget a listener. */
  public static void unregister(String name) {
    LISTENERS.remove(name);
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return ShardProcessor.BUNDLES;
  }

  @Override
  public Table getTable(
      StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Answers();
  }

  private static final class Answers implements SupportsWrite, ReportsSinkMetrics {
    private Map<String, String> figures = Map.of(); // of the last batch; of the query's thread

    @Override
    public Map<String, String> metrics() {
      return figures;
    }

    @Override
    public String name() {
      return "answers";
    }

    @Override
    public Column[] columns() {
      return Arrays.stream(ShardProcessor.BUNDLES.fields())
          .map(each -> Column.create(each.name(), each.dataType()))
          .toArray(Column[]::new);
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.STREAMING_WRITE);
    }

    @Override
    public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
      String run = info.options().get("listener");
      Listener listener = LISTENERS.get(run);
      return new WriteBuilder() {
        @Override
        public Write build() {
          return new Write() {
            @Override
            public StreamingWrite toStreaming() {
              describe(info.options().get("query"), LongPollKafkaProvider.offsetsPlanned(run));
              return new Batches(Answers.this, listener);
            }

            @Override
            public CustomMetric[] supportedCustomMetrics() {
              return Arrays.stream(FIGURES).map(Figure::new).toArray(CustomMetric[]::new);
            }
          };
        }
      };
    }

    /** Name the batch that is being planned: its SQL execution begins after this, then its jobs. */
    private static void describe(String query, long offsets) {
      SparkContext context = SparkContext.getOrCreate();
      String batch = query + ", batch " + context.getLocalProperty(BATCH);
      context.setJobDescription(offsets == 0 ? batch : batch + ": " + offsets + " offsets");
    }

    /** Show what a batch came to. It is sent: no figure that Spark does not take may fail it. */
    private void show(String[] values) {
      Map<String, String> last = new LinkedHashMap<>();
      for (int figure = 0; figure < FIGURES.length; figure++) {
        last.put(FIGURES[figure], values[figure]);
      }
      figures = last;
      try {
        post(last);
      } catch (RuntimeException | LinkageError otherSpark) {
        // The progress has them.
      }
    }

    private static void post(Map<String, String> figures) {
      SparkContext context = SparkContext.getOrCreate();
      String execution = context.getLocalProperty(SQLExecution.EXECUTION_ID_KEY());
      Map<String, SQLMetric> known =
          CollectionConverters.asJava(
              SQLExecution.getQueryExecution(Long.parseLong(execution)).executedPlan().metrics());
      List<SQLMetric> shown = new ArrayList<>();
      figures.forEach(
          (name, value) -> {
            SQLMetric metric = known.get(name);
            metric.set(Long.parseLong(value));
            shown.add(metric);
          });
      SQLMetrics.postDriverMetricUpdates(
          context, execution, CollectionConverters.asScala(shown).toSeq());
    }
  }

  /** One of {@link #FIGURES}; Spark makes one without a name to add its values. */
  public static final class Figure extends CustomSumMetric {
    private final String name;

    public Figure() {
      this("");
    }

    Figure(String name) {
      this.name = name;
    }

    @Override
    public String name() {
      return name;
    }

    @Override
    public String description() {
      return name;
    }
  }

  private static final class Batches implements StreamingWrite {
    private final Answers answers;
    private final Listener listener;

    Batches(Answers answers, Listener listener) {
      this.answers = answers;
      this.listener = listener;
    }

    @Override
    public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
      listener.begin(Long.parseLong(SparkContext.getOrCreate().getLocalProperty(BATCH)));
      return (partition, task, epoch) -> new Writer();
    }

    /** A task has no effect but its result, and Spark takes one result of each partition. */
    @Override
    public boolean useCommitCoordinator() {
      return false;
    }

    @Override
    public void commit(long batch, WriterCommitMessage[] results) {
      ByteArrayOutputStream all = new ByteArrayOutputStream();
      for (WriterCommitMessage result : results) {
        all.writeBytes(((Bundles) result).bytes);
      }
      answers.show(listener.commit(batch, all.toByteArray()).split(" "));
    }

    /** What the SQL page calls the writing node. */
    @Override
    public String toString() {
      return "answers to Kafka";
    }

    @Override
    public void abort(long batch, WriterCommitMessage[] results) {
      for (WriterCommitMessage result : results) {
        if (result != null) {
          ((Bundles) result).remove();
        }
      }
    }
  }

  /** A task's bundles. */
  private static final class Bundles implements WriterCommitMessage {
    private static final long serialVersionUID = 1;
    private static final int MEMORY_SIZE_MAX = 4 * 1024 * 1024;
    private static final int PLACE = 3 * Integer.BYTES;
    private static final int DIGEST = 32; // SHA-256, of the bundle
    private static final int NOTE = 1 + 2 * Long.BYTES + DIGEST; // then the path
    private static final byte NOTE_FORM = (byte) 0xFF;

    private final byte[] bytes;
    private final transient Path file;

    Bundles(byte[] bytes, Path file) {
      this.bytes = bytes;
      this.file = file;
    }

    void remove() {
      try {
        if (file != null) {
          Files.deleteIfExists(file);
        }
      } catch (IOException reason) {
        throw new UncheckedIOException(reason);
      }
    }

    /** A result that arrives at the driver: bundles that are large go to a file at once. */
    private Object readResolve() throws ObjectStreamException {
      if (bytes.length <= MEMORY_SIZE_MAX) {
        return this;
      }
      try {
        Path spilled = Files.createTempFile("spu-assigner-", ".spill"); // for this user alone
        Files.write(spilled, bytes);
        return new Bundles(notes(spilled), spilled);
      } catch (IOException reason) {
        throw new UncheckedIOException(reason);
      }
    }

    private byte[] notes(Path spilled) {
      byte[] path = spilled.toString().getBytes(StandardCharsets.UTF_8);
      ByteArrayOutputStream notes = new ByteArrayOutputStream();
      ByteBuffer in = ByteBuffer.wrap(bytes);
      while (in.hasRemaining()) {
        ByteBuffer note = ByteBuffer.allocate(PLACE + NOTE + path.length);
        note.putInt(in.getInt()).putInt(in.getInt()).putInt(NOTE + path.length);
        int size = in.getInt();
        note.put(NOTE_FORM).putLong(in.position()).putLong(size);
        note.put(digest(in.slice(in.position(), size))).put(path);
        notes.writeBytes(note.array());
        in.position(in.position() + size);
      }
      return notes.toByteArray();
    }

    private static byte[] digest(ByteBuffer bundle) {
      try {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        digest.update(bundle);
        return digest.digest();
      } catch (NoSuchAlgorithmException impossible) {
        throw new IllegalStateException(impossible); // every Java has it
      }
    }
  }

  private static final class Writer implements DataWriter<InternalRow> {
    private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    private final DataOutputStream out = new DataOutputStream(bytes);

    @Override
    public void write(InternalRow row) throws IOException {
      byte[] bundle = row.getBinary(2);
      out.writeInt(row.getInt(0));
      out.writeInt(row.getInt(1));
      out.writeInt(bundle.length);
      out.write(bundle);
    }

    @Override
    public WriterCommitMessage commit() {
      return new Bundles(bytes.toByteArray(), null);
    }

    @Override
    public void abort() {}

    @Override
    public void close() {}
  }
}
