package io.spuassigner.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.function.Function;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.spark.sql.connector.read.streaming.Offset;

/**
 * Where the partitions of a topic end.
 *
 * <p>What partitions there are, and where those that are known end, is asked with one wait; by the
 * topic's name the client would wait for a description of Kafka's cluster first.
 */
final class TopicEnds {
  private static final Pattern TOPIC = Pattern.compile("\"([^\"]+)\":\\{([^}]*)}");
  private static final Pattern PARTITION = Pattern.compile("\"([0-9]+)\":([0-9]+)");

  private final String topic;
  private Uuid id = Uuid.ZERO_UUID; // not known yet, or of a broker that gives none
  private Set<TopicPartition> partitions = Set.of();

  TopicEnds(String topic) {
    this.topic = topic;
  }

  /** Where they end for readers of each of these levels, in their order. */
  List<Map<TopicPartition, Long>> ask(Admin admin, IsolationLevel... levels)
      throws ExecutionException, InterruptedException {
    while (true) {
      Set<TopicPartition> asked = partitions;
      partitions = Set.of(); // until it is known that they are there
      var topics = described(admin);
      var ends = Arrays.stream(levels).map(level -> offsets(admin, asked, level)).toList();
      id = Uuid.ZERO_UUID;
      TopicDescription found = topics.get().values().iterator().next();
      id = found.topicId();
      partitions =
          found.partitions().stream()
              .map(each -> new TopicPartition(topic, each.partition()))
              .collect(Collectors.toSet());
      if (partitions.equals(asked)) {
        List<Map<TopicPartition, Long>> all = new ArrayList<>();
        for (var each : ends) {
          all.add(each.get());
        }
        return all;
      }
    }
  }

  private KafkaFuture<? extends Map<?, TopicDescription>> described(Admin admin) {
    return id.equals(Uuid.ZERO_UUID)
        ? admin.describeTopics(List.of(topic)).allTopicNames()
        : admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds();
  }

  /** Where these partitions end for readers of a level. */
  static KafkaFuture<Map<TopicPartition, Long>> offsets(
      Admin admin, Set<TopicPartition> partitions, IsolationLevel level) {
    Map<TopicPartition, OffsetSpec> asked =
        partitions.stream()
            .collect(Collectors.toMap(Function.identity(), each -> OffsetSpec.latest()));
    return admin
        .listOffsets(asked, new ListOffsetsOptions(level))
        .all()
        .thenApply(
            found ->
                found.entrySet().stream()
                    .collect(Collectors.toMap(Map.Entry::getKey, end -> end.getValue().offset())));
  }

  /** What an offset of Spark's Kafka source says of each partition. */
  static Map<TopicPartition, Long> of(Offset offset) {
    Map<TopicPartition, Long> found = new HashMap<>();
    for (Matcher topic = TOPIC.matcher(offset.json()); topic.find(); ) {
      for (Matcher each = PARTITION.matcher(topic.group(2)); each.find(); ) {
        found.put(
            new TopicPartition(topic.group(1), Integer.parseInt(each.group(1))),
            Long.parseLong(each.group(2)));
      }
    }
    return found;
  }

  /** The offset of one topic's ends, as JSON. */
  static String json(Map<TopicPartition, Long> ends) {
    String topic = ends.keySet().iterator().next().topic();
    return ends.entrySet().stream()
        .map(end -> "\"" + end.getKey().partition() + "\":" + end.getValue())
        .collect(Collectors.joining(",", "{\"" + topic + "\":{", "}}"));
  }
}
