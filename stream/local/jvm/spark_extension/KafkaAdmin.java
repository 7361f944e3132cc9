package io.spuassigner.spark;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.common.errors.RetriableException;

/**
 * An admin client that is made when it is first needed, and anew after a request without an answer:
 * one that has lost a broker may wait for it, and for no other.
 */
final class KafkaAdmin implements AutoCloseable {
  private static final String PREFIX = "kafka."; // of the options that are the client's
  private static final Set<String> KNOWN = AdminClientConfig.configNames();

  private final Map<String, Object> settings = new HashMap<>();
  private Admin client;

  /**
   * @param options of Spark's Kafka source
   */
  KafkaAdmin(Map<String, String> options) {
    options.forEach(
        (name, value) -> {
          if (name.startsWith(PREFIX) && isAdmins(name.substring(PREFIX.length()))) {
            settings.put(name.substring(PREFIX.length()), value);
          }
        });
  }

  private static boolean isAdmins(String name) {
    return KNOWN.contains(name) || name.startsWith("config.providers");
  }

  /** What is asked of the client, and waited for. */
  interface Request<T> {
    T of(Admin admin) throws ExecutionException, InterruptedException;
  }

  synchronized <T> T ask(Request<T> request)
      throws ExecutionException, InterruptedException {
    if (client == null) {
      client = Admin.create(settings);
    }
    try {
      return request.of(client);
    } catch (ExecutionException reason) {
      if (reason.getCause() instanceof RetriableException) {
        close();
      }
      throw reason;
    }
  }

  @Override
  public synchronized void close() {
    if (client != null) {
      client.close(Duration.ZERO);
      client = null;
    }
  }
}
