/* Publishers and subscribers of one broker, by MQTT 3.1.1 or the NATS protocol. This process publishes; children,
 * one thread each, subscribe, and do little else than receive: they look at each message's frame and number, so that
 * one that is lost, doubled or out of order ends the run. What each process used of a core is part of the result.
 *
 *   pubsub MODE HOST PORT NAME=NUMBER ... topic=TEXT
 *
 *   rounds   every publisher sends `window` messages; when all subscribers have them all, the next round begins
 *   ingest   no subscribers; every publisher has `window` publishes of QoS 1 unacknowledged
 *   paced    one publisher sends `rate` messages a second, whatever happens; how long each took to every subscriber
 *   idle     `subscribers` connections with a subscription each; holds them until standard input ends
 *   stall    the subscribers do not read until `count` messages are published and a line comes on standard input
 *
 * With pairs=1 publisher i and subscriber i share the address topic/i; else all subscribers have the address topic.
 * broker=PID has the broker's CPU time measured over the same interval. Prints one line of JSON. */
#define _GNU_SOURCE
#include "pubsub.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define PROCESSES_MAX 8
#define LATENCY_US_MAX 4000000
#define BUFFER_BYTES (1 << 18)
#define PATIENCE_S 20.0
#define GRACE_S 1.0 /* for the last round to be completed once all is measured; a slow broker's is cut off */

typedef struct {
    int fd;
    uint8_t *held; /* the beginning of a frame whose end is still to come, or acknowledgements that did not fit */
    size_t held_size, unsent_size;
    uint8_t *unsent;
    int64_t next; /* subscriber: the number that is due; publisher: the number to be acknowledged next */
    int64_t sent;
    Frames frames;
} Client;

/* What a subscribing process tells the publishing one. */
typedef struct {
    _Atomic int64_t received;
    uint32_t latencies[LATENCY_US_MAX + 1];
} Told;

static struct {
    const char *mode, *host, *topic;
    int port;
    Dialect dialect;
    int64_t publishers, subscribers, bytes, window, processes, pairs, rate, count, broker;
    double warmup, seconds;
    Told *told;                  /* one per subscribing process */
    pid_t children[PROCESSES_MAX];
    int rounds_done[2], control[2];
} run = {.publishers = 1, .subscribers = 0, .bytes = 100, .window = 1, .processes = 1, .seconds = 1};

static void address_of(char *text, size_t room, int64_t index) {
    if (run.pairs)
        snprintf(text, room, "%s%c%lld", run.topic, run.dialect.nats ? '.' : '/', (long long)index);
    else
        snprintf(text, room, "%s", run.topic);
}

static Client *open_clients(int64_t first, int64_t count, const char *kind, int subscribe) {
    Client *clients = calloc((size_t)count + 1, sizeof *clients);
    char address[200], client_id[64];
    for (int64_t i = 0; i < count; i++) {
        address_of(address, sizeof address, first + i);
        snprintf(client_id, sizeof client_id, "%s-%d-%lld", kind, getpid(), (long long)(first + i));
        clients[i].fd = open_client(run.host, run.port, run.dialect, client_id, subscribe ? address : NULL);
        if (!subscribe) clients[i].frames = build_frames(run.dialect, address, (int)run.bytes, (int)run.window);
    }
    return clients;
}

static void watch(int epoll, int fd, uint32_t events, void *pointer) {
    struct epoll_event event = {.events = events, .data.ptr = pointer};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event)) fail("epoll_ctl: %m");
}

/* --- subscribing ---------------------------------------------------------------------------------------------- */

typedef struct {
    Told *told;
    int64_t clients, round_end;
    int epoll;
} Subscribing;

static void note_delivery(Subscribing *s, Client *c, const Event *event, double now) {
    int64_t number;
    double due;
    memcpy(&number, event->payload, 8);
    if (event->payload_size != (size_t)run.bytes) fail("a payload of %zu bytes", event->payload_size);
    if (number != c->next) fail("message %lld came where %lld was due", (long long)number, (long long)c->next);
    c->next++;
    if (run.rate) {
        memcpy(&due, event->payload + 8, 8);
        double us = (now - due) * 1e6;
        if (due) s->told->latencies[us < 0 ? 0 : us > LATENCY_US_MAX ? LATENCY_US_MAX : (size_t)us]++;
    }
}

