import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * Runs the scenarios that it is told, a few at a time, and prints one JSON line for each:
 * {"name": …, "ok": …, "seconds": …, "error": …}. Arguments: bootstrap, then names.
 */
public final class Scenarios {
    private static final int AT_A_TIME = 4;
    private static final int TIMEOUT_S = Kit.IN_CHAOS ? 240 : 120;

    interface Body {
        void run(Kit kit) throws Exception;
    }

    private Scenarios() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, Body> known = new LinkedHashMap<>();
        ProduceScenarios.register(known);
        ConsumeScenarios.register(known);
        GroupScenarios.register(known);
        AdminScenarios.register(known);
        EdgeScenarios.register(known);
        TransactionScenarios.register(known);
        List<String> wanted = new ArrayList<>(List.of(arguments).subList(1, arguments.length));
        ExecutorService pool = Executors.newFixedThreadPool(AT_A_TIME);
        List<Future<?>> running = new ArrayList<>();
        for (String name : wanted) {
            running.add(pool.submit(() -> runOne(name, known.get(name), arguments[0])));
        }
        for (Future<?> one : running) {
            one.get();
        }
        System.exit(0); // a scenario that hung holds its thread
    }

    private static void runOne(String name, Body body, String bootstrap) {
        long started = System.nanoTime();
        String error = null;
        ExecutorService alone = Executors.newSingleThreadExecutor();
        try (Kit kit = new Kit(bootstrap, name)) {
            if (body == null) {
                throw new AssertionError("no scenario has this name");
            }
            alone.submit(() -> { body.run(kit); return null; }).get(TIMEOUT_S, TimeUnit.SECONDS);
        } catch (ExecutionException failed) {
            error = trace(failed.getCause());
        } catch (TimeoutException late) {
            error = "did not end within " + TIMEOUT_S + " s";
        } catch (Throwable failed) {
            error = trace(failed);
        }
        alone.shutdownNow();
        double seconds = (System.nanoTime() - started) / 1e9;
        String line = "{\"name\": %s, \"ok\": %s, \"seconds\": %.2f, \"error\": %s}";
        synchronized (System.out) {
            System.out.println(
                String.format(line, quote(name), error == null, seconds, quote(error)));
        }
    }

    private static String trace(Throwable failed) {
        StringBuilder text = new StringBuilder(failed.toString());
        for (StackTraceElement frame : failed.getStackTrace()) {
            if (frame.getClassName().endsWith("Scenarios") || frame.getClassName().equals("Kit")) {
                text.append("\n  at ").append(frame);
            }
        }
        return failed.getCause() == null ? text.toString() : text + "\ncaused by " + failed.getCause();
    }

    private static String quote(String text) {
        if (text == null) {
            return "null";
        }
        StringBuilder quoted = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ') {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
