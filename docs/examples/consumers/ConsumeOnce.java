import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.*;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads each change of a topic once, whatever crashes: ConsumeOnce BROKERS TOPIC FILE [IDLE_SECONDS]. A batch is one line of FILE: its
 *  results, then for each partition the highest mr-pos and the next offset. A line that was cut does not count. */
public final class ConsumeOnce {
    public static void main(String[] arguments) throws Exception {
        String topic = arguments[1];
        Path file = Path.of(arguments[2]);
        long idle = arguments.length > 3 ? Long.parseLong(arguments[3]) * 1000 : Long.MAX_VALUE;
        Map<Integer, String> highest = new HashMap<>();
        Map<Integer, Long> next = new HashMap<>();
        byte[] stored = Files.exists(file) ? Files.readAllBytes(file) : new byte[0];
        int whole = stored.length;
        while (whole > 0 && stored[whole - 1] != '\n') {
            whole--;
        }
        for (String line : new String(stored, 0, whole, StandardCharsets.UTF_8).split("\n")) {
            if (!line.isEmpty()) {
                for (String mark : line.substring(line.lastIndexOf('\t') + 1).split(" ")) {
                    String[] parts = mark.split(":");
                    highest.put(Integer.valueOf(parts[0]), parts[1]);
                    next.put(Integer.valueOf(parts[0]), Long.valueOf(parts[2]));
                }
            }
        }
        try (var cut = FileChannel.open(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE)) {
            cut.truncate(whole);
        }
        Properties options = new Properties();
        options.put("bootstrap.servers", arguments[0]);
        options.put("enable.auto.commit", "false");        // FILE knows where we are
        options.put("auto.offset.reset", "none");          // rows that retention removed unread are an error
        options.put("isolation.level", "read_committed");  // Java's default is read_uncommitted
        var bytes = new ByteArrayDeserializer();
        long dropped = 0;
        try (var consumer = new KafkaConsumer<>(options, bytes, bytes)) {
            List<TopicPartition> partitions = new ArrayList<>();
            consumer.partitionsFor(topic).forEach(p -> partitions.add(new TopicPartition(topic, p.partition())));
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            next.forEach((partition, offset) -> consumer.seek(new TopicPartition(topic, partition), offset));
            long heard = System.currentTimeMillis();
            while (System.currentTimeMillis() - heard < idle) {
                List<String> keys = new ArrayList<>();
                Set<Integer> moved = new TreeSet<>();
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    var header = record.headers().lastHeader("mr-pos");  // null: written by another program, before millrace
                    String position = header == null ? "" : new String(header.value(), StandardCharsets.US_ASCII);
                    String last = highest.getOrDefault(record.partition(), "");
                    if (header == null || position.compareTo(last) > 0) {
                        keys.add(record.key() == null ? "null" : new String(record.key(), StandardCharsets.UTF_8));
                        highest.put(record.partition(), header == null ? last : position);
                    } else {
                        dropped++;
                    }
                    next.put(record.partition(), record.offset() + 1);
                    moved.add(record.partition());
                    heard = System.currentTimeMillis();
                }
                if (!moved.isEmpty()) {
                    StringJoiner marks = new StringJoiner(" ");
                    moved.forEach(p -> marks.add(p + ":" + highest.get(p) + ":" + next.get(p)));
                    Files.writeString(file, String.join("\t", keys) + "\t" + marks + "\n", StandardOpenOption.APPEND);
                }
            }
        }
        System.out.println(dropped + " repeats dropped");
    }
}
