import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * Kafka Connect's reader of JSON with schemas: makes structs of records, as each sink connector gets them, and writes these again. A line
 * of standard input is a record's key or value in base64; its answer is "same", what came out otherwise, or why it was refused.
 */
class Reader {
    public static void main(String[] arguments) throws Exception {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "true"), false);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line; (line = lines.readLine()) != null;) {
            byte[] bytes = Base64.getDecoder().decode(line);
            try {
                SchemaAndValue read = converter.toConnectData("topic", bytes);
                byte[] written = converter.fromConnectData("topic", read.schema(), read.value());
                System.out.println(Arrays.equals(bytes, written) ? "same" : "other: " + new String(written, StandardCharsets.UTF_8));
            } catch (RuntimeException refused) {
                System.out.println("refused: " + refused.getMessage().replace('\n', ' '));
            }
        }
    }
}
