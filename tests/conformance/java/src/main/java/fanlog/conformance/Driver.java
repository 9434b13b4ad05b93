package fanlog.conformance;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Does with the Java client what a line on standard input says, and answers on standard output.
 *
 * <p>A request is {@code id TAB verb TAB arguments}; it is answered by any number of {@code id TAB record TAB ...}
 * lines and then one {@code id TAB ok TAB ...} or {@code id TAB error TAB class TAB text}. A group member
 * keeps sending {@code id TAB assigned ...} and {@code id TAB record ...} under the id of its join until it
 * is closed. Bytes travel in base64, null as "-". Every request runs in a thread of its own, so one JVM
 * serves a whole test session, and several members at once.
 */
public final class Driver {
    private static final PrintStream OUT = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    private static final Map<String, Member> MEMBERS = new HashMap<>();

    private Driver() {}

    static void say(String id, String... fields) {
        synchronized (OUT) {
            OUT.print(id + "\t" + String.join("\t", fields) + "\n");
            OUT.flush();
        }
    }

    public static void main(String[] arguments) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool(work -> {
            Thread thread = new Thread(work);
            thread.setDaemon(true);
            return thread;
        });
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            List<String> fields = List.of(line.split("\t", -1));
            threads.submit(() -> answer(fields.get(0), fields.get(1), fields.subList(2, fields.size())));
        }
    }

    private static void answer(String id, String verb, List<String> arguments) {
        try {
            switch (verb) {
                case "produce" -> say(id, "ok", Work.produce(arguments));
                case "read" -> {
                    Work.read(id, arguments);
                    say(id, "ok");
                }
                case "offset_for_time" -> say(id, "ok", Work.offsetForTime(arguments));
                case "join" -> join(id, arguments);
                case "close" -> {
                    member(arguments.get(0)).close();
                    say(id, "ok");
                }
                default -> throw new IllegalArgumentException("no such verb: " + verb);
            }
        } catch (Throwable error) {
            Throwable cause = error instanceof java.util.concurrent.ExecutionException ? error.getCause() : error;
            say(id, "error", cause.getClass().getSimpleName(), String.valueOf(cause.getMessage()).replaceAll("\\s", " "));
        }
    }

    private static void join(String id, List<String> arguments) {
        Member member = new Member(id, arguments);
        synchronized (MEMBERS) {
            MEMBERS.put(id, member);
        }
        member.run();
    }

    private static Member member(String id) {
        synchronized (MEMBERS) {
            return MEMBERS.get(id);
        }
    }
}
