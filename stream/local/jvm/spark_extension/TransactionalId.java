package io.spuassigner.spark;

import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.common.KafkaException;

/** Which producer Kafka has for a transactional id: asked by the driver's Python, by Py4J. */
public final class TransactionalId implements AutoCloseable {
  private final String id;
  private final KafkaAdmin kafka;

  /**
   * @param options of Spark's Kafka source
   */
  public TransactionalId(Map<String, String> options, String id) {
    this.id = id;
    kafka = new KafkaAdmin(options);
  }

  /** The producer's id and epoch; null where Kafka does not say. */
  public String producer() {
    try {
      TransactionDescription found =
          kafka.ask(admin -> admin.describeTransactions(List.of(id)).description(id).get());
      return found.producerId() + "/" + found.producerEpoch();
    } catch (ExecutionException | KafkaException ignored) {
      return null; // no broker answers, or it has forgotten the id
    } catch (InterruptedException reason) {
      Thread.currentThread().interrupt();
      return null;
    }
  }

  @Override
  public void close() {
    kafka.close();
  }
}
