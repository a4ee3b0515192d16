package kafkapy.interop;

import java.io.FileReader;
import java.io.IOException;
import java.io.Reader;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/** The properties for TLS and SASL of all clients: those of the file that INTEROP_JAVA_PROPERTIES names, if it does. */
final class Security {
    private Security() {}

    static Map<String, Object> properties() {
        Map<String, Object> found = new HashMap<>();
        String file = System.getenv("INTEROP_JAVA_PROPERTIES");
        if (file != null) {
            Properties properties = new Properties();
            try (Reader reader = new FileReader(file)) {
                properties.load(reader);
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
            properties.forEach((name, value) -> found.put((String) name, value));
        }
        return found;
    }
}
