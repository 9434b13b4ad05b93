/* The little of the Kafka protocol that the load generators need, built and read by hand so that the generator
 * costs far less than the broker under test. Requests are of versions without tagged fields (Produce 7, Fetch 11,
 * the ones that librdkafka 2.0 uses), which both Fanlog and Apache Kafka 4 answer. */
#ifndef BENCH_WIRE_H
#define BENCH_WIRE_H

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static void __attribute__((noreturn, format(printf, 1, 2))) fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static inline void *allocate(size_t size) {
    void *memory = malloc(size);
    if (!memory) fail("out of memory");
    return memory;
}

/* --- writing: a cursor that only moves forward; the caller sizes the buffer ------------------------------- */

typedef struct {
    uint8_t *start, *at;
} Writer;

static void put_int(Writer *w, int64_t value, int bytes) {
    for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) *w->at++ = (uint8_t)((uint64_t)value >> shift);
}
static void put_bytes(Writer *w, const void *data, size_t size) {
    memcpy(w->at, data, size);
    w->at += size;
}
static void put_string(Writer *w, const char *text) {
    put_int(w, (int64_t)strlen(text), 2);
    put_bytes(w, text, strlen(text));
}
static void put_varint(Writer *w, int64_t value) {
    uint64_t zigzag = ((uint64_t)value << 1) ^ (uint64_t)(value >> 63);
    for (; zigzag >= 0x80; zigzag >>= 7) *w->at++ = (uint8_t)(zigzag | 0x80);
    *w->at++ = (uint8_t)zigzag;
}
static void patch_int32(uint8_t *where, uint32_t value) {
    value = htonl(value);
    memcpy(where, &value, 4);
}

/* The header that every request begins with; its size is patched by `end_request`. */
static void begin_request(Writer *w, int api, int version) {
    put_int(w, 0, 4);
    put_int(w, api, 2);
    put_int(w, version, 2);
    put_int(w, 1, 4); /* one request at a time is outstanding, so they can all bear the same number */
    put_string(w, "bench");
}
static size_t end_request(Writer *w) {
    size_t size = (size_t)(w->at - w->start);
    patch_int32(w->start, (uint32_t)(size - 4));
    return size;
}

/* --- reading ------------------------------------------------------------------------------------------------ */

typedef struct {
    const uint8_t *at, *end;
} Reader;

static int64_t get_int(Reader *r, int bytes) {
    if (r->end - r->at < bytes) fail("the broker's answer is too short");
    uint64_t value = (r->at[0] & 0x80) ? ~(uint64_t)0 : 0;
    for (int i = 0; i < bytes; i++) value = value << 8 | *r->at++;
    return (int64_t)value;
}
static inline void skip(Reader *r, int64_t bytes) {
    if (bytes < 0 || r->end - r->at < bytes) fail("the broker's answer is too short");
    r->at += bytes;
}

/* --- record batches ----------------------------------------------------------------------------------------- */

static uint32_t crc32c(const uint8_t *data, size_t size) {
    static uint32_t table[256];
    if (!table[1])
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t c = i;
            for (int bit = 0; bit < 8; bit++) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
            table[i] = c;
        }
    uint32_t crc = ~0u;
    while (size--) crc = table[(crc ^ *data++) & 0xFF] ^ crc >> 8;
    return ~crc;
}

static int varint_size(int64_t value) {
    uint8_t scratch[10];
    Writer w = {scratch, scratch};
    put_varint(&w, value);
    return (int)(w.at - w.start);
}

/* A batch of `records` records without key, each with a value of `value_bytes`, in the layout of magic 2. */
static inline void put_batch(Writer *w, int records, int value_bytes, unsigned seed) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t millis = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    put_int(w, 0, 8);
    uint8_t *length = w->at;
    put_int(w, 0, 4);
    put_int(w, -1, 4);
    put_int(w, 2, 1);
    uint8_t *crc = w->at;
    put_int(w, 0, 4);
    put_int(w, 0, 2);
    put_int(w, records - 1, 4);
    put_int(w, millis, 8);
    put_int(w, millis, 8);
    put_int(w, -1, 8);
    put_int(w, -1, 2);
    put_int(w, -1, 4);
    put_int(w, records, 4);
    for (int i = 0; i < records; i++) {
        put_varint(w, 1 + 1 + varint_size(i) + 1 + varint_size(value_bytes) + value_bytes + 1);
        put_int(w, 0, 1);
        put_varint(w, 0);
        put_varint(w, i);
        put_varint(w, -1);
        put_varint(w, value_bytes);
        for (int b = 0; b < value_bytes; b++) {
            seed = seed * 1103515245u + 12345u;
            *w->at++ = (uint8_t)('a' + (seed >> 16) % 26);
        }
        put_varint(w, 0);
    }
    patch_int32(length, (uint32_t)(w->at - length - 4));
    patch_int32(crc, crc32c(crc + 4, (size_t)(w->at - crc - 4)));
}

/* --- sockets and clocks ------------------------------------------------------------------------------------- */

static inline int dial(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail("%s is not an IPv4 address", host);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0) fail("socket: %m");
    if (connect(fd, (struct sockaddr *)&address, sizeof address)) fail("connect: %m");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void receive_exactly(int fd, uint8_t *into, size_t size) {
    while (size) {
        ssize_t n = recv(fd, into, size, 0);
        if (n <= 0) fail(n ? "recv: %m" : "the broker closed the connection");
        into += n;
        size -= (size_t)n;
    }
}

/* Asks ApiVersions, as every client does first. Waiting for the answer before the next connection is dialled keeps
 * a thousand of them from overflowing the broker's backlog, which would cost each a second or more in SYN retries. */
static inline void greet(int fd) {
    uint8_t buffer[1 << 16];
    Writer w = {buffer, buffer};
    begin_request(&w, 18, 0);
    size_t size = end_request(&w);
    if (send(fd, buffer, size, MSG_NOSIGNAL) != (ssize_t)size) fail("send: %m");
    receive_exactly(fd, buffer, 4);
    Reader head = {buffer, buffer + 4};
    size = (size_t)get_int(&head, 4);
    if (size > sizeof buffer) fail("an answer of %zu bytes", size);
    receive_exactly(fd, buffer, size);
}

static inline double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

#endif
