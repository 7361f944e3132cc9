package io.spuassigner.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.catalyst.analysis.Analyzer;
import org.apache.spark.sql.catalyst.encoders.AgnosticEncoder;
import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import scala.collection.immutable.Seq;

/**
 * An encoder of state that is made once in a thread and resolved once in a JVM: Spark makes those of
 * each task anew and has its analyzer resolve them, a fourth of a small task's time.
 */
final class StateEncoder<T> extends ExpressionEncoder<T> {
  private static final long serialVersionUID = 1;
  private static final Map<Encoder<?>, Expression> RESOLVED = new ConcurrentHashMap<>();
  // Their expressions hold what they work on, and a thread has one task at a time.
  private static final ThreadLocal<Map<Encoder<?>, StateEncoder<?>>> MADE =
      ThreadLocal.withInitial(HashMap::new);

  private transient ExpressionEncoder<T> bound;

  private StateEncoder(ExpressionEncoder<T> of) {
    super(of.encoder(), of.objSerializer(), of.objDeserializer());
  }

  /**
   * That of this thread.
   *
   * @param encoder one of those that {@link org.apache.spark.sql.Encoders} gives
   */
  @SuppressWarnings("unchecked")
  static <T> StateEncoder<T> of(Encoder<T> encoder) {
    return (StateEncoder<T>)
        MADE.get()
            .computeIfAbsent(
                encoder,
                absent -> new StateEncoder<>(ExpressionEncoder.apply((AgnosticEncoder<T>) encoder)));
  }

  @Override
  public ExpressionEncoder<T> resolveAndBind(Seq<Attribute> columns, Analyzer analyzer) {
    if (bound == null) {
      Expression resolved =
          RESOLVED.computeIfAbsent(
              encoder(), absent -> super.resolveAndBind(columns, analyzer).objDeserializer());
      bound = new ExpressionEncoder<>(encoder(), objSerializer(), resolved.clone());
    }
    return bound;
  }
}
