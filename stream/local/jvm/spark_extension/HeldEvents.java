package io.spuassigner.spark;

import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.streaming.Offset;

/**
 * Holds events of one topic back until what was written to another topic before them can be read.
 *
 * <p>A reader of committed messages is given a partition up to the first message of an open
 * transaction. What was acknowledged behind that message is given later, so an event of another
 * topic that was sent after it would overtake it. Here the new end of the events' topic is chosen
 * first, then the other topic is asked for the ends of its partitions; the new end is taken once
 * the last stable offsets have reached these. Until then the query goes on with the other topic
 * alone. An end that was chosen stays: transactions that begin later hold nothing of it back.
 */
final class HeldEvents {
  private final TopicEnds ends; // of the topic that is read first
  private final KafkaAdmin kafka;
  private Offset held; // where the events that wait end
  private Map<TopicPartition, Long> written; // the ends that the last stable offsets have to reach
  private Map<TopicPartition, Long> stable; // these offsets, as asked last

  /**
   * @param topic what is read first
   */
  HeldEvents(String topic, KafkaAdmin kafka) {
    ends = new TopicEnds(topic);
    this.kafka = kafka;
  }

  /**
   * Where a batch may end.
   *
   * @param start where it begins
   * @param latest where it could end
   */
  Offset admitted(Offset start, Supplier<Offset> latest) throws InterruptedException {
    stable = null;
    if (held == null) {
      Offset found = latest.get();
      if (found == null || found.equals(start)) {
        return found;
      }
      held = found;
      written = null;
    }
    if (!isReadable()) {
      return start;
    }
    Offset found = held;
    held = null;
    return found;
  }

  /** Where the topic that is read first ends, if it was asked just now; else null. */
  Map<TopicPartition, Long> stable() {
    return stable;
  }

  private boolean isReadable() throws InterruptedException {
    try {
      stable = kafka.ask(written == null ? this::noted : this::reached);
      return written.entrySet().stream().allMatch(end -> stable.get(end.getKey()) >= end.getValue());
    } catch (ExecutionException | KafkaException ignored) {
      return false; // the source of that topic meets the same fault and reports it
    }
  }

  /**
   * Note where the topic ends; gives its last stable offsets. Both are asked together: what these
   * have reached, later ones have too.
   */
  private Map<TopicPartition, Long> noted(Admin admin)
      throws ExecutionException, InterruptedException {
    var found = ends.ask(admin, IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED);
    written = found.get(0);
    return found.get(1);
  }

  private Map<TopicPartition, Long> reached(Admin admin)
      throws ExecutionException, InterruptedException {
    return TopicEnds.offsets(admin, written.keySet(), IsolationLevel.READ_COMMITTED).get();
  }
}
