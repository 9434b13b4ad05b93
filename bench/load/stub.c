/* No broker at all: hands whatever a publisher sends to every subscriber, as it came, one send(2) each. It knows just
 * enough MQTT to greet pubsub.c, so it shows what the generator and the kernel allow at QoS 0: the ceiling over every
 * broker's figure, and the proof that the generator is not what limits them.
 *
 *   stub        prints the port that it took, and serves until it is killed */
#define _GNU_SOURCE
#include "wire.h"

#include <sys/epoll.h>

#define CLIENTS_MAX 20000

static int subscribers[CLIENTS_MAX], subscriber_count, greeted[CLIENTS_MAX];

static void forget(int fd) {
    for (int i = 0; i < subscriber_count; i++)
        if (subscribers[i] == fd) subscribers[i--] = subscribers[--subscriber_count];
    greeted[fd] = 0;
    close(fd);
}

/* A subscriber sends CONNECT and SUBSCRIBE in one piece, a publisher only CONNECT. */
static void greet_client(int fd, const uint8_t *data, ssize_t size) {
    static const uint8_t answer[] = {0x20, 2, 0, 0, 0x90, 3, 0, 1, 0};
    int subscribes = size > data[1] + 2;
    greeted[fd] = 1;
    if (subscribes) subscribers[subscriber_count++] = fd;
    if (send(fd, answer, subscribes ? 9 : 4, MSG_NOSIGNAL) < 0) forget(fd);
}

static void spread(const uint8_t *data, size_t size) {
    for (int i = 0; i < subscriber_count; i++)
        for (size_t sent = 0; sent < size;) {
            ssize_t n = send(subscribers[i], data + sent, size - sent, MSG_NOSIGNAL);
            if (n < 0) break;
            sent += (size_t)n;
        }
}

int main(void) {
    static uint8_t buffer[1 << 18];
    static struct epoll_event events[256];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), epoll = epoll_create1(0), on = 1;
    if (bind(listener, (struct sockaddr *)&address, size) || listen(listener, 1000)) fail("listen: %m");
    getsockname(listener, (struct sockaddr *)&address, &size);
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    for (;;) {
        int count = epoll_wait(epoll, events, 256, -1);
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == listener) {
                event.data.fd = accept(listener, NULL, NULL);
                if (event.data.fd < 0 || event.data.fd >= CLIENTS_MAX) fail("accept: %m");
                setsockopt(event.data.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
                epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
                continue;
            }
            ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
            if (n <= 0)
                forget(fd);
            else if (!greeted[fd])
                greet_client(fd, buffer, n);
            else
                spread(buffer, (size_t)n);
        }
    }
}
