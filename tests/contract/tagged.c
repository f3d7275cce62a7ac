/* Matching in the fabric: messages are delivered to the first receive that
 * matches, or reported as unexpected, in one order with active messages. The
 * seed of every payload is its match bits. */
#include "harness.h"

#define LONGEST 2000
#define CONTEXT(n) ((uint64_t)(n) << PSC_TAG_CONTEXT_SHIFT)

typedef struct receive {
    psc_tag_recv_t recv;
    char buffer[LONGEST];
    size_t room;
    unsigned done; /* 0, or its position among the completed receives */
    psc_status_t status;
    uint64_t bits;
    size_t len;
} receive_t;

static unsigned n_done;

static void receive_done(psc_tag_recv_t *recv, psc_status_t status,
                         uint64_t bits, size_t len)
{
    receive_t *receive = (receive_t *)(void *)recv;
    size_t came = len < receive->room ? len : receive->room;

    ct_check(!receive->done, "done twice");
    receive->done = ++n_done;
    receive->status = status;
    receive->bits = bits;
    receive->len = len;
    if (status == PSC_OK)
        ct_check(ct_pattern_check(receive->buffer, came, bits),
                 "payload of %llx", (unsigned long long)bits);
}

/* Posts as soon as the fabric accepts the receive, which it does not while a
 * message is in between. */
static void post(ct_pair_t *pair, receive_t *receive, uint64_t match,
                 uint64_t ignore, size_t room)
{
    memset(receive, 0, sizeof(*receive));
    receive->room = room;
    receive->recv = (psc_tag_recv_t){
        .source = pair->y.ep,
        .match = match,
        .ignore = ignore | PSC_TAG_MARK,
        .buffer = {receive->buffer, room},
        .done = receive_done,
    };
    ct_until(pair, ct_ops->tag_post(pair->y.ep, &receive->recv) == PSC_OK);
}

static void send_tagged(ct_pair_t *pair, uint64_t bits, size_t len)
{
    char payload[LONGEST];
    psc_iov_t iov = {payload, len};
    psc_status_t status = PSC_ERR_NO_RESOURCE;

    ct_pattern_fill(payload, len, bits);
    ct_until(pair, (status = ct_ops->tag_send(pair->x.ep, bits, &iov, 1)) !=
                       PSC_ERR_NO_RESOURCE);
    ct_check(status == PSC_OK, "%s", psc_status_string(status));
}

static void tag_up(ct_pair_t *pair)
{
    char reason[PSC_REASON_MAX] = "";

    ct_pair_up(pair);
    ct_check(ct_ops->tag_ready(pair->x.ep, reason) == PSC_OK &&
                 ct_ops->tag_ready(pair->y.ep, reason) == PSC_OK,
             "%s", reason);
}

CASE(expected_messages_land, .caps = PSC_CAP_TAG)
{
    static receive_t receives[40];
    ct_pair_t pair;

    tag_up(&pair);
    for (size_t i = 0; i < 40; i++)
        post(&pair, &receives[i], CONTEXT(7) | i, 0, LONGEST);
    for (size_t i = 40; i-- > 0;)
        send_tagged(&pair, CONTEXT(7) | i, i * 50);
    for (size_t i = 0; i < 40; i++) {
        ct_until(&pair, receives[i].done);
        ct_check(receives[i].bits == (CONTEXT(7) | i) &&
                     receives[i].len == i * 50,
                 "receive %zu", i);
        ct_check(receives[i].done == 40 - i, "in the order of the messages");
    }
    ct_check(pair.y.unexpected == 0, "all had their receive");
    ct_pair_down(&pair);
}

CASE(unexpected_messages_come_up, .caps = PSC_CAP_TAG)
{
    ct_pair_t pair;

    tag_up(&pair);
    for (uint64_t i = 0; i < 200; i++)
        send_tagged(&pair, CONTEXT(9) | i, (size_t)i * 10);
    ct_until(&pair, pair.y.unexpected == 200);
    for (uint64_t i = 0; i < 200; i++)
        ct_check(pair.y.unexpected_bits[i] == (CONTEXT(9) | i), "in order");
    ct_pair_down(&pair);
}

