package kafkapy.old;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.common.protocol.Errors;

/** Answers one JSON request a line from standard input with one JSON line, through an old release's clients. */
public final class Main {
    private static final ObjectMapper JSON = new ObjectMapper();

    private Main() { }

    /** Arguments: the name of a Clients class, and the broker's address. */
    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        Clients clients = (Clients) Class.forName(arguments[0]).getConstructor(String.class).newInstance(arguments[1]);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            JsonNode request = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("result", JSON.valueToTree(clients.handle(request)));
            } catch (Exception failure) {
                Throwable reason = failure;
                while (reason instanceof ExecutionException && reason.getCause() != null) {
                    reason = reason.getCause();
                }
                answer.put("error", reason instanceof Refused refused ? refused.code : Errors.forException(reason).code());
                answer.put("message", reason.toString());
            }
            out.println(JSON.writeValueAsString(answer));
            out.flush();
        }
        clients.close();
    }
}
