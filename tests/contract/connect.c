/* Cases: the interface's description, connecting, refusing, closing. */
#include <fcntl.h>

#include "harness.h"

CASE(interface_describes_itself)
{
    ct_side_t side;
    const psc_iface_attr_t *attr = &side.attr;

    ct_check(ct_ops->abi == PSC_TRANSPORT_ABI, "abi");
    ct_check(ct_ops->size == sizeof(*ct_ops), "size");
    ct_check(ct_ops->name && strlen(ct_ops->name) <= 15, "name");
    ct_side_open(&side);
    ct_check(attr->max_bcopy >= 1024, "max_bcopy %zu", attr->max_bcopy);
    ct_check(attr->max_iov >= 8 && attr->max_iov <= 64, "max_iov %zu",
             attr->max_iov);
    ct_check(attr->latency_ns > 0 && attr->bandwidth > 0, "estimates");
    ct_check(!ct_side_can(&side, PSC_CAP_AM_SHORT) ||
                 (ct_ops->am_short && attr->max_short > 0),
             "am_short");
    ct_check(!ct_side_can(&side, PSC_CAP_AM_ZCOPY) ||
                 (ct_ops->am_zcopy && attr->max_zcopy > 0),
             "am_zcopy");
    ct_check(!ct_side_can(&side, PSC_CAP_PUT) || (ct_ops->put && attr->max_put),
             "put");
    ct_check(!ct_side_can(&side, PSC_CAP_GET) || (ct_ops->get && attr->max_get),
             "get");
    ct_check(!ct_side_can(&side, PSC_CAP_EVENT) ||
                 (ct_ops->event_fd && ct_ops->arm),
             "event");
    ct_side_close(&side);
}

CASE(open_twice)
{
    ct_side_t one, two;

    ct_side_open(&one);
    ct_side_open(&two);
    ct_side_close(&one);
    ct_side_close(&two);
}

CASE(connect_two)
{
    ct_pair_t pair;

    ct_pair_up(&pair);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 5, 1);
    ct_exchange(&pair, &pair.y, &pair.x, CT_BCOPY, 6, 1);
    ct_pair_down(&pair);
}

/* The connector sends its first message before the acceptor knows the token. */
CASE(connect_before_acceptor)
{
    ct_pair_t pair;

    ct_pair_open(&pair);
    ct_end_join(&pair.x, &pair.y, PSC_ROLE_CONNECTOR);
    for (int i = 0; i < 1000; i++)
        ct_pair_progress(&pair);
    ct_check(!pair.x.failed && !pair.y.failed && !pair.y.up, "too early");
    ct_end_join(&pair.y, &pair.x, PSC_ROLE_ACCEPTOR);
    ct_pair_await(&pair);
    ct_exchange(&pair, &pair.y, &pair.x, CT_BCOPY, 100, 3);
    ct_pair_down(&pair);
}

/* An endpoint that sends to itself. */
CASE(connect_self)
{
    ct_pair_t pair;

    ct_pair_open(&pair);
    ct_end_join(&pair.x, &pair.x, PSC_ROLE_SELF);
    ct_until(&pair, pair.x.up || pair.x.failed);
    ct_check(pair.x.up, "%s", pair.x.reason);
    ct_exchange(&pair, &pair.x, &pair.x, CT_BCOPY, 1000, 2);
    if (ct_side_can(pair.a, PSC_CAP_AM_ZCOPY))
        ct_exchange(&pair, &pair.x, &pair.x, CT_ZCOPY, 3 << 20, 2);
    ct_pair_down(&pair);
}

CASE(wrong_token_fails_both)
{
    ct_pair_t pair;
    uint8_t address[PSC_ADDRESS_MAX], wrong[PSC_TOKEN_SIZE];
    size_t len = sizeof(address);

    memcpy(wrong, ct_token, sizeof(wrong));
    wrong[PSC_TOKEN_SIZE - 1] ^= 1;
    ct_pair_open(&pair);
    ct_ops->ep_address(pair.x.ep, address, &len);
    ct_end_connect(&pair.y, PSC_ROLE_ACCEPTOR, wrong, address, len);
    ct_end_join(&pair.x, &pair.y, PSC_ROLE_CONNECTOR);
    ct_until(&pair, pair.x.failed && pair.y.failed);
    ct_check(!pair.x.up && !pair.y.up, "up with the wrong token");
    printf("connector: %s\nacceptor: %s\n", pair.x.reason, pair.y.reason);
    ct_pair_down(&pair);
}

/* Connects with a damaged address, which must return an error or fail, and
 * never come up. */
static void refuse_address(ct_pair_t *pair, const uint8_t *address, size_t len)
{
    ct_end_t end;
    psc_status_t status;

    ct_end_create(&end, pair->a);
    status = ct_end_connect(&end, PSC_ROLE_CONNECTOR, ct_token, address, len);
    ct_check(status != PSC_OK, "connected with %zu bytes of address", len);
    for (int i = 0; status == PSC_INPROGRESS && i < 200; i++)
        ct_pair_progress(pair);
    ct_check(!end.up, "up with a damaged address of %zu bytes", len);
    ct_end_destroy(&end, pair->b);
}