/* Sends acknowledgements; what the socket does not take waits, and the client is not read from meanwhile. */
static void send_answers(Subscribing *s, Client *c, const uint8_t *answers, size_t size) {
    ssize_t n = send(c->fd, answers, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN) fail("send: %m");
    if (n < 0) n = 0;
    size_t left = size - (size_t)n;
    uint8_t *kept = left ? memcpy(allocate(left), answers + n, left) : NULL;
    if (!left && !c->unsent_size) return;
    free(c->unsent);
    c->unsent = kept;
    c->unsent_size = left;
    struct epoll_event event = {.events = left ? EPOLLOUT : EPOLLIN, .data.ptr = c};
    if (epoll_ctl(s->epoll, EPOLL_CTL_MOD, c->fd, &event)) fail("epoll_ctl: %m");
}

static void receive(Subscribing *s, Client *c) {
    static uint8_t buffer[BUFFER_BYTES + 4096], answers[BUFFER_BYTES];
    if (c->held_size) memcpy(buffer, c->held, c->held_size);
    ssize_t n = recv(c->fd, buffer + c->held_size, BUFFER_BYTES, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) fail(n ? "recv: %m" : "the broker closed a subscriber's connection");
    const uint8_t *at = buffer, *end = buffer + c->held_size + n, *next;
    Writer w = {answers, answers};
    Event event;
    int64_t deliveries = 0;
    double now = run.rate ? now_seconds() : 0;
    while (at < end && (next = next_event(run.dialect, at, end, &event))) {
        if (event.kind == DELIVERY) {
            note_delivery(s, c, &event, now);
            deliveries++;
            if (event.packet_id) {
                put_int(&w, 0x4002, 2);
                put_int(&w, event.packet_id, 2);
            }
        } else if (event.kind == PING)
            put_bytes(&w, "PONG\r\n", 6);
        at = next;
    }
    c->held_size = (size_t)(end - at);
    if (c->held_size > 4096) fail("a frame of over 4 KiB");
    if (c->held_size && !c->held) c->held = allocate(4096);
    if (c->held_size) memcpy(c->held, at, c->held_size);
    if (w.at != answers) send_answers(s, c, answers, (size_t)(w.at - answers));
    int64_t received = s->told->received + deliveries;
    s->told->received = received;
    if (received == s->round_end) {
        s->round_end += run.window * s->clients;
        if (write(run.rounds_done[1], "r", 1) != 1) fail("write: %m");
    }
}

/* A child's life: subscribes, says so, and receives until the publisher closes the control pipe. */
static void subscribe_forever(int process) {
    int64_t first = run.subscribers * process / run.processes, last = run.subscribers * (process + 1) / run.processes;
    int stalled = !strcmp(run.mode, "stall");
    close(run.control[1]);
    Subscribing s = {.told = &run.told[process], .clients = last - first, .epoll = epoll_create1(0)};
    s.round_end = strcmp(run.mode, "rounds") ? -1 : run.window * s.clients;
    Client *clients = open_clients(first, s.clients, "s", 1);
    for (int64_t i = 0; i < s.clients; i++) watch(s.epoll, clients[i].fd, EPOLLIN, &clients[i]);
    char byte;
    if (write(run.rounds_done[1], "s", 1) != 1) fail("write: %m");
    if (stalled && read(run.control[0], &byte, 1) != 1) exit(1);
    watch(s.epoll, run.control[0], EPOLLIN, NULL);
    static struct epoll_event events[1024];
    for (;;) {
        int count = epoll_wait(s.epoll, events, 1024, -1);
        for (int i = 0; i < count; i++) {
            Client *c = events[i].data.ptr;
            if (!c) {
                for (int64_t j = 0; j < s.clients; j++) receive(&s, &clients[j]); /* one too many would show now */
                _exit(0);
            }
            if (events[i].events & EPOLLOUT)
                send_answers(&s, c, c->unsent, c->unsent_size);
            else
                receive(&s, c);
        }
    }
}

static void start_subscribers(void) {
    run.told = mmap(NULL, sizeof(Told) * (size_t)run.processes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run.told == MAP_FAILED || pipe(run.rounds_done) || pipe(run.control)) fail("mmap or pipe: %m");
    for (int i = 0; i < run.processes && run.subscribers; i++) {
        run.children[i] = fork();
        if (run.children[i] < 0) fail("fork: %m");
        if (!run.children[i]) subscribe_forever(i);
    }
    char byte;
    close(run.rounds_done[1]);
    for (int i = 0; i < run.processes && run.subscribers; i++)
        if (read(run.rounds_done[0], &byte, 1) != 1) fail("a subscribing process ended early");
}

