package io.spuassigner.spark;

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
 * An encoder of state that is resolved once in a JVM: Spark has its analyzer resolve those of each
 * task anew, a fifth of a small task's time.
 */
final class StateEncoder<T> extends ExpressionEncoder<T> {
  private static final long serialVersionUID = 1;
  private static final Map<Encoder<?>, Expression> RESOLVED = new ConcurrentHashMap<>();

  private StateEncoder(ExpressionEncoder<T> of) {
    super(of.encoder(), of.objSerializer(), of.objDeserializer());
  }

  /**
   * @param encoder one of those that {@link org.apache.spark.sql.Encoders} gives
   */
  static <T> StateEncoder<T> of(Encoder<T> encoder) {
    return new StateEncoder<>(ExpressionEncoder.apply((AgnosticEncoder<T>) encoder));
  }

  /** Its expressions hold what they work on, so each task has a copy of them. */
  @Override
  public ExpressionEncoder<T> resolveAndBind(Seq<Attribute> columns, Analyzer analyzer) {
    Expression resolved =
        RESOLVED.computeIfAbsent(
            encoder(), absent -> super.resolveAndBind(columns, analyzer).objDeserializer());
    return new ExpressionEncoder<>(encoder(), objSerializer(), resolved.clone());
  }
}
