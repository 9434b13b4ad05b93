/* One consumer that looks at nothing but the heads of batches: what is left is the broker's own speed, where kcat
 * would show its own. One outstanding Fetch, with the limits that librdkafka asks by default (1 MiB per partition).
 *
 *   fetcher HOST PORT TOPIC PARTITION RECORDS
 *
 * Reads from offset 0 until RECORDS records have come, in order and without a gap, and prints one line of JSON. */
#define _GNU_SOURCE
#include "wire.h"

static size_t build_request(uint8_t *buffer, const char *topic, int partition, int64_t offset) {
    Writer w = {buffer, buffer};
    begin_request(&w, 1, 11);
    put_int(&w, -1, 4);
    put_int(&w, 500, 4);
    put_int(&w, 1, 4);
    put_int(&w, 50 << 20, 4);
    put_int(&w, 0, 1);
    put_int(&w, 0, 4);
    put_int(&w, -1, 4); /* no fetch session */
    put_int(&w, 1, 4);
    put_string(&w, topic);
    put_int(&w, 1, 4);
    put_int(&w, partition, 4);
    put_int(&w, -1, 4);
    put_int(&w, offset, 8);
    put_int(&w, -1, 8);
    put_int(&w, 1 << 20, 4);
    put_int(&w, 0, 4);
    put_string(&w, "");
    return end_request(&w);
}

/* The offset after the last whole batch of the answer. */
static int64_t read_answer(Reader r, int64_t offset) {
    skip(&r, 4 + 4); /* correlation id, throttle time */
    int64_t error = get_int(&r, 2);
    skip(&r, 4);
    if (error || get_int(&r, 4) != 1) fail("the broker answered error code %lld", (long long)error);
    skip(&r, get_int(&r, 2));
    skip(&r, 4 + 4);
    error = get_int(&r, 2);
    if (error) fail("the broker answered error code %lld", (long long)error);
    skip(&r, 8 + 8 + 8);
    int64_t aborted = get_int(&r, 4);
    if (aborted > 0) skip(&r, aborted * 16);
    skip(&r, 4);
    int64_t size = get_int(&r, 4);
    Reader batches = {r.at, r.at};
    skip(&r, size < 0 ? 0 : size);
    batches.end = r.at;
    while (batches.end - batches.at >= 61) {
        Reader head = batches;
        int64_t base = get_int(&head, 8), length = get_int(&head, 4);
        if (batches.end - head.at < length) break; /* the answer may end within a batch */
        skip(&head, 4 + 1 + 4 + 2);
        if (base != offset) fail("offset %lld came where %lld was due", (long long)base, (long long)offset);
        offset = base + get_int(&head, 4) + 1;
        skip(&batches, 12 + length);
    }
    return offset;
}

int main(int argc, char **argv) {
    if (argc != 6) fail("usage: see the head of fetcher.c");
    int fd = dial(argv[1], atoi(argv[2])), partition = atoi(argv[4]);
    int64_t records = atoll(argv[5]), offset = 0, bytes = 0, requests = 0, empty = 0;
    struct timeval patience = {.tv_sec = 30};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    size_t room = 64 << 20;
    uint8_t *answer = allocate(room), *request = allocate(1024 + strlen(argv[3]));
    double start = now_seconds(), cpu = cpu_seconds();
    while (offset < records) {
        size_t request_size = build_request(request, argv[3], partition, offset);
        if (send(fd, request, request_size, MSG_NOSIGNAL) != (ssize_t)request_size) fail("send: %m");
        receive_exactly(fd, answer, 4);
        Reader head = {answer, answer + 4};
        size_t size = (size_t)get_int(&head, 4);
        if (size > room) fail("an answer of %zu bytes", size);
        receive_exactly(fd, answer, size);
        int64_t next = read_answer((Reader){answer, answer + size}, offset);
        if (next == offset && ++empty > 20) fail("the broker has no more than %lld records", (long long)offset);
        offset = next;
        bytes += (int64_t)size;
        requests++;
    }
    double seconds = now_seconds() - start;
    printf("{\"records\": %lld, \"seconds\": %.6f, \"bytes\": %lld, \"requests\": %lld, \"cpu\": %.3f}\n", (long long)offset,
           seconds, (long long)bytes, (long long)requests, cpu_seconds() - cpu);
    return 0;
}
