// Reads lines "SECRET CIPHER KEY_LENGTH ITERATIONS KEY_FACTORY PASSWORD" (KEY_FACTORY "-": the default), has Kafka's
// EncryptingPasswordEncoder encrypt each password, and prints a line of JSON. A seventh word is a text to decrypt instead
// of the password. How to run it: README.md.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.security.PasswordEncoder;

public class Encode {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", -1);
            String factory = words[4].equals("-") ? null : words[4];
            PasswordEncoder encoder = PasswordEncoder.encrypting(
                new Password(words[0]), factory, words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            if (words.length > 6) {
                System.out.println(encoder.decode(words[6]).value());
                continue;
            }
            System.out.printf(
                "{\"secret\": \"%s\", \"password\": \"%s\", \"encoded\": \"%s\"}%n",
                words[0], words[5], encoder.encode(new Password(words[5])));
        }
    }
}