static int64_t received_in_all(void) {
    int64_t sum = 0;
    for (int i = 0; i < run.processes && run.subscribers; i++) sum += run.told[i].received;
    return sum;
}

static void end_subscribers(void) {
    close(run.control[1]);
    for (int i = 0; i < run.processes && run.subscribers; i++) {
        int status;
        if (waitpid(run.children[i], &status, 0) < 0 || status) fail("a subscribing process failed");
    }
}

static void check_children(void) {
    int status;
    if (waitpid(-1, &status, WNOHANG) > 0) fail("a subscribing process ended early");
}

/* --- publishing ----------------------------------------------------------------------------------------------- */

/* What is measured, at one moment. */
typedef struct {
    double at, publisher_cpu, subscriber_cpu, broker_cpu;
    int64_t received, acknowledged;
} Sample;

static struct {
    Client *clients;
    int epoll;
    int64_t acknowledged, published, rounds; /* rounds that are complete */
    Sample from, to;
    double publish_seconds; /* stall: how long the publishing took */
} pub;

static double cpu_of(pid_t pid) {
    clockid_t clock;
    struct timespec used = {0};
    if (!pid || clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &used)) return 0;
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static Sample sample(void) {
    Sample s = {.at = now_seconds(), .publisher_cpu = cpu_seconds(), .broker_cpu = cpu_of((pid_t)run.broker)};
    for (int i = 0; i < run.processes; i++) s.subscriber_cpu += cpu_of(run.children[i]);
    s.received = received_in_all();
    s.acknowledged = pub.acknowledged;
    return s;
}

/* Takes the two samples when their time has come. True once both are taken. */
static int measured(double begun) {
    double now = now_seconds();
    if (!pub.from.at && now >= begun + run.warmup) pub.from = sample();
    if (pub.from.at && !pub.to.at && now >= pub.from.at + run.seconds) pub.to = sample();
    return pub.to.at != 0;
}

static int milliseconds_to_sample(double begun) {
    double next = pub.from.at ? pub.from.at + run.seconds : begun + run.warmup;
    double left = (next - now_seconds()) * 1e3 + 1;
    return pub.to.at || left > 200 ? 200 : left < 0 ? 0 : (int)left;
}

/* Publishes the next `count` messages of a client in one write. */
static void publish(Client *c, int64_t count, double due) {
    for (int64_t i = 0; i < count; i++) stamp(&c->frames, (int)i, c->sent + i, due);
    send_all(c->fd, c->frames.bytes, c->frames.frame_size * (size_t)count);
    c->sent += count;
    pub.published += count;
}

/* Reads a publisher's acknowledgements; returns how many there were. */
static int64_t read_acknowledgements(Client *c) {
    static uint8_t buffer[1 << 16];
    if (c->held_size) memcpy(buffer, c->held, c->held_size);
    ssize_t n = recv(c->fd, buffer + c->held_size, sizeof buffer - 64, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) fail(n ? "recv: %m" : "the broker closed a publisher's connection");
    const uint8_t *at = buffer, *end = buffer + c->held_size + n, *next;
    Event event;
    int64_t count = 0;
    while (at < end && (next = next_event(run.dialect, at, end, &event))) {
        if (event.kind == PUBLISH_ACKNOWLEDGED) {
            if (event.packet_id != packet_id(c->next)) fail("packet %d was acknowledged out of turn", event.packet_id);
            c->next++;
            count++;
        } else if (event.kind == PING)
            send_all(c->fd, "PONG\r\n", 6);
        at = next;
    }
    c->held_size = (size_t)(end - at);
    if (c->held_size && !c->held) c->held = allocate(64);
    if (c->held_size) memcpy(c->held, at, c->held_size);
    pub.acknowledged += count;
    return count;
}

