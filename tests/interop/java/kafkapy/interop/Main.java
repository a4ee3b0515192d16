package kafkapy.interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.protocol.Errors;

/** Answers one JSON request a line from standard input with one JSON line, through the Java Kafka clients. */
public final class Main {
    static final ObjectMapper JSON = new ObjectMapper();

    private Main() { }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        try (Administer admin = new Administer(arguments[0])) {
            Exchange exchange = new Exchange(arguments[0]);
            Transactions transactions = new Transactions(arguments[0]);
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                JsonNode request = JSON.readTree(line);
                ObjectNode answer = JSON.createObjectNode();
                try {
                    Object result = exchange.handle(request);
                    result = result == Exchange.NOT_MINE ? transactions.handle(request) : result;
                    answer.set("result", JSON.valueToTree(result == Exchange.NOT_MINE ? admin.handle(request) : result));
                } catch (Exception failure) {
                    Throwable reason = failure;
                    while ((reason instanceof ExecutionException || reason instanceof CompletionException) && reason.getCause() != null) {
                        reason = reason.getCause();
                    }
                    answer.put("error", Errors.forException(reason).code());
                    answer.put("message", reason.toString());
                }
                out.println(JSON.writeValueAsString(answer));
                out.flush();
            }
        }
    }
}