CASE(damaged_address_is_refused)
{
    ct_pair_t pair;
    uint8_t address[PSC_ADDRESS_MAX], damaged[PSC_ADDRESS_MAX];
    size_t len = sizeof(address);
    unsigned dice = 12345;

    ct_pair_open(&pair);
    ct_ops->ep_address(pair.y.ep, address, &len);
    for (size_t cut = 0; cut < len; cut++)
        refuse_address(&pair, address, cut);
    for (int round = 0; round < 100; round++) {
        for (size_t i = 0; i < len; i++)
            damaged[i] = (uint8_t)(dice = dice * 1103515245 + 12345) >> 3;
        refuse_address(&pair, damaged, len);
    }
    ct_pair_connect(&pair); /* the damaged addresses have done no harm */
    ct_pair_down(&pair);
}

CASE(unused_endpoint_closes)
{
    ct_pair_t pair;
    ct_end_t waiting, calling;

    ct_pair_open(&pair);
    ct_end_create(&waiting, pair.a);
    ct_end_join(&waiting, &pair.y, PSC_ROLE_ACCEPTOR);
    ct_end_destroy(&waiting, NULL);
    ct_end_create(&calling, pair.a);
    ct_end_join(&calling, &pair.y, PSC_ROLE_CONNECTOR);
    ct_end_destroy(&calling, NULL);
    ct_pair_down(&pair);
}

CASE(small_room_for_address)
{
    ct_pair_t pair;
    uint8_t address[PSC_ADDRESS_MAX];
    size_t len = 1;

    ct_pair_open(&pair);
    ct_check(ct_ops->ep_address(pair.x.ep, address, &len) < 0,
             "an address in one byte");
    ct_pair_down(&pair);
}

#define MANY 50

/* Connects more endpoints at once than a transport may greet at the same
 * time. */
CASE(many_endpoints)
{
    static ct_pair_t pairs[MANY];
    ct_pair_t *first = &pairs[0];

    ct_pair_open(first);
    for (int i = 1; i < MANY; i++) {
        pairs[i].a = first->a;
        pairs[i].b = first->b;
        ct_end_create(&pairs[i].x, first->a);
        ct_end_create(&pairs[i].y, first->b);
    }
    for (int i = MANY - 1; i >= 0; i--)
        ct_pair_start(&pairs[i]);
    for (int i = 0; i < MANY; i++)
        ct_pair_await(&pairs[i]);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < MANY; i++)
            ct_exchange(&pairs[i], &pairs[i].x, &pairs[i].y, CT_BCOPY,
                        (size_t)(i * 10), 2);
    }
    for (int i = 1; i < MANY; i++) {
        ct_end_destroy(&pairs[i].x, first->b);
        ct_end_destroy(&pairs[i].y, first->a);
    }
    ct_pair_down(first);
}

/* Messages sent before ep_close arrive; then the peer is notified of the end.
 */
CASE(close_drains, .two_sides = true)
{
    ct_pair_t pair;
    ct_send_t send, big = {.done = true};

    ct_pair_up(&pair);
    for (int i = 0; i < 8; i++) {
        ct_send(&pair, &pair.x, CT_BCOPY, ct_longest(pair.a, CT_BCOPY), 1,
                &send);
        ct_send_finish(&pair, &send);
    }
    if (ct_side_can(pair.a, PSC_CAP_AM_ZCOPY))
        ct_send(&pair, &pair.x, CT_ZCOPY, 20 << 20, 1, &big);
    ct_ops->ep_close(pair.x.ep);
    ct_check(ct_send_try(&pair.x, CT_BCOPY, 1, 1, &send) < 0,
             "a closed endpoint sends");
    free(send.buffer);
    while (ct_ops->ep_stop(pair.x.ep) == PSC_INPROGRESS)
        ct_pair_progress(&pair);
    ct_check(big.done, "stopped with a send in flight");
    free(big.buffer);
    ct_end_abandon(&pair.x);
    ct_until(&pair, pair.y.failed);
    ct_check(pair.y.received == pair.x.sent, "%llu messages of %llu",
             (unsigned long long)pair.y.received,
             (unsigned long long)pair.x.sent);
    printf("the peer was told: %s\n", pair.y.reason);
    ct_pair_down(&pair);
}

/* The core may make any call from inside an upcall, and may end the endpoint
 * there. */
static void destroy_inside(ct_end_t *end)
{
    ct_ops->ep_close(end->ep);
    (void)ct_ops->ep_stop(end->ep);
    ct_ops->ep_fini(end->ep);
    end->ep = NULL;
}

CASE(close_inside_upcall)
{
    ct_pair_t pair;
    ct_send_t send;

    ct_pair_up(&pair);
    pair.y.on_message = destroy_inside;
    for (int i = 0; i < 3; i++) {
        ct_send(&pair, &pair.x, CT_BCOPY, 10, 1, &send);
        ct_send_finish(&pair, &send);
    }
    ct_until(&pair, pair.x.failed);
    ct_check(pair.y.received == 1, "%llu messages after the end",
             (unsigned long long)pair.y.received);
    ct_pair_down(&pair);
}

#define DESCRIPTORS_MAX 256

/* Every descriptor is close-on-exec while in use, and closed at the end. */
CASE(descriptors_are_given_back)
{
    ct_pair_t pair;
    int before = 0, after = 0;

    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++)
        before +=
            fcntl(fd, F_GETFD) >= 0 ? fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 : 0;
    ct_pair_up(&pair);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++) {
        int flags = fcntl(fd, F_GETFD);

        ct_check(flags < 0 || flags & FD_CLOEXEC, "descriptor %d", fd);
    }
    ct_pair_down(&pair);
    for (int fd = 0; fd < DESCRIPTORS_MAX; fd++)
        after += fcntl(fd, F_GETFD) >= 0;
    ct_check(after == before, "%d descriptors became %d", before, after);
}
