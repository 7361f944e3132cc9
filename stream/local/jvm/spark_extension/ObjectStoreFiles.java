package io.spuassigner.spark;

import java.io.ByteArrayOutputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.Arrays;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;

/**
 * The files of a checkpoint in an object store, where a rename is a copy and a deletion.
 *
 * <p>Spark's own managers write a file under another name and rename it. Here an object is put
 * under its name at once: it is visible as a whole when its stream is closed, and not at all when
 * it is cancelled. That is one request for ten, and a process that dies leaves nothing over.
 *
 * <p>The notes of a query, of its batches' offsets and of their ends are written once. They are put
 * on the condition that there are none yet (S3's {@code If-None-Match}), so of two processes that
 * write the same one at the same time one fails. A put whose response was lost is repeated and
 * finds its own object: one of the same bytes counts as written.
 */
public final class ObjectStoreFiles implements CheckpointFileManager {
  private static final String IF_ABSENT =
      CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE;
  private static final String WITHOUT_LOOKING = "fs.s3a.create.performance";

  private final Path place;
  private final FileSystem files;

  /** As Spark makes one. */
  public ObjectStoreFiles(Path place, Configuration options) throws IOException {
    this.place = place;
    this.files = place.getFileSystem(options);
  }

  @Override
  public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(
      Path path, boolean overwriteIfPossible) {
    try {
      return overwriteIfPossible ? new Replacing(path) : new Adding(path);
    } catch (IOException reason) {
      throw Thrown.as(reason);
    }
  }

  @Override
  public FSDataInputStream open(Path path) {
    try {
      return files.open(path);
    } catch (IOException reason) {
      throw Thrown.as(reason);
    }
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    try {
      return files.listStatus(path, filter);
    } catch (IOException reason) {
      throw Thrown.as(reason);
    }
  }

  @Override
  public void mkdirs(Path path) {
    try {
      files.mkdirs(path);
    } catch (IOException reason) {
      throw Thrown.as(reason);
    }
  }

  @Override
  public boolean exists(Path path) {
    try {
      return files.exists(path);
    } catch (IOException reason) {
      throw Thrown.as(reason);
    }
  }

  @Override
  public void delete(Path path) {
    try {
      files.delete(path, true);
    } catch (FileNotFoundException gone) {
      return;
    } catch (IOException reason) {
      throw Thrown.as(reason);
    }
  }

  @Override
  public boolean isLocal() {
    return false;
  }

  @Override
  public Path createCheckpointDirectory() {
    Path whole = files.makeQualified(place);
    mkdirs(whole);
    return whole;
  }

  private FSDataOutputStreamBuilder<FSDataOutputStream, ?> builder(Path path) throws IOException {
    @SuppressWarnings("unchecked") // Hadoop says nothing of the builder's parameters
    FSDataOutputStreamBuilder<FSDataOutputStream, ?> builder = files.createFile(path);
    builder.create().recursive();
    return builder;
  }

  /** Scala's methods say nothing of what they throw, and Spark tells these exceptions apart. */
  private static final class Thrown {
    private static RuntimeException as(IOException reason) {
      return Thrown.<RuntimeException>unchecked(reason);
    }

    @SuppressWarnings("unchecked")
    private static <E extends Exception> RuntimeException unchecked(Exception reason) throws E {
      throw (E) reason;
    }
  }

  /** What is put at the end, whatever is there. */
  private final class Replacing extends CheckpointFileManager.CancellableFSDataOutputStream {
    private boolean ended;

    private Replacing(Path path) throws IOException {
      super(builder(path).overwrite(true).opt(WITHOUT_LOOKING, true).build());
    }

    @Override
    public synchronized void close() throws IOException {
      if (!ended) {
        ended = true;
        super.close();
      }
    }

    @Override
    public synchronized void cancel() {
      if (!ended) {
        ended = true;
        ((FSDataOutputStream) underlyingStream()).abort();
      }
    }
  }

  /** What is put at the end if there is nothing; a note of a few kilobytes. */
  private final class Adding extends CheckpointFileManager.CancellableFSDataOutputStream {
    private final Path path;
    private boolean ended;

    private Adding(Path path) throws IOException {
      super(new ByteArrayOutputStream());
      this.path = path;
    }

    @Override
    public synchronized void close() throws IOException {
      if (!ended) {
        ended = true;
        super.close();
        put(((ByteArrayOutputStream) underlyingStream()).toByteArray());
      }
    }

    @Override
    public synchronized void cancel() {
      ended = true;
    }

    private void put(byte[] content) throws IOException {
      var builder = builder(path).overwrite(false);
      if (files.hasPathCapability(path, IF_ABSENT)) {
        builder.must(IF_ABSENT, true);
      } // Else the store's owner has switched conditions off, and it is looked for before.
      FSDataOutputStream stream = builder.build();
      try {
        stream.write(content);
      } catch (IOException reason) {
        stream.abort();
        throw reason;
      }
      try {
        stream.close();
      } catch (IOException reason) {
        if (!files.exists(path)) {
          throw reason;
        }
        if (!Arrays.equals(content, found())) {
          String said = path + " is there already, of another process";
          throw (IOException) new FileAlreadyExistsException(said).initCause(reason);
        }
      }
    }

    private byte[] found() throws IOException {
      try (FSDataInputStream stream = files.open(path)) {
        return stream.readAllBytes();
      }
    }
  }
}
