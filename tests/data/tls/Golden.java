import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Scanner;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Reads lines from standard input and prints each with what Java makes of it (README.md). Text is base64 of UTF-8, or -.
 * "name HEX": the name that the DER means; "rule RULES NAME": the principal that Kafka maps NAME to; ERROR if refused.
 */
public class Golden {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in, StandardCharsets.US_ASCII);
        while (lines.hasNextLine()) {
            String line = lines.nextLine();
            String[] words = line.split(" ");
            String result;
            try {
                result = encoded(words[0].equals("name")
                    ? new X500Principal(HexFormat.of().parseHex(words[1])).getName()
                    : SslPrincipalMapper.fromRules(decoded(words[1])).getName(decoded(words[2])));
            } catch (Exception | StackOverflowError error) {
                result = "ERROR:" + error.getClass().getSimpleName();
            }
            System.out.println(line + " " + result);
        }
    }

    private static String decoded(String text) {
        return text.equals("-") ? "" : new String(Base64.getDecoder().decode(text), StandardCharsets.UTF_8);
    }

    private static String encoded(String text) {
        return "=" + Base64.getEncoder().encodeToString(text.getBytes(StandardCharsets.UTF_8));
    }
}