CASE(bits_decide, .caps = PSC_CAP_TAG)
{
    static receive_t context, tag, any;
    ct_pair_t pair;

    tag_up(&pair);
    post(&pair, &context, CONTEXT(2) | 5, 0, LONGEST);
    post(&pair, &tag, CONTEXT(1) | PSC_TAG_MASK, 0, LONGEST);
    post(&pair, &any, CONTEXT(1), PSC_TAG_MASK, LONGEST);
    send_tagged(&pair, CONTEXT(1) | 5, 10);
    send_tagged(&pair, CONTEXT(1) | PSC_TAG_MASK | PSC_TAG_MARK, 0);
    send_tagged(&pair, CONTEXT(3) | 5, 10);
    send_tagged(&pair, CONTEXT(2) | 5, 10);
    ct_until(&pair, context.done && tag.done && any.done);
    ct_check(any.bits == (CONTEXT(1) | 5), "the other had another tag");
    ct_check(tag.bits & PSC_TAG_MARK, "the mark is told, not matched");
    ct_check(pair.y.unexpected == 1 &&
                 pair.y.unexpected_bits[0] == (CONTEXT(3) | 5),
             "a context that nobody wants");
    ct_pair_down(&pair);
}

CASE(long_messages_are_cut, .caps = PSC_CAP_TAG)
{
    static receive_t receives[2];
    ct_pair_t pair;

    tag_up(&pair);
    post(&pair, &receives[0], CONTEXT(1), 0, 100);
    post(&pair, &receives[1], CONTEXT(1), 0, 0);
    send_tagged(&pair, CONTEXT(1), LONGEST);
    send_tagged(&pair, CONTEXT(1), 1);
    ct_until(&pair, receives[0].done && receives[1].done);
    ct_check(receives[0].len == LONGEST && receives[1].len == 1,
             "the true lengths are told");
    ct_check(receives[0].buffer[100] == 0, "nothing behind its end");
    ct_pair_down(&pair);
}

CASE(cancelled_receives_get_nothing, .caps = PSC_CAP_TAG)
{
    static receive_t receives[30];
    ct_pair_t pair;

    tag_up(&pair);
    for (int i = 0; i < 30; i++)
        post(&pair, &receives[i], CONTEXT(1), 0, LONGEST);
    for (int i = 0; i < 30; i += 2)
        ct_check(ct_ops->tag_cancel(pair.y.ep, &receives[i].recv) == PSC_OK,
                 "nothing was sent yet");
    for (int i = 0; i < 15; i++)
        send_tagged(&pair, CONTEXT(1), 20 + i);
    for (int i = 0; i < 15; i++) {
        ct_until(&pair, receives[2 * i + 1].done);
        ct_check(receives[2 * i + 1].len == 20u + i && !receives[2 * i].done,
                 "message %d", i);
    }
    ct_pair_down(&pair);
}

/* Half of the messages find their receive; both kinds of messages alternate. */
CASE(one_order_with_active_messages, .caps = PSC_CAP_TAG)
{
    static receive_t receives[100];
    ct_pair_t pair;
    ct_send_t send;

    tag_up(&pair);
    for (uint64_t i = 0; i < 100; i++)
        post(&pair, &receives[i], CONTEXT(1) | i, 0, LONGEST);
    for (uint64_t i = 0; i < 100; i++) {
        send_tagged(&pair, CONTEXT(1 + i % 2) | i, 30);
        ct_send(&pair, &pair.x, CT_BCOPY, 40, 1, &send);
        free(send.buffer);
        while (pair.y.received <= i)
            ct_until(&pair, pair.y.received > i);
        ct_check(i % 2 ? pair.y.unexpected == i / 2 + 1 : receives[i].done,
                 "message %llu came before the next", (unsigned long long)i);
    }
    for (int i = 1; i < 100; i += 2)
        ct_check(ct_ops->tag_cancel(pair.y.ep, &receives[i].recv) == PSC_OK,
                 "receive %d", i);
    ct_pair_down(&pair);
}

/* Whether a message arrives before its receive or after, the n-th message of a
 * kind belongs to the n-th receive, and no message is lost. */
CASE(early_or_late_each_finds_its_place, .caps = PSC_CAP_TAG)
{
    static receive_t receives[600];
    uint64_t posted = 0, done = 0;
    ct_pair_t pair;

    tag_up(&pair);
    for (uint64_t i = 0; i < 600; i++) {
        if (i * 7 % 10 < 5)
            post(&pair, &receives[posted++], CONTEXT(1), 0, LONGEST);
        send_tagged(&pair, CONTEXT(1), (size_t)i);
    }
    ct_until(&pair, n_done + pair.y.unexpected == 600);
    for (uint64_t i = 1; i < posted; i++)
        ct_check(!receives[i].done || receives[i].len > receives[i - 1].len,
                 "receive %llu was overtaken", (unsigned long long)i);
    for (uint64_t i = 0; i < posted; i++) {
        done += receives[i].done > 0;
        if (!receives[i].done)
            ct_check(ct_ops->tag_cancel(pair.y.ep, &receives[i].recv) == PSC_OK,
                     "receive %llu", (unsigned long long)i);
    }
    ct_check(done + pair.y.unexpected == 600, "each is somewhere");
    ct_pair_down(&pair);
}

