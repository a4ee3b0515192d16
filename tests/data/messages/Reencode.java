// Reads lines "API_KEY SIDE VERSION HEX", has Kafka's own generated classes read the bytes and write them again, and
// prints what came out as a line of JSON with Kafka's own picture of the content. How to run it: README.md.

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;

public class Reencode {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[2]);
            ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[0]));
            ApiMessage message = words[1].equals("request") ? type.newRequest() : type.newResponse();
            message.read(new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(words[3]))), version);
            ByteBuffer written = MessageUtil.toByteBuffer(message, version);
            byte[] bytes = new byte[written.remaining()];
            written.get(bytes);
            Class<?> converter = Class.forName(message.getClass().getName() + "JsonConverter");
            JsonNode content = (JsonNode) converter
                .getMethod("write", message.getClass(), short.class)
                .invoke(null, message, version);
            System.out.printf(
                "{\"api\": %s, \"side\": \"%s\", \"version\": %d, \"hex\": \"%s\", \"content\": %s}%n",
                words[0], words[1], version, HexFormat.of().formatHex(bytes), content);
        }
    }
}
