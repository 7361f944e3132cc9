package io.spuassigner.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.zip.CRC32;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Kafka's messages as rows of their shard and one column of bytes.
 *
 * <p>With a column for each part of a message, Spark would plan, serialize and resolve seven
 * columns in each batch, and compute the shard by an expression.
 *
 * <p>An event, little-endian: its source, partition, offset, time in ms, size of the key and size of
 * the value (-1: none), each i64; then key and value.
 *
 * @param kafka who reads the messages
 * @param source the number of their topic, as in {@code stream/job/shard/bundle.py}
 * @param shards the label of each shard; a key belongs to the one of its CRC-32 modulo their number,
 *     and no key is as an empty one
 */
record EventReaders(PartitionReaderFactory kafka, int source, int[] shards)
    implements PartitionReaderFactory {
  static final StructType SCHEMA =
      new StructType()
          .add("shard", DataTypes.IntegerType, false)
          .add("event", DataTypes.BinaryType, false);

  /** The numbers before key and value. */
  static final int NUMBERS = 6;

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    return new EventReader(kafka.createReader(partition), source, shards);
  }

  private record EventReader(PartitionReader<InternalRow> kafka, int source, int[] shards)
      implements PartitionReader<InternalRow> {
    private static final int KEY = 0; // columns of Spark's Kafka source
    private static final int VALUE = 1;
    private static final int PARTITION = 3;
    private static final int OFFSET = 4;
    private static final int TIME = 5; // us

    @Override
    public boolean next() throws IOException {
      return kafka.next();
    }

    @Override
    public InternalRow get() {
      InternalRow message = kafka.get();
      byte[] key = message.isNullAt(KEY) ? null : message.getBinary(KEY);
      byte[] value = message.isNullAt(VALUE) ? null : message.getBinary(VALUE);
      int size = (key == null ? 0 : key.length) + (value == null ? 0 : value.length);
      ByteBuffer event =
          ByteBuffer.allocate(NUMBERS * Long.BYTES + size).order(ByteOrder.LITTLE_ENDIAN);
      event.putLong(source).putLong(message.getInt(PARTITION)).putLong(message.getLong(OFFSET));
      event.putLong(Math.floorDiv(message.getLong(TIME), 1_000L));
      event.putLong(key == null ? -1 : key.length).putLong(value == null ? -1 : value.length);
      CRC32 hash = new CRC32();
      if (key != null) {
        event.put(key);
        hash.update(key);
      }
      if (value != null) {
        event.put(value);
      }
      int shard = shards[(int) (hash.getValue() % shards.length)];
      return new GenericInternalRow(new Object[] {shard, event.array()});
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
      return kafka.currentMetricsValues();
    }

    @Override
    public void close() throws IOException {
      kafka.close();
    }
  }
}
