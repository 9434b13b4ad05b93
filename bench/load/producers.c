/* Many producers in one thread: each holds one connection and one outstanding Produce request at acks=all, and
 * sends the next the moment the last is acknowledged. Every connection's request is built once, checksum included,
 * and sent again and again, so that the generator spends its time in send, recv and epoll_wait only.
 *
 *   producers HOST PORT TOPIC CONNECTIONS PARTITIONS RECORDS_PER_BATCH RECORD_BYTES WARMUP_S SECONDS REQUESTS
 *
 * Ends after SECONDS (after a warm-up that is not counted) or, if REQUESTS is not 0, after that many requests; then
 * waits for the answers still due, and prints one line of JSON. Any error code in any answer ends it with status 1. */
#define _GNU_SOURCE
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>

typedef struct {
    int fd;
    uint8_t *request;
    size_t request_size, sent;
    uint8_t answer[1024];
    size_t received;
    double sent_at;
    int waiting;
} Connection;

static struct {
    const char *topic;
    int records_per_batch, record_bytes;
    int64_t requests_max, issued, acknowledged, measured, last_offset;
    double measure_from, measure_to;
    uint32_t *latencies_us;
    size_t latencies_room;
} run;

static void build_request(Connection *c, int partition, unsigned seed) {
    size_t batch_room = 100 + (size_t)run.records_per_batch * ((size_t)run.record_bytes + 20);
    Writer w;
    w.start = w.at = c->request = allocate(batch_room + 300 + strlen(run.topic));
    begin_request(&w, 0, 7);
    put_int(&w, -1, 2); /* no transactional id */
    put_int(&w, -1, 2); /* acks=all */
    put_int(&w, 30000, 4);
    put_int(&w, 1, 4);
    put_string(&w, run.topic);
    put_int(&w, 1, 4);
    put_int(&w, partition, 4);
    uint8_t *size = w.at;
    put_int(&w, 0, 4);
    put_batch(&w, run.records_per_batch, run.record_bytes, seed);
    patch_int32(size, (uint32_t)(w.at - size - 4));
    c->request_size = end_request(&w);
}

static void watch(int epoll, int operation, Connection *c, uint32_t events) {
    struct epoll_event event = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll, operation, c->fd, &event)) fail("epoll_ctl: %m");
}

/* Sends what is left of the request; asks for EPOLLOUT only if the socket is full. */
static void send_rest(int epoll, Connection *c, int was_blocked) {
    while (c->sent < c->request_size) {
        ssize_t n = send(c->fd, c->request + c->sent, c->request_size - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            if (!was_blocked) watch(epoll, EPOLL_CTL_MOD, c, EPOLLIN | EPOLLOUT);
            return;
        }
        if (n < 0) fail("send: %m");
        c->sent += (size_t)n;
    }
    if (was_blocked) watch(epoll, EPOLL_CTL_MOD, c, EPOLLIN);
}

static void send_next(int epoll, Connection *c) {
    double now = now_seconds();
    if (run.requests_max ? run.issued >= run.requests_max : now >= run.measure_to) return;
    run.issued++;
    c->waiting = 1;
    c->sent = 0;
    c->sent_at = now;
    send_rest(epoll, c, 0);
}

static void check_answer(Connection *c, size_t size) {
    Reader r = {c->answer + 4, c->answer + size};
    if (get_int(&r, 4) != 1) fail("an answer to a request that was not asked");
    if (get_int(&r, 4) != 1) fail("an answer for other than one topic");
    skip(&r, get_int(&r, 2));
    if (get_int(&r, 4) != 1) fail("an answer for other than one partition");
    skip(&r, 4);
    int64_t error = get_int(&r, 2), offset = get_int(&r, 8);
    if (error) fail("the broker answered error code %lld", (long long)error);
    if (offset < 0) fail("the broker acknowledged at offset %lld", (long long)offset);
    if (offset > run.last_offset) run.last_offset = offset;
}

