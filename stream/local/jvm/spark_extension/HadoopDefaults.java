package io.spuassigner.spark;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkContext;

/**
 * Hadoop's configuration without what Hadoop itself writes into it, for files of this machine.
 *
 * <p>Spark copies and serializes it in each batch with state: of its more than 1,000 properties
 * nearly all are defaults of services that are not there, and code that reads a file knows its own.
 */
public final class HadoopDefaults {
  private static final String FILES = "-default.xml"; // of Hadoop's own; a user's end in -site.xml

  private HadoopDefaults() {}

  /** Remove from a session's configuration what no user has set. */
  public static void remove(SparkContext context) {
    Configuration properties = context.hadoopConfiguration();
    List<String> names = new ArrayList<>();
    for (Map.Entry<String, String> each : properties) {
      String[] sources = properties.getPropertySources(each.getKey());
      if (sources != null && Arrays.stream(sources).allMatch(from -> from.endsWith(FILES))) {
        names.add(each.getKey());
      }
    }
    names.forEach(properties::unset);
  }
}
