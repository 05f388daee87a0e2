import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Headers;
import org.apache.kafka.common.serialization.StringDeserializer;

/** The newest events of several topics, by key, as of one moment in PostgreSQL: ConsistentView BROKERS FILE TOPIC… FILE is replaced as a whole: a
 *  transaction is in it in all topics, or in none. Needs resolved.interval. Reads the topics from their beginning at each start. */
public final class ConsistentView {
    private static String header(Headers headers, String name) {
        return headers.lastHeader(name) == null ? null : new String(headers.lastHeader(name).value(), StandardCharsets.US_ASCII);
    }

    public static void main(String[] arguments) throws Exception {
        Path file = Path.of(arguments[1]);
        List<String> topics = List.of(arguments).subList(2, arguments.length);
        Map<String, Integer> counts = new HashMap<>();               // partitions, by topic
        Map<TopicPartition, String> marks = new HashMap<>();         // all below is read
        Map<TopicPartition, String> highest = new HashMap<>();       // what is not above is a repeat
        NavigableMap<String, ConsumerRecord<String, String>> held = new TreeMap<>();
        Map<String, String> view = new TreeMap<>();
        String done = "";
        var options = new Properties();
        options.putAll(Map.of("bootstrap.servers", arguments[0], "auto.offset.reset", "earliest", "isolation.level", "read_committed"));
        try (var consumer = new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer())) {
            while (true) {
                List<TopicPartition> wanted = new ArrayList<>();     // a topic has one, at least
                topics.forEach(t -> { for (int p = 0; p < counts.getOrDefault(t, 1); p++) wanted.add(new TopicPartition(t, p)); });
                if (wanted.size() > consumer.assignment().size()) {
                    consumer.assign(wanted);                         // goes on where it was in those that it had
                }
                for (var record : consumer.poll(Duration.ofMillis(200))) {
                    var place = new TopicPartition(record.topic(), record.partition());
                    String lsn = header(record.headers(), "mr-resolved"), position = header(record.headers(), "mr-pos");
                    if (lsn != null) {
                        marks.merge(place, lsn, (a, b) -> a.compareTo(b) > 0 ? a : b);
                        counts.merge(record.topic(), Integer.valueOf(header(record.headers(), "mr-partitions")), Math::max);
                    } else if (position.compareTo(highest.getOrDefault(place, "")) > 0 &&
                               Long.parseLong(position.substring(0, 16), 16) + 1 >= Long.parseLong("0" + done, 16)) {
                        highest.put(place, position);
                        held.put(position + record.topic(), record);
                    }
                }
                boolean all = wanted.size() == topics.stream().mapToInt(t -> counts.getOrDefault(t, 0)).sum() && marks.keySet().containsAll(wanted);
                String cut = all ? wanted.stream().map(marks::get).min(Comparator.naturalOrder()).get() : "";
                if (cut.compareTo(done) > 0) {
                    held.headMap(done = cut).forEach((position, record) -> view.put(record.topic() + "\t" + record.key(), record.value()));
                    held.headMap(cut).clear();
                    view.values().removeIf(Objects::isNull);         // tombstones
                    var text = new StringBuilder(cut + "\n");
                    view.forEach((key, value) -> text.append(key).append('\t').append(value).append('\n'));
                    Files.move(Files.writeString(Path.of(file + ".new"), text), file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
                }
            }
        }
    }
}
