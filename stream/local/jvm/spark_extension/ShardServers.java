package io.spuassigner.spark;

import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.OutputStream;
import java.io.Serializable;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.apache.spark.util.LongAccumulator;

/**
 * The shard servers of this JVM's executor: started when a shard is first processed here, found by
 * a socket in a folder that only this user can enter, and kept between batches.
 *
 * <p>A server ends when its standard input does, whatever it is doing: with this JVM, however it
 * ends, or when {@link #end} closes it. One that is asked and stays silent is killed, and the task
 * fails. Messages are framed as Python's {@code multiprocessing.connection} does it: the size as i32
 * (-1: it follows as i64), big-endian, then the bytes.
 */
public final class ShardServers {
  private static final long START_MS_MAX = 60_000; // takes half a second; longer under load
  private static final long PAUSE_MS = 5;
  private static final long RESTART_MS = 200; // for another attempt's server to begin to listen
  private static final int FOLDER_SIZE_MAX = 90; // bytes; a socket's whole path has at most 107
  private static final String RETRIED = "Spark runs the task again, with a new server";
  // The C library raises the size from which memory goes back to the system with each large piece
  // that is freed: what was read at a start would lie among what lives on, and never go back.
  // And a library of numpy's would hold a thread and its buffer for matrices of floats: none are here.
  private static final Map<String, String> MEMORY =
      Map.of("MALLOC_MMAP_THRESHOLD_", String.valueOf(128 * 1024), "OPENBLAS_NUM_THREADS", "1");

  private static final Map<String, Deque<Connection>> IDLE = new ConcurrentHashMap<>();
  private static final Map<String, Process> PREPARED = new ConcurrentHashMap<>();
  private static final Map<String, Process> RUNNING = new ConcurrentHashMap<>();
  private static final ScheduledThreadPoolExecutor LIMITS = limits();

  private ShardServers() {}

  /** End the servers of a run that this JVM has started, the driver's. */
  public static void end(String run) {
    RUNNING.forEach(
        (name, server) -> {
          if (name.startsWith(run)) {
            endInput(server);
          }
        });
    IDLE.entrySet()
        .removeIf(
            each -> {
              boolean isOver = each.getKey().startsWith(run);
              if (isOver) {
                synchronized (each.getValue()) {
                  each.getValue().forEach(Connection::close);
                }
              }
              return isOver;
            });
    PREPARED.keySet().removeIf(each -> each.startsWith(run));
    BatchSigns.end(run);
  }

  /**
   * Start the servers of these shards together, where all tasks run in this JVM: they get ready while
   * Spark plans the first batch. One that cannot be started is reported by the task that needs it.
   */
  public static void prepare(String python, String run, String options, List<Integer> shards) {
    try {
      Process servers = new Start(python, run, options).started(shards);
      shards.forEach(shard -> PREPARED.put(run + shard, servers));
    } catch (IOException ignored) {
      // The task tries again.
    }
  }

  private static void endInput(Process server) {
    try {
      server.getOutputStream().close();
    } catch (IOException ignored) {
      // The server has ended before.
    }
  }

  /** What closes channels whose calls take too long; those of Unix sockets have no limit to set. */
  private static ScheduledThreadPoolExecutor limits() {
    ScheduledThreadPoolExecutor made =
        new ScheduledThreadPoolExecutor(
            1,
            task -> {
              Thread thread = new Thread(task, "shard-server-limits");
              thread.setDaemon(true);
              return thread;
            });
    made.setRemoveOnCancelPolicy(true);
    return made;
  }

  /** A shard server failed; the task fails with it, and Spark repeats it. */
  public static final class ShardServerException extends RuntimeException {
    private static final long serialVersionUID = 1;

    ShardServerException(String message, Throwable cause) {
      super(message, cause);
    }
  }

  /** What starts the servers of one run. */
  record Start(String python, String run, String options) implements Serializable {
    /**
     * A connection to the shard's server, which is started where there is none.
     *
     * @param silenceMsMax how long the server may be silent when it was asked
     * @param signs counts what it says
     */
    Connection connection(int shard, long silenceMsMax, LongAccumulator signs) {
      Connection found = connection(shard);
      found.silenceMsMax = silenceMsMax;
      found.signs = signs;
      return found;
    }

    private Connection connection(int shard) {
      Deque<Connection> idle = IDLE.computeIfAbsent(run + shard, any -> new ArrayDeque<>());
      synchronized (idle) {
        if (!idle.isEmpty()) {
          return idle.pop();
        }
      }
      try {
        return new Connection(this, shard, connected(shard), idle);
      } catch (IOException reason) {
        throw new ShardServerException(
            "the server of shard " + shard + " cannot be reached: " + reason + "; " + RETRIED,
            reason);
      } catch (InterruptedException reason) {
        Thread.currentThread().interrupt();
        throw new ShardServerException("the task was ended", reason);
      }
    }

    private SocketChannel connected(int shard) throws IOException, InterruptedException {
      Path socket = folder().resolve(String.valueOf(shard));
      long deadline = System.currentTimeMillis() + START_MS_MAX;
      Process server = PREPARED.remove(run + shard);
      while (System.currentTimeMillis() < deadline) {
        SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
        try {
          channel.connect(UnixDomainSocketAddress.of(socket));
          return channel;
        } catch (IOException nobodyListens) {
          channel.close();
        }
        if (server == null) {
          server = started(List.of(shard));
        } else if (server.waitFor(PAUSE_MS, TimeUnit.MILLISECONDS)) {
          if (server.exitValue() != 0) {
            throw new IOException("it ended with " + server.exitValue());
          }
          Thread.sleep(RESTART_MS); // Another attempt has started one: it will listen, or is ending.
          server = null;
        }
      }
      throw new IOException("it did not listen within " + START_MS_MAX / 1000 + " s");
    }

