/* The little of MQTT 3.1.1 and of the NATS text protocol that publishers and subscribers need, side by side: what
 * differs between the two is here, so that pubsub.c measures both in the same way.
 *
 * A payload begins with the message's number and the time at which it was due, both as the machine has them: the
 * subscribers are on the same machine. */
#ifndef BENCH_PUBSUB_H
#define BENCH_PUBSUB_H

#include "wire.h"

#define PAYLOAD_HEAD 16 /* the least payload: a number and a time */
#define FRAME_HEAD_MAX 300
#define PACKET_IDS 65535

typedef struct {
    int nats, qos;
} Dialect;

/* --- opening -------------------------------------------------------------------------------------------------- */

static void send_all(int fd, const void *data, size_t size) {
    for (const uint8_t *at = data; size;) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n < 0) fail("send: %m");
        at += n;
        size -= (size_t)n;
    }
}

static void read_line(int fd, char *line, size_t room) {
    size_t used = 0;
    do {
        if (used + 1 >= room) fail("a line of over %zu bytes", room);
        receive_exactly(fd, (uint8_t *)line + used++, 1);
    } while (line[used - 1] != '\n');
    line[used] = 0;
}

static void open_nats(int fd, const char *topic) {
    char text[16384];
    read_line(fd, text, sizeof text);
    if (strncmp(text, "INFO ", 5)) fail("this is no NATS server: %s", text);
    int size = snprintf(text, sizeof text, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\n");
    if (topic) size += snprintf(text + size, sizeof text - (size_t)size, "SUB %s 1\r\n", topic);
    size += snprintf(text + size, sizeof text - (size_t)size, "PING\r\n");
    send_all(fd, text, (size_t)size);
    read_line(fd, text, sizeof text);
    if (strcmp(text, "PONG\r\n")) fail("the NATS server answered %s", text);
}

static void open_mqtt(int fd, Dialect dialect, const char *client_id, const char *topic) {
    uint8_t frames[1024], answer[9];
    Writer w = {frames, frames};
    put_int(&w, 0x10, 1);
    put_int(&w, (int64_t)(12 + strlen(client_id)), 1);
    put_string(&w, "MQTT");
    put_int(&w, 4, 1);
    put_int(&w, 2, 1); /* clean session */
    put_int(&w, 0, 2); /* no keep-alive */
    put_string(&w, client_id);
    if (topic) {
        put_int(&w, 0x82, 1);
        put_int(&w, (int64_t)(5 + strlen(topic)), 1);
        put_int(&w, 1, 2);
        put_string(&w, topic);
        put_int(&w, dialect.qos, 1);
    }
    send_all(fd, frames, (size_t)(w.at - frames));
    receive_exactly(fd, answer, topic ? 9 : 4);
    if (answer[0] != 0x20 || answer[3]) fail("CONNECT was refused with code %d", answer[3]);
    if (topic && (answer[4] != 0x90 || answer[8] != dialect.qos)) fail("SUBSCRIBE was answered %d", answer[8]);
}

/* A connection that is accepted, and subscribed if there is a topic, so that none overflows the broker's backlog. */
static int open_client(const char *host, int port, Dialect dialect, const char *client_id, const char *topic) {
    int fd = dial(host, port);
    if (dialect.nats)
        open_nats(fd, topic);
    else
        open_mqtt(fd, dialect, client_id, topic);
    return fd;
}

/* --- publishing: frames are built once, then only numbers and times change ------------------------------------ */

typedef struct {
    uint8_t *bytes;
    size_t frame_size, payload_at, id_at; /* within a frame; id_at is 0 without a packet identifier */
    int count;
} Frames;

static size_t put_publish_head(uint8_t *at, Dialect dialect, const char *topic, int payload_bytes) {
    if (dialect.nats) return (size_t)sprintf((char *)at, "PUB %s %d\r\n", topic, payload_bytes);
    Writer w = {at, at};
    put_int(&w, 0x30 | dialect.qos << 1, 1);
    size_t length = 2 + strlen(topic) + (dialect.qos ? 2 : 0) + (size_t)payload_bytes;
    for (; length >= 0x80; length >>= 7) put_int(&w, (int64_t)(length & 0x7f) | 0x80, 1);
    put_int(&w, (int64_t)length, 1);
    put_string(&w, topic);
    if (dialect.qos) put_int(&w, 0, 2);
    return (size_t)(w.at - at);
}

static Frames build_frames(Dialect dialect, const char *topic, int payload_bytes, int count) {
    uint8_t head[FRAME_HEAD_MAX];
    size_t head_size = put_publish_head(head, dialect, topic, payload_bytes);
    Frames frames = {.payload_at = head_size, .count = count};
    frames.frame_size = head_size + (size_t)payload_bytes + (dialect.nats ? 2 : 0);
    frames.id_at = !dialect.nats && dialect.qos ? head_size - 2 : 0;
    frames.bytes = allocate(frames.frame_size * (size_t)count);
    for (int i = 0; i < count; i++) {
        uint8_t *frame = frames.bytes + (size_t)i * frames.frame_size;
        memcpy(frame, head, head_size);
        memset(frame + head_size, 'x', (size_t)payload_bytes);
        if (dialect.nats) memcpy(frame + head_size + payload_bytes, "\r\n", 2);
    }
    return frames;
}

static int packet_id(int64_t number) { return (int)(number % PACKET_IDS) + 1; }

static void stamp(Frames *frames, int index, int64_t number, double due) {
    uint8_t *frame = frames->bytes + (size_t)index * frames->frame_size;
    memcpy(frame + frames->payload_at, &number, 8);
    memcpy(frame + frames->payload_at + 8, &due, 8);
    if (frames->id_at) {
        int id = packet_id(number);
        frame[frames->id_at] = (uint8_t)(id >> 8);
        frame[frames->id_at + 1] = (uint8_t)id;
    }
}

/* --- reading: one event at a time ----------------------------------------------------------------------------- */

typedef enum { NOTHING, DELIVERY, PUBLISH_ACKNOWLEDGED, PING } Kind;

typedef struct {
    Kind kind;
    const uint8_t *payload;
    size_t payload_size;
    int packet_id; /* 0 if it needs no acknowledgement */
} Event;

/* Reads a frame that begins at `at`; returns its end, or NULL while it is not all there. */
static const uint8_t *next_mqtt(const uint8_t *at, const uint8_t *end, Event *event) {
    if (end - at < 2) return NULL;
    const uint8_t *body = at + 1;
    size_t length = 0;
    for (int shift = 0;; shift += 7) {
        if (body == end) return NULL;
        length |= (size_t)(*body & 0x7f) << shift;
        if (!(*body++ & 0x80)) break;
    }
    if ((size_t)(end - body) < length) return NULL;
    const uint8_t *frame_end = body + length;
    int type = *at >> 4, qos = *at >> 1 & 3;
    event->packet_id = 0;
    if (type == 3) {
        body += 2 + (body[0] << 8 | body[1]);
        if (qos) {
            event->packet_id = body[0] << 8 | body[1];
            body += 2;
        }
        event->kind = DELIVERY;
        event->payload = body;
        event->payload_size = (size_t)(frame_end - body);
    } else if (type == 4) {
        event->kind = PUBLISH_ACKNOWLEDGED;
        event->packet_id = body[0] << 8 | body[1];
    } else
        fail("an MQTT packet of type %d that nobody asked for", type);
    return frame_end;
}

static const uint8_t *next_nats(const uint8_t *at, const uint8_t *end, Event *event) {
    const uint8_t *newline = memchr(at, '\n', (size_t)(end - at));
    if (!newline) return NULL;
    event->packet_id = 0;
    if (*at == 'M') { /* MSG subject sid size */
        size_t size = 0, unit = 1;
        for (const uint8_t *digit = newline - 2; *digit != ' '; digit--, unit *= 10) size += (size_t)(*digit - '0') * unit;
        if ((size_t)(end - newline - 1) < size + 2) return NULL;
        event->kind = DELIVERY;
        event->payload = newline + 1;
        event->payload_size = size;
        return newline + 1 + size + 2;
    }
    if (*at == '-') fail("the NATS server says %.*s", (int)(newline - at), at);
    event->kind = at[1] == 'I' ? PING : NOTHING;
    return newline + 1;
}

static const uint8_t *next_event(Dialect dialect, const uint8_t *at, const uint8_t *end, Event *event) {
    return dialect.nats ? next_nats(at, end, event) : next_mqtt(at, end, event);
}

#endif
