package io.spuassigner.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateSafeProjection;
import org.apache.spark.sql.types.DataTypes;
import org.rocksdb.RocksDB;
import scala.jdk.javaapi.CollectionConverters;

/** What a query's first batch would wait for: it is loaded while the job checks what it starts with. */
public final class FirstBatch {
  private FirstBatch() {}

  /** Load RocksDB's library and the compiler of projections, beside what the caller does. */
  public static void prepare() {
    Thread loading = new Thread(FirstBatch::load, "first-batch");
    loading.setDaemon(true);
    loading.start();
  }

  private static void load() {
    try {
      RocksDB.loadLibrary();
      Expression column = new BoundReference(0, DataTypes.IntegerType, false);
      GenerateSafeProjection.generate(CollectionConverters.asScala(List.of(column)).toSeq());
    } catch (RuntimeException | LinkageError ignored) {
      // The batch meets the same fault and reports it.
    }
  }
}