static void run_rounds(double begun) {
    struct epoll_event events[64];
    int64_t due = 0, last = 0;
    double moved_at = begun;
    for (int all_measured = 0; !all_measured; pub.rounds++) {
        for (int64_t i = 0; i < run.publishers; i++) publish(&pub.clients[i], run.window, 0);
        due += run.dialect.qos ? run.publishers * run.window : 0;
        for (int64_t waiting = run.processes; waiting || pub.acknowledged < due;) {
            int count = epoll_wait(pub.epoll, events, 64, milliseconds_to_sample(begun));
            for (int i = 0; i < count; i++) {
                char bytes[64];
                ssize_t done = 0;
                if (events[i].data.ptr)
                    read_acknowledgements(events[i].data.ptr);
                else if ((done = read(run.rounds_done[0], bytes, sizeof bytes)) <= 0)
                    fail("the subscribing processes ended early");
                waiting -= done;
            }
            all_measured = measured(begun);
            if (all_measured && now_seconds() > pub.to.at + GRACE_S) return;
            int64_t received = received_in_all();
            double now = now_seconds();
            if (received != last) moved_at = now;
            last = received;
            if (!count) check_children();
            if (now > moved_at + PATIENCE_S)
                fail("%lld of %lld deliveries came, then none for %.0f s", (long long)received,
                     (long long)(pub.published * (run.pairs ? 1 : run.subscribers)), PATIENCE_S);
        }
    }
}

/* Every publisher keeps its window full, for a time or up to `count` messages in all. */
static void run_ingest(double begun) {
    struct epoll_event events[64];
    int64_t left = run.count ? run.count : INT64_MAX;
    double moved_at = begun;
    for (int64_t i = 0; i < run.publishers && left; i++) {
        int64_t some = left < run.window ? left : run.window;
        publish(&pub.clients[i], some, 0);
        left -= some;
    }
    while (pub.acknowledged < pub.published) {
        int count = epoll_wait(pub.epoll, events, 64, milliseconds_to_sample(begun));
        if ((measured(begun) && !run.count)) left = 0;
        for (int i = 0; i < count; i++) {
            Client *c = events[i].data.ptr;
            int64_t some = read_acknowledgements(c);
            if (some > left) some = left;
            if (some) publish(c, some, 0);
            left -= some;
        }
        if (count) moved_at = now_seconds();
        if (now_seconds() > moved_at + PATIENCE_S)
            fail("%lld of %lld publishes were acknowledged", (long long)pub.acknowledged, (long long)pub.published);
    }
    if (!pub.to.at) pub.to = sample();
}

static void wait_for_all(int64_t deliveries) {
    double moved_at = now_seconds();
    for (int64_t last = -1; received_in_all() < deliveries;) {
        int64_t received = received_in_all();
        if (received != last) moved_at = now_seconds();
        last = received;
        check_children();
        if (now_seconds() > moved_at + PATIENCE_S)
            fail("%lld of %lld deliveries came, then none", (long long)received, (long long)deliveries);
        usleep(1000);
    }
}

/* The time in a message is the one at which it was due, so that a publisher held up hides nothing. */
static void run_paced(double begun) {
    prctl(PR_SET_TIMERSLACK, 1);
    Client *c = pub.clients;
    int64_t number = 0;
    while (!measured(begun)) {
        double now = now_seconds();
        int64_t due = (int64_t)((now - begun) * (double)run.rate) - number, count = 0;
        for (; count < due && count < run.window; count++) {
            double at = begun + (double)(number + count + 1) / (double)run.rate;
            stamp(&c->frames, (int)count, number + count, at < begun + run.warmup ? 0 : at);
        }
        if (count) send_all(c->fd, c->frames.bytes, c->frames.frame_size * (size_t)count);
        number += count;
        if (run.dialect.qos || run.dialect.nats) read_acknowledgements(c);
        double ahead = begun + (double)(number + 1) / (double)run.rate - now_seconds();
        struct timespec nap = {.tv_nsec = ahead > 0.05 ? 50000000 : (long)(ahead * 1e9)};
        if (ahead > 0) nanosleep(&nap, NULL);
    }
    pub.published = number;
    wait_for_all(number * run.subscribers);
}

static void run_stall(double begun) {
    char line[64];
    run_ingest(begun);
    pub.publish_seconds = now_seconds() - begun;
    printf("stalled\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) exit(1);
    pub.from = sample();
    for (int i = 0; i < run.processes; i++)
        if (write(run.control[1], "g", 1) != 1) fail("write: %m");
    wait_for_all(run.count * run.subscribers);
    pub.to = sample();
}

static void run_idle(void) {
    char line[64];
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) continue;
}

/* --- the result ----------------------------------------------------------------------------------------------- */

