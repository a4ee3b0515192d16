package kafkapy.interop;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Base64;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs main methods of Kafka's command line tools, one after the other in one JVM, which takes seconds to start.
 *
 * A line on standard input is a class name and its arguments, separated by tabs. The answer is a line with the exit
 * code, and what was printed to standard output and to standard error, both in base64.
 */
public final class Tools {
    /** How a tool ends that calls Exit.exit: its code is kept, and the tool is left. */
    private static final class Ended extends Error {
        Ended() {
            super("exit", null, false, false);
        }
    }

    private static Integer code;

    private Tools() {}

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((status, message) -> {
            if (code == null) code = status; // a tool that catches the Ended goes on and may call it again
            throw new Ended();
        });
        // One pair of streams for all tools: Scala's Console keeps the first System.out that it sees.
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        System.setOut(new PrintStream(out, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(err, true, StandardCharsets.UTF_8));
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = calls.readLine(); line != null; line = calls.readLine()) {
            String[] words = line.split("\t", -1);
            out.reset();
            err.reset();
            run(words[0], Arrays.copyOfRange(words, 1, words.length));
            System.out.flush();
            System.err.flush();
            answers.println(code + " " + base64(out) + " " + base64(err) + " .");
            answers.flush();
        }
    }

    private static void run(String tool, String[] args) throws Exception {
        code = null;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Ended)) {
                failure.getCause().printStackTrace();
                code = 1; // as a JVM ends whose main method throws
            }
        }
        if (code == null) code = 0;
    }

    private static String base64(ByteArrayOutputStream bytes) {
        return Base64.getEncoder().encodeToString(bytes.toByteArray());
    }
}
