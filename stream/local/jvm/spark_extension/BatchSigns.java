package io.spuassigner.spark;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.AccumulableInfo;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorMetricsUpdate;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.util.LongAccumulator;
import scala.Tuple4;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;

/**
 * Signs of life from inside the batches of a run: how often the driver has seen a shard get on.
 *
 * <p>Tasks count what their shard servers say. Executors report these counts with their heartbeats,
 * each 10 s by default, wherever they run; a count that has changed since the last one is a sign.
 */
public final class BatchSigns extends SparkListener {
  private static final Map<String, BatchSigns> ALL = new ConcurrentHashMap<>();

  private final SparkContext context = SparkContext.getOrCreate();
  private final LongAccumulator said = context.longAccumulator();
  private final Map<Object, Object> latest = new ConcurrentHashMap<>(); // by task
  private final AtomicLong count = new AtomicLong();

  private BatchSigns() {}

  /** What the tasks of a run count with. */
  static LongAccumulator of(String run) {
    return ALL.computeIfAbsent(run, any -> listening()).said;
  }

  /** How many signs there were; 0 of a run that is not known. */
  public static long count(String run) {
    BatchSigns signs = ALL.get(run);
    return signs == null ? 0 : signs.count.get();
  }

  /** Count no more for a run. */
  static void end(String run) {
    BatchSigns signs = ALL.remove(run);
    if (signs != null) {
      signs.context.removeSparkListener(signs);
    }
  }

  private static BatchSigns listening() {
    BatchSigns signs = new BatchSigns();
    signs.context.addSparkListener(signs);
    return signs;
  }

  @Override
  public void onExecutorMetricsUpdate(SparkListenerExecutorMetricsUpdate update) {
    Iterator<Tuple4<Object, Object, Object, Seq<AccumulableInfo>>> tasks =
        update.accumUpdates().iterator();
    while (tasks.hasNext()) {
      Tuple4<Object, Object, Object, Seq<AccumulableInfo>> task = tasks.next();
      for (Iterator<AccumulableInfo> infos = task._4().iterator(); infos.hasNext(); ) {
        AccumulableInfo info = infos.next();
        if (info.id() == said.id() && info.update().isDefined()) {
          Object value = info.update().get();
          Object before = latest.put(task._1(), value);
          if (!value.equals(before == null ? 0L : before)) {
            count.incrementAndGet();
          }
        }
      }
    }
  }

  @Override
  public void onTaskEnd(SparkListenerTaskEnd ended) {
    latest.remove(ended.taskInfo().taskId());
  }
}