static void note_latency(double sent_at, double now) {
    if ((size_t)run.measured == run.latencies_room) {
        run.latencies_room = run.latencies_room ? run.latencies_room * 2 : 1 << 16;
        run.latencies_us = realloc(run.latencies_us, run.latencies_room * sizeof *run.latencies_us);
        if (!run.latencies_us) fail("out of memory");
    }
    run.latencies_us[run.measured++] = (uint32_t)((now - sent_at) * 1e6);
}

static void receive(int epoll, Connection *c) {
    ssize_t n = recv(c->fd, c->answer + c->received, sizeof c->answer - c->received, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) fail(n ? "recv: %m" : "the broker closed a connection");
    c->received += (size_t)n;
    if (c->received < 4) return;
    Reader head = {c->answer, c->answer + 4};
    size_t size = 4 + (size_t)get_int(&head, 4);
    if (size > sizeof c->answer) fail("an answer of %zu bytes", size);
    if (c->received < size) return;
    if (!c->waiting || c->received > size) fail("an answer that nobody waits for");
    check_answer(c, size);
    c->received = 0;
    c->waiting = 0;
    run.acknowledged++;
    double now = now_seconds();
    if (now >= run.measure_from && (run.requests_max || now < run.measure_to)) note_latency(c->sent_at, now);
    send_next(epoll, c);
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double quantile_ms(double q) {
    if (!run.measured) return 0;
    size_t index = (size_t)(q * (double)(run.measured - 1));
    return run.latencies_us[index] / 1e3;
}

int main(int argc, char **argv) {
    if (argc != 11) fail("usage: see the head of producers.c");
    run.topic = argv[3];
    int connections = atoi(argv[4]), partitions = atoi(argv[5]);
    run.records_per_batch = atoi(argv[6]);
    run.record_bytes = atoi(argv[7]);
    run.requests_max = atoll(argv[10]);
    run.last_offset = -1;

    int epoll = epoll_create1(0);
    Connection *all = allocate(sizeof *all * (size_t)connections);
    memset(all, 0, sizeof *all * (size_t)connections);
    for (int i = 0; i < connections; i++) {
        all[i].fd = dial(argv[1], atoi(argv[2]));
        greet(all[i].fd);
        fcntl(all[i].fd, F_SETFL, O_NONBLOCK);
        build_request(&all[i], i % partitions, (unsigned)i + 1);
        watch(epoll, EPOLL_CTL_ADD, &all[i], EPOLLIN);
    }
    double start = now_seconds(), cpu = cpu_seconds(), seconds = atof(argv[9]), last_answer = start;
    run.measure_from = run.requests_max ? start : start + atof(argv[8]);
    run.measure_to = run.measure_from + seconds;
    for (int i = 0; i < connections; i++) send_next(epoll, &all[i]);

    struct epoll_event events[256];
    while (run.acknowledged < run.issued) {
        int n = epoll_wait(epoll, events, 256, 1000);
        if (n < 0 && errno != EINTR) fail("epoll_wait: %m");
        if (now_seconds() - last_answer > 60) fail("no answer in 60 s");
        for (int i = 0; i < n; i++) {
            Connection *c = events[i].data.ptr;
            if (events[i].events & EPOLLOUT) send_rest(epoll, c, 1);
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) receive(epoll, c);
        }
        if (n > 0) last_answer = now_seconds();
    }
    if (run.requests_max) seconds = now_seconds() - start;
    qsort(run.latencies_us, (size_t)run.measured, sizeof *run.latencies_us, ascending);
    printf("{\"publishes\": %lld, \"seconds\": %.6f, \"total\": %lld, \"total_seconds\": %.6f, \"request_bytes\": %zu, "
           "\"p50_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f, \"cpu\": %.3f, \"last_offset\": %lld}\n",
           (long long)run.measured, seconds, (long long)run.acknowledged, now_seconds() - start,
           all[0].request_size, quantile_ms(0.5), quantile_ms(0.99), quantile_ms(1), cpu_seconds() - cpu,
           (long long)run.last_offset);
    return 0;
}