static double latency_ms(double quantile) {
    int64_t all = 0, sum = 0;
    for (int p = 0; p < run.processes; p++)
        for (size_t us = 0; us <= LATENCY_US_MAX; us++) all += run.told[p].latencies[us];
    for (size_t us = 0; us <= LATENCY_US_MAX; us++) {
        for (int p = 0; p < run.processes; p++) sum += run.told[p].latencies[us];
        if (all && (double)sum >= quantile * (double)all) return (double)us / 1e3;
    }
    return 0;
}

static void print_result(void) {
    double seconds = pub.to.at - pub.from.at;
    printf("{\"seconds\": %.6f, \"deliveries\": %lld, \"acknowledged\": %lld, \"rounds\": %lld, \"published\": %lld, ", seconds,
           (long long)(pub.to.received - pub.from.received), (long long)(pub.to.acknowledged - pub.from.acknowledged),
           (long long)pub.rounds, (long long)pub.published);
    printf("\"broker_cpu\": %.4f, \"publisher_cpu\": %.4f, \"subscriber_cpu\": %.4f", pub.to.broker_cpu - pub.from.broker_cpu,
           pub.to.publisher_cpu - pub.from.publisher_cpu, pub.to.subscriber_cpu - pub.from.subscriber_cpu);
    if (pub.publish_seconds) printf(", \"publish_seconds\": %.6f", pub.publish_seconds);
    if (run.rate) printf(", \"p50_ms\": %.3f, \"p99_ms\": %.3f", latency_ms(0.5), latency_ms(0.99));
    printf("}\n");
}

static void read_settings(int argc, char **argv) {
    struct {
        const char *name;
        int64_t *value;
    } numbers[] = {{"publishers", &run.publishers}, {"subscribers", &run.subscribers}, {"bytes", &run.bytes},
                   {"window", &run.window},         {"processes", &run.processes},     {"pairs", &run.pairs},
                   {"rate", &run.rate},             {"count", &run.count},             {"broker", &run.broker}};
    for (int i = 4; i < argc; i++) {
        char *value = strchr(argv[i], '=');
        if (!value) fail("usage: see the head of pubsub.c");
        *value++ = 0;
        size_t n = 0;
        for (; n < sizeof numbers / sizeof *numbers && strcmp(argv[i], numbers[n].name); n++) continue;
        if (n < sizeof numbers / sizeof *numbers) *numbers[n].value = atoll(value);
        else if (!strcmp(argv[i], "topic")) run.topic = value;
        else if (!strcmp(argv[i], "qos")) run.dialect.qos = atoi(value);
        else if (!strcmp(argv[i], "nats")) run.dialect.nats = atoi(value);
        else if (!strcmp(argv[i], "warmup")) run.warmup = atof(value);
        else if (!strcmp(argv[i], "seconds")) run.seconds = atof(value);
        else fail("there is no setting %s", argv[i]);
    }
    if (!run.topic || run.bytes < PAYLOAD_HEAD || run.bytes > 4096 - FRAME_HEAD_MAX || run.processes > PROCESSES_MAX)
        fail("a topic, a payload of 16 to 3,796 bytes and at most 8 processes, please");
}

int main(int argc, char **argv) {
    if (argc < 5) fail("usage: see the head of pubsub.c");
    run.mode = argv[1];
    run.host = argv[2];
    run.port = atoi(argv[3]);
    read_settings(argc, argv);
    start_subscribers();
    /* The acknowledgements set the pace, whatever the subscribers have asked for. */
    if (!strcmp(run.mode, "stall") || !strcmp(run.mode, "ingest")) run.dialect.qos = 1;
    pub.epoll = epoll_create1(0);
    pub.clients = open_clients(0, run.publishers, "p", 0);
    for (int64_t i = 0; i < run.publishers; i++) watch(pub.epoll, pub.clients[i].fd, EPOLLIN, &pub.clients[i]);
    if (run.subscribers) watch(pub.epoll, run.rounds_done[0], EPOLLIN, NULL);
    double begun = now_seconds();
    if (!strcmp(run.mode, "rounds")) run_rounds(begun);
    else if (!strcmp(run.mode, "ingest")) run_ingest(begun);
    else if (!strcmp(run.mode, "paced")) run_paced(begun);
    else if (!strcmp(run.mode, "stall")) run_stall(begun);
    else if (!strcmp(run.mode, "idle")) run_idle();
    else fail("there is no mode %s", run.mode);
    end_subscribers();
    if (strcmp(run.mode, "idle")) print_result();
    return 0;
}
