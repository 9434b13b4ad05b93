package fanlog.conformance;

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.common.TopicPartition;

/** A group member that polls, tells what it got, and commits, until it is closed. */
final class Member implements ConsumerRebalanceListener {
    private final String id;
    private final String topic;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final CountDownLatch ended = new CountDownLatch(1);
    private volatile boolean closing;

    /** bootstrap, group, topic, instance id or "-", whether cooperative, fetch wait, session time-out. */
    Member(String id, List<String> arguments) {
        this.id = id;
        topic = arguments.get(2);
        Map<String, Object> options = new HashMap<>();
        options.put("group.id", arguments.get(1));
        if (!arguments.get(3).equals("-")) {
            options.put("group.instance.id", arguments.get(3));
        }
        Class<?> assignor = Boolean.parseBoolean(arguments.get(4)) ? CooperativeStickyAssignor.class : RangeAssignor.class;
        options.put("partition.assignment.strategy", List.of(assignor));
        options.put("fetch.max.wait.ms", Integer.valueOf(arguments.get(5)));
        options.put("session.timeout.ms", Integer.valueOf(arguments.get(6)));
        options.put("heartbeat.interval.ms", 100);
        consumer = Work.consumer(arguments.get(0), options);
    }

    void run() {
        try (consumer) {
            consumer.subscribe(List.of(topic), this);
            while (!closing) {
                var records = consumer.poll(Duration.ofMillis(50));
                if (!records.isEmpty()) {
                    records.forEach(record -> Work.say(id, record));
                    consumer.commitSync();
                }
            }
        } finally {
            ended.countDown();
        }
    }

    void close() throws InterruptedException {
        closing = true;
        if (!ended.await(Work.PATIENCE.toSeconds(), TimeUnit.SECONDS)) {
            throw new IllegalStateException("the member did not close");
        }
    }

    private static String numbers(Collection<TopicPartition> partitions) {
        return partitions.stream().map(each -> String.valueOf(each.partition())).collect(Collectors.joining(","));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> added) {
        Driver.say(id, "assigned", numbers(consumer.assignment()));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> revoked) {
        Driver.say(id, "revoked", numbers(revoked));
    }
}
