package io.spuassigner.spark;

import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
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
final class HeldEvents implements AutoCloseable {
  private final String topic;
  private final KafkaAdmin kafka;
  private Offset held; // where the events that wait end
  private Set<TopicPartition> partitions = Set.of(); // of the topic that is read first
  private Map<TopicPartition, Long> written; // the ends that the last stable offsets have to reach

  /**
   * @param topic what is read first
   */
  HeldEvents(String topic, KafkaAdmin kafka) {
    this.topic = topic;
    this.kafka = kafka;
  }

  /**
   * Where a batch may end.
   *
   * @param start where it begins
   * @param latest where it could end
   */
  Offset admitted(Offset start, Supplier<Offset> latest) throws InterruptedException {
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

  private boolean isReadable() throws InterruptedException {
    try {
      Map<TopicPartition, Long> stable = kafka.ask(written == null ? this::noted : this::stable);
      return written.entrySet().stream().allMatch(end -> stable.get(end.getKey()) >= end.getValue());
    } catch (ExecutionException | KafkaException ignored) {
      return false; // the source of that topic meets the same fault and reports it
    }
  }

  /**
   * Note where the topic ends; gives its last stable offsets. All is asked together, of the
   * partitions that are known: what these offsets have reached, later ones have too.
   */
  private Map<TopicPartition, Long> noted(Admin admin)
      throws ExecutionException, InterruptedException {
    while (true) {
      Set<TopicPartition> asked = partitions;
      partitions = Set.of(); // until it is known that they are there
      var topics = admin.describeTopics(List.of(topic)).allTopicNames();
      var ends = offsets(admin, asked, IsolationLevel.READ_UNCOMMITTED);
      var stable = offsets(admin, asked, IsolationLevel.READ_COMMITTED);
      partitions =
          topics.get().get(topic).partitions().stream()
              .map(each -> new TopicPartition(topic, each.partition()))
              .collect(Collectors.toSet());
      if (partitions.equals(asked)) {
        written = numbers(ends);
        return numbers(stable);
      }
    }
  }

  private Map<TopicPartition, Long> stable(Admin admin)
      throws ExecutionException, InterruptedException {
    return numbers(offsets(admin, written.keySet(), IsolationLevel.READ_COMMITTED));
  }

  private static KafkaFuture<Map<TopicPartition, ListOffsetsResultInfo>> offsets(
      Admin admin, Set<TopicPartition> partitions, IsolationLevel level) {
    Map<TopicPartition, OffsetSpec> asked =
        partitions.stream()
            .collect(Collectors.toMap(Function.identity(), each -> OffsetSpec.latest()));
    return admin.listOffsets(asked, new ListOffsetsOptions(level)).all();
  }

  private static Map<TopicPartition, Long> numbers(
      KafkaFuture<Map<TopicPartition, ListOffsetsResultInfo>> found)
      throws ExecutionException, InterruptedException {
    return found.get().entrySet().stream()
        .collect(Collectors.toMap(Map.Entry::getKey, end -> end.getValue().offset()));
  }

  @Override
  public void close() {
    kafka.close();
  }
}
