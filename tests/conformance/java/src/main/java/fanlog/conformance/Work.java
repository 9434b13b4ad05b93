package fanlog.conformance;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** What a request asks for: producing, reading, offsets by time. */
final class Work {
    static final Duration PATIENCE = Duration.ofSeconds(20);

    private Work() {}

    static byte[] bytes(String field) {
        return field.equals("-") ? null : Base64.getDecoder().decode(field);
    }

    static String field(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }

    static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, Map<String, Object> options) {
        Map<String, Object> all = new HashMap<>(options);
        all.put("bootstrap.servers", bootstrap);
        all.put("enable.auto.commit", false);
        all.put("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    /** bootstrap, topic, compression, idempotent, then for each record: partition:time:key:value:name:value... */
    static String produce(List<String> arguments) throws Exception {
        Map<String, Object> options = new HashMap<>();
        options.put("bootstrap.servers", arguments.get(0));
        options.put("compression.type", arguments.get(2));
        options.put("enable.idempotence", Boolean.valueOf(arguments.get(3)));
        options.put("acks", "all");
        options.put("linger.ms", 5);
        options.put("max.request.size", 10_000_000);
        try (var producer = new KafkaProducer<>(options, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String record : arguments.subList(4, arguments.size())) {
                sent.add(producer.send(record(arguments.get(1), record.split(":", -1))));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                one.get();
            }
            return String.valueOf(sent.size());
        }
    }

    private static ProducerRecord<byte[], byte[]> record(String topic, String[] parts) {
        Long time = parts[1].equals("-") ? null : Long.valueOf(parts[1]);
        int partition = Integer.parseInt(parts[0]);
        var record = new ProducerRecord<>(topic, partition, time, bytes(parts[2]), bytes(parts[3]));
        for (int at = 4; at < parts.length; at += 2) {
            record.headers().add(new String(bytes(parts[at])), bytes(parts[at + 1]));
        }
        return record;
    }

    static void say(String id, ConsumerRecord<byte[], byte[]> record) {
        List<String> fields = new ArrayList<>(List.of(
                "record",
                String.valueOf(record.partition()),
                String.valueOf(record.offset()),
                String.valueOf(record.timestamp()),
                field(record.key()),
                field(record.value())));
        for (Header header : record.headers()) {
            fields.add(field(header.key().getBytes()));
            fields.add(field(header.value()));
        }
        Driver.say(id, fields.toArray(new String[0]));
    }

    /** bootstrap, topic, count, time or "-", then the partitions. */
    static void read(String id, List<String> arguments) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (String number : arguments.subList(4, arguments.size())) {
            partitions.add(new TopicPartition(arguments.get(1), Integer.parseInt(number)));
        }
        try (var consumer = consumer(arguments.get(0), Map.of())) {
            consumer.assign(partitions);
            if (!arguments.get(3).equals("-")) {
                Map<TopicPartition, Long> asked = new HashMap<>();
                partitions.forEach(partition -> asked.put(partition, Long.valueOf(arguments.get(3))));
                consumer.offsetsForTimes(asked).forEach((partition, found) -> consumer.seek(partition, found.offset()));
            }
            long deadline = System.nanoTime() + PATIENCE.toNanos();
            int left = Integer.parseInt(arguments.get(2));
            while (left > 0 && System.nanoTime() < deadline) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    say(id, record);
                    left--;
                }
            }
        }
    }

    /** bootstrap, topic, partition, time. */
    static String offsetForTime(List<String> arguments) {
        TopicPartition asked = new TopicPartition(arguments.get(1), Integer.parseInt(arguments.get(2)));
        try (var consumer = consumer(arguments.get(0), Map.of())) {
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(asked, Long.valueOf(arguments.get(3)))).get(asked);
            return found == null ? "-" : String.valueOf(found.offset());
        }
    }
}