/* ---- from where they are ---- */

typedef struct put {
    psc_comp_t comp;
    char *buffer;
    uint32_t number;
    bool done;
    psc_status_t status;
} put_t;

static void put_done(psc_comp_t *comp, psc_status_t status)
{
    put_t *put = (put_t *)(void *)comp;

    ct_check(!put->done, "done twice");
    put->done = true;
    put->status = status;
}

/* Not every fabric that matches has tag_put, nor does each of its libraries. */
static void put_cannot(void)
{
    ct_skip("%s puts nothing that is to be matched", ct_ops->name);
}

static void put_tagged(ct_pair_t *pair, put_t *put, uint64_t bits, size_t len)
{
    psc_status_t status = PSC_ERR_NO_RESOURCE;

    if (!ct_ops->tag_put)
        put_cannot();
    bits |= PSC_TAG_MARK;
    *put = (put_t){.comp = {put_done}, .buffer = malloc(len)};
    ct_pattern_fill(put->buffer, len, bits);
    ct_until(pair, (status = ct_ops->tag_put(pair->x.ep, bits, put->buffer, len,
                                             &put->number, &put->comp)) !=
                       PSC_ERR_NO_RESOURCE);
    if (status == PSC_ERR_UNSUPPORTED)
        put_cannot();
    ct_check(status == PSC_INPROGRESS, "%s", psc_status_string(status));
}

static void put_ends(ct_pair_t *pair, put_t *put, psc_status_t status)
{
    ct_until(pair, put->done);
    ct_check(put->status == status, "%s", psc_status_string(put->status));
    free(put->buffer);
}

CASE(puts_land_or_are_told, .caps = PSC_CAP_TAG)
{
    static receive_t receives[2];
    ct_pair_t pair;
    put_t put;

    tag_up(&pair);
    post(&pair, &receives[0], CONTEXT(1), 0, LONGEST);
    post(&pair, &receives[1], CONTEXT(1), 0, 100);
    for (int i = 0; i < 2; i++) {
        put_tagged(&pair, &put, CONTEXT(1), i ? 1000000 : LONGEST);
        put_ends(&pair, &put, PSC_OK);
        ct_until(&pair, receives[i].done);
        ct_check(receives[i].len == (i ? 1000000 : LONGEST) &&
                     receives[i].bits == (CONTEXT(1) | PSC_TAG_MARK),
                 "receive %d", i);
    }
    ct_check(receives[1].buffer[100] == 0, "nothing behind its end");
    for (size_t i = 1; i < 100000; i *= 7) {
        put_tagged(&pair, &put, CONTEXT(2) | i, i);
        put_ends(&pair, &put, PSC_ERR_UNSUPPORTED);
        ct_until(&pair, pair.y.missed_len == i);
        ct_check(pair.y.missed_number == put.number, "another one");
    }
    ct_pair_down(&pair);
}

/* Sender and receiver get the same report about a message. */
CASE(both_sides_know_where_a_put_went, .caps = PSC_CAP_TAG)
{
    enum { N = 300 };
    static receive_t receives[N];
    static put_t puts[N];
    uint64_t taken = 0, landed = 0, missed = 0;
    ct_pair_t pair;

    tag_up(&pair);
    for (uint64_t i = 0; i < N; i++) {
        put_tagged(&pair, &puts[i], CONTEXT(1) | i, 1 + i * 100);
        post(&pair, &receives[i], CONTEXT(1) | i, 0, LONGEST);
    }
    for (uint64_t i = 0; i < N; i++) {
        ct_until(&pair, puts[i].done && n_done + pair.y.unexpected > i);
        taken += puts[i].status == PSC_OK;
        free(puts[i].buffer);
    }
    for (uint64_t i = 0; i < N; i++) {
        landed += receives[i].done && receives[i].status == PSC_OK;
        missed += receives[i].status == PSC_ERR_UNSUPPORTED;
        if (!receives[i].done)
            ct_ops->tag_cancel(pair.y.ep, &receives[i].recv);
    }
    ct_check(taken == landed && landed + missed + pair.y.unexpected == N,
             "%llu were taken, %llu are there", (unsigned long long)taken,
             (unsigned long long)landed);
    ct_pair_down(&pair);
}
