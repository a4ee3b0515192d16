// Asks Kafka's own AclAuthorizer, without ZooKeeper: fills it by updateCache, as Kafka's AuthorizerBenchmark does. Reads
// the lines that tests/security/acls/cases.py describes, and prints one character for each question: + allowed, - denied.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import kafka.security.authorizer.AclAuthorizer;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import scala.jdk.javaapi.CollectionConverters;

public class AclOracle {
    private static AclAuthorizer authorizer;

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8), 1 << 20);
        PrintStream output = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        StringBuilder answers = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "new" -> authorizer = created(words[1], Boolean.parseBoolean(words[2]));
                case "set" -> change(words);
                case "may" -> answers.append(mark(mayDo(words)));
                case "some" -> answers.append(mark(mayDoOnSome(words)));
                case "end" -> {
                    output.println(answers);
                    answers.setLength(0);
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
        output.flush();
    }

    private static AclAuthorizer created(String superUsers, boolean everyone) throws Exception {
        AclAuthorizer made = new AclAuthorizer();
        Set<KafkaPrincipal> users = new HashSet<>();
        for (String user : superUsers.split(";")) {
            if (!user.isEmpty()) {
                users.add(SecurityUtils.parseKafkaPrincipal(user));
            }
        }
        set(made, "superUsers", CollectionConverters.asScala(users).toSet());
        set(made, "shouldAllowEveryoneIfNoAclIsFound", everyone);
        return made;
    }

    private static void set(AclAuthorizer made, String name, Object value) throws Exception {
        Field field = AclAuthorizer.class.getDeclaredField(name);
        field.setAccessible(true);
        field.set(made, value);
    }

    private static void change(String[] words) {
        ResourcePattern pattern = new ResourcePattern(
            ResourceType.valueOf(words[1]), words[2], PatternType.valueOf(words[3]));
        Set<AclEntry> entries = new HashSet<>();
        for (int at = 4; at < words.length; at += 4) {
            entries.add(new AclEntry(new AccessControlEntry(
                words[at], words[at + 1], AclOperation.valueOf(words[at + 2]), AclPermissionType.valueOf(words[at + 3]))));
        }
        authorizer.updateCache(
            pattern, new AclAuthorizer.VersionedAcls(CollectionConverters.asScala(entries).toSet(), 1));
    }

    private static boolean mayDo(String[] words) throws Exception {
        Action action = new Action(
            AclOperation.valueOf(words[3]),
            new ResourcePattern(ResourceType.valueOf(words[4]), words[5], PatternType.LITERAL),
            1, true, true);
        return authorizer.authorize(context(words[1], words[2]), List.of(action)).get(0) == AuthorizationResult.ALLOWED;
    }

    private static boolean mayDoOnSome(String[] words) throws Exception {
        AuthorizationResult result = authorizer.authorizeByResourceType(
            context(words[1], words[2]), AclOperation.valueOf(words[3]), ResourceType.valueOf(words[4]));
        return result == AuthorizationResult.ALLOWED;
    }

    private static RequestContext context(String principal, String address) throws Exception {
        return new RequestContext(
            new RequestHeader(ApiKeys.PRODUCE, (short) 9, "client", 1), "1", InetAddress.getByName(address),
            SecurityUtils.parseKafkaPrincipal(principal), new ListenerName("PLAINTEXT"), SecurityProtocol.PLAINTEXT,
            ClientInformation.EMPTY, false);
    }

    private static char mark(boolean allowed) {
        return allowed ? '+' : '-';
    }
}