    private Process started(List<Integer> shards) throws IOException {
      ProcessBuilder builder =
          new ProcessBuilder(python, "-m", "spu_assigner.stream.job.shard.server");
      shards.forEach(shard -> builder.command().add(String.valueOf(shard)));
      builder.environment().putAll(MEMORY);
      builder.redirectOutput(ProcessBuilder.Redirect.DISCARD);
      builder.redirectError(ProcessBuilder.Redirect.INHERIT);
      Process server = builder.start();
      OutputStream input = server.getOutputStream(); // others can read a command line
      input.write((folder() + "\n" + options + "\n").getBytes(StandardCharsets.UTF_8));
      input.flush();
      for (int shard : shards) {
        String name = name(shard) + server.pid();
        RUNNING.put(name, server);
        server.onExit().thenRun(() -> RUNNING.remove(name));
      }
      return server;
    }

    /** What the names of a shard's processes in {@link #RUNNING} begin with. */
    private String name(int shard) {
      return run + shard + "/";
    }

    /** Kill the servers of a shard that this JVM has started, and those that were started with it. */
    private void kill(int shard) {
      RUNNING.forEach(
          (name, server) -> {
            if (name.startsWith(name(shard))) {
              server.descendants().forEach(ProcessHandle::destroyForcibly);
              server.destroyForcibly();
            }
          });
    }

    /** Where a run's servers are found: in TMPDIR, unless a socket's path would be too long there. */
    private Path folder() throws IOException {
      Object user = java.nio.file.Files.getAttribute(Path.of("/proc/self"), "unix:uid");
      String name = "spu-assigner-" + user + "-" + run.substring(0, 16);
      String named = System.getenv("TMPDIR");
      Path found = Path.of(named == null || named.isEmpty() ? "/tmp" : named, name);
      int size = found.toString().getBytes(StandardCharsets.UTF_8).length;
      return size > FOLDER_SIZE_MAX ? Path.of("/tmp", name) : found;
    }
  }

  /** A call to a server. */
  private interface Call<T> {
    T run() throws IOException;
  }

  /** A connection to a shard's server. */
  static final class Connection {
    private final Start servers;
    private final int shard;
    private final SocketChannel channel;
    private final DataInputStream in;
    private final DataOutputStream out;
    private final Deque<Connection> idle;
    private boolean isReused;
    private long silenceMsMax;
    private LongAccumulator signs;
    private volatile boolean isStuck;

    private Connection(Start servers, int shard, SocketChannel channel, Deque<Connection> idle)
        throws IOException {
      this.servers = servers;
      this.shard = shard;
      this.channel = channel;
      this.idle = idle;
      in = new DataInputStream(Channels.newInputStream(channel));
      out = new DataOutputStream(new BufferedOutputStream(Channels.newOutputStream(channel)));
    }

    boolean isReused() {
      return isReused;
    }

    void send(byte[] message) throws IOException {
      limited(
          () -> {
            out.writeInt(message.length);
            out.write(message);
            return null;
          });
    }

    /** The next message that is more than a sign of life. */
    ByteBuffer receive() throws IOException {
      while (true) {
        ByteBuffer message = limited(this::received);
        signs.add(1);
        if (message.get(0) != 'L') {
          return message;
        }
      }
    }

    private ByteBuffer received() throws IOException {
      out.flush();
      int size = in.readInt();
      long whole = size == -1 ? in.readLong() : size;
      byte[] message = in.readNBytes(Math.toIntExact(whole));
      if (message.length < whole) {
        throw new EOFException("it ended in a message");
      }
      return ByteBuffer.wrap(message);
    }

    /** The next message, which must be of this kind. */
    ByteBuffer receive(char kind) throws IOException {
      ByteBuffer answer = receive();
      if (answer.get() != kind) {
        throw failed(answer);
      }
      return answer;
    }

    /** What a call gives. A server that does not let it end in time is stuck, and killed. */
    private <T> T limited(Call<T> call) throws IOException {
      Future<?> limit =
          LIMITS.schedule(
              () -> {
                isStuck = true;
                close();
              },
              silenceMsMax,
              TimeUnit.MILLISECONDS);
      try {
        return call.run();
      } catch (IOException reason) {
        if (!isStuck) {
          throw reason;
        }
        servers.kill(shard);
        throw new ShardServerException(
            "the server of shard " + shard + " gave no sign of life for " + silenceMsMax / 1000
                + " s and was killed; " + RETRIED,
            reason);
      } finally {
        limit.cancel(false);
      }
    }

    /** Keep it for the next batch. */
    void giveBack() {
      isReused = true;
      synchronized (idle) {
        idle.push(this);
      }
    }

    void close() {
      try {
        channel.close();
      } catch (IOException ignored) {
        // It is closed.
      }
    }

    /** Why a batch failed, as the server says it. */
    RuntimeException failed(ByteBuffer answer) {
      close();
      String kind = String.valueOf((char) answer.get(0));
      String text = StandardCharsets.UTF_8.decode(answer).toString();
      return new ShardServerException(
          kind.equals("F") ? text : "a shard server sends " + kind, null);
    }

    RuntimeException gone(IOException reason) {
      return new ShardServerException(
          "the server of shard " + shard + " is gone: " + reason + "; " + RETRIED, reason);
    }
  }
}
