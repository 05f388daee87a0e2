import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Duration;
import java.util.List;
import java.util.Map;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Who changed a row, through millrace: writes a row with a context, and reads it. Needs PostgreSQL's JDBC driver, Kafka's client, and
 * context.headers = ["traceparent", "user"]. With OpenTelemetry's Java agent, traceparent is that of the current span, and the agent reads it.
 *
 * java Trace write jdbc:postgresql:shop "INSERT INTO orders (id) VALUES (1)" 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
 * java Trace read localhost:9092 shop.public.orders
 */
public final class Trace {
    private static void write(String url, String statement, String traceparent) throws SQLException {
        try (Connection connection = DriverManager.getConnection(url)) {
            connection.setAutoCommit(false); // the context and the rows are one transaction
            try (var say = connection.prepareStatement("SELECT pg_logical_emit_message(true, 'millrace.context', ?)");
                    var work = connection.createStatement()) {
                say.setString(1, "{\"user\":\"u-17\",\"traceparent\":\"" + traceparent + "\"}");
                say.execute();
                work.execute(statement);
            }
            connection.commit();
        }
    }

    private static String text(ConsumerRecord<String, String> record, String name) {
        Header header = record.headers().lastHeader(name);
        return header == null ? "-" : new String(header.value(), StandardCharsets.UTF_8);
    }

    private static void read(String brokers, String topic) {
        Map<String, Object> options = Map.of("bootstrap.servers", brokers, "group.id", "Trace", "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (true) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.println(record.key() + " " + text(record, "user") + " " + text(record, "traceparent"));
                }
            }
        }
    }

    public static void main(String[] args) throws SQLException {
        if (args[0].equals("write")) {
            write(args[1], args[2], args[3]);
        } else {
            read(args[1], args[2]);
        }
    }
}
