/* Cases of tcp: the hot socket, which is read without epoll, must not break
 * anything else. */
#include <netinet/tcp.h>
#include <poll.h>

#include "tcp_cases.h"

/* consecutive receives that make a socket hot and take it out of the set */
#define MANY 100

static void make_hot(ct_pair_t *pair)
{
    for (int i = 0; i < MANY; i++) {
        ct_exchange(pair, &pair->x, &pair->y, CT_BCOPY, 8, 1);
        ct_exchange(pair, &pair->y, &pair->x, CT_BCOPY, 8, 1);
    }
}

static bool would_wake(ct_side_t *side, int ms)
{
    struct pollfd fd = {.fd = ct_ops->event_fd(side->iface), .events = POLLIN};

    return poll(&fd, 1, ms) == 1;
}

CASE(hot_endpoint_still_wakes)
{
    ct_pair_t pair;
    ct_send_t send;

    /* the alarm of connecting would wake the sleeper too */
    ct_set("CONNECT_TIMEOUT", 1000 * CT_SECOND, "1000");
    ct_set("ACCEPT_TIMEOUT", 1000 * CT_SECOND, "1000");
    ct_pair_up(&pair);
    make_hot(&pair);
    while (ct_pair_progress(&pair) > 0)
        ;
    ct_check(ct_ops->arm(pair.b->iface) == PSC_OK, "arm");
    ct_check(!would_wake(pair.b, 0), "there is nothing to wake for");
    ct_send(&pair, &pair.x, CT_BCOPY, 8, 1, &send);
    ct_check(would_wake(pair.b, CT_PATIENCE_S * 1000), "asleep for ever");
    ct_until(&pair, pair.y.received == MANY + 1);
    ct_send_finish(&pair, &send);
    ct_pair_down(&pair);
}

/* Bytes that the socket did not take are sent later without an event of
 * epoll. */
CASE(hot_endpoint_sends_the_rest)
{
    ct_pair_t pair;

    ct_pair_up(&pair);
    make_hot(&pair);
    ct_exchange(&pair, &pair.x, &pair.y, CT_ZCOPY, 32 << 20, 1);
    ct_exchange(&pair, &pair.y, &pair.x, CT_ZCOPY, 32 << 20, 3);
    ct_pair_down(&pair);
}

CASE(others_are_heard_beside_the_hot_one)
{
    ct_pair_t pair, other;

    ct_pair_up(&pair);
    other = pair; /* further ends of the same sides */
    ct_end_create(&other.x, pair.a);
    ct_end_create(&other.y, pair.b);
    ct_pair_connect(&other);
    make_hot(&pair);
    for (int i = 0; i < MANY; i++) {
        ct_send_t send;

        ct_send(&pair, &other.x, CT_BCOPY, 8, 1, &send);
        ct_send_finish(&pair, &send);
        while (other.y.received == (uint64_t)i)
            ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 8, 1);
    }
    ct_end_destroy(&other.x, pair.b);
    ct_end_destroy(&other.y, pair.a);
    ct_pair_down(&pair);
}

/* ---- what the socket has no room for ---- */

/* Sends complete at once, until some of their bytes are held in the ring. */
static unsigned fill_socket(ct_pair_t *pair)
{
    unsigned n = 0;

    ct_set("SO_SNDBUF", 4096, "4k");
    ct_set("SO_RCVBUF", 4096, "4k");
    ct_pair_up(pair);
    while (!pair->a->holding) {
        ct_send_t send;

        ct_check(ct_send_try(&pair->x, CT_BCOPY, 1000, 1, &send) == PSC_OK,
                 "it is kept here");
        free(send.buffer);
        n++;
    }
    return n;
}

CASE(what_is_held_is_told)
{
    ct_pair_t pair;
    unsigned n = fill_socket(&pair);

    ct_until(&pair, !pair.a->holding);
    ct_until(&pair, pair.y.received == n);
    ct_pair_down(&pair);
}

CASE(what_is_held_ends_with_its_endpoint)
{
    ct_pair_t pair;

    fill_socket(&pair);
    ct_end_abandon(&pair.x);
    ct_check(!pair.a->holding, "for nobody");
    ct_pair_down(&pair);
}

/* The sender waits for the completion, so no other thread needs to call
 * progress. */
CASE(what_is_not_done_is_not_held)
{
    ct_pair_t pair;
    ct_send_t send;

    ct_set("SO_SNDBUF", 4096, "4k");
    ct_pair_up(&pair);
    ct_check(ct_send_try(&pair.x, CT_ZCOPY, 8 << 20, 1, &send) ==
                 PSC_INPROGRESS,
             "longer than any socket's room");
    ct_check(!pair.a->holding, "told of it");
    ct_until(&pair, pair.y.received == 1);
    ct_send_finish(&pair, &send);
    ct_pair_down(&pair);
}

/* ---- sockets between processes of one host ---- */

static unsigned count_streams(const char *algorithm)
{
    unsigned n = 0;

    for (int fd = 0; fd < 1024; fd++) {
        struct sockaddr_storage peer;
        socklen_t len = sizeof(peer), name_len = 16;
        char name[16] = "";

        if (getpeername(fd, (struct sockaddr *)&peer, &len) == 0 &&
            getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &name_len) == 0)
            n += strcmp(name, algorithm) == 0;
    }
    return n;
}

CASE(own_host_is_not_paced)
{
    unsigned before = count_streams("reno");
    ct_pair_t pair;

    ct_pair_up(&pair);
    ct_check(count_streams("reno") == before + 2, "%u sockets with Reno",
             count_streams("reno") - before);
    ct_pair_down(&pair);
}
