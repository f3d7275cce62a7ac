/* Cases of portals alone: matching in its interface, seen from inside, at
 * moments that a user of the contract cannot choose. */
#include "portals_cases.h"

static void landed_done(psc_tag_recv_t *recv, psc_status_t status,
                        uint64_t bits, size_t len)
{
    landed_t *landed = (landed_t *)(void *)recv;

    (void)bits;
    ct_check(status == PSC_OK, "%s", psc_status_string(status));
    landed->done = true;
    landed->len = len;
}

void landed_post_room(ct_pair_t *pair, landed_t *landed, size_t room)
{
    *landed = (landed_t){.recv = {
                             .source = pair->y.ep,
                             .buffer = {landed->buffer, room},
                             .done = landed_done,
                         }};
    ct_check(ct_ops->tag_post(pair->y.ep, &landed->recv) == PSC_OK, "post");
}

void landed_post(ct_pair_t *pair, landed_t *landed)
{
    landed_post_room(pair, landed, sizeof(landed->buffer));
}

void landed_send(ct_pair_t *pair, size_t len)
{
    const psptl_channel_t *channel = portals_ep(pair->x.ep)->channel;
    int64_t deadline = ct_deadline();
    char bytes[100];
    psc_iov_t iov = {bytes, len};

    ct_pattern_fill(bytes, len, 0);
    ct_check(ct_ops->tag_send(pair->x.ep, 0, &iov, 1) == PSC_OK, "send");
    while (channel->n_flying > 0) {
        ct_side_progress(pair->a);
        ct_check(psc_clock_now() < deadline, "no acknowledgement");
    }
}

CASE(a_cancel_is_too_late_once_it_has_matched)
{
    static landed_t first, second;
    ct_pair_t pair;

    ct_pair_up(&pair);
    landed_post(&pair, &first);
    landed_post(&pair, &second);
    landed_send(&pair, 70);
    ct_check(ct_ops->tag_cancel(pair.y.ep, &first.recv) == PSC_ERR_INVALID,
             "it has matched");
    ct_check(ct_ops->tag_cancel(pair.y.ep, &second.recv) == PSC_OK, "not yet");
    ct_until(&pair, first.done);
    ct_check(first.len == 70 && ct_pattern_check(first.buffer, 70, 0), "first");
    ct_pair_down(&pair);
}

/* The message is in the overflow list and was not reported: the receive takes
 * it. */
CASE(a_receive_finds_what_came_before_it)
{
    static landed_t landed;
    ct_pair_t pair;

    ct_pair_up(&pair);
    landed_send(&pair, 70);
    landed_send(&pair, 30);
    landed_post(&pair, &landed);
    ct_check(ct_ops->tag_cancel(pair.y.ep, &landed.recv) == PSC_ERR_INVALID,
             "it has matched");
    ct_until(&pair, landed.done && pair.y.unexpected == 1);
    ct_check(landed.len == 70 && ct_pattern_check(landed.buffer, 70, 0),
             "the first one");
    ct_check(counter(pair.b, PSPTL_COUNTER_tag_claimed) == 1, "claimed");
    ct_pair_down(&pair);
}

/* Changes each event into what another library would report. */
static void (*retell)(ptl_event_t *event);

static int poll_other(const ptl_handle_eq_t *queues, unsigned n,
                      ptl_time_t timeout, ptl_event_t *event, unsigned *which)
{
    int status = real_ni->PtlEQPoll(queues, n, timeout, event, which);

    if (status == PTL_OK)
        retell(event);
    return status;
}

static void other_up(ct_pair_t *pair, void (*how)(ptl_event_t *event))
{
    retell = how;
    ct_pair_up(pair);
    ni_wrap(pair->b)->PtlEQPoll = poll_other;
}

static void search_as_overflow(ptl_event_t *event)
{
    if (event->type == PTL_EVENT_SEARCH && event->ni_fail_type == PTL_NI_OK)
        event->type = PTL_EVENT_PUT_OVERFLOW;
}

/* Libraries differ in the event that reports the result of a search. */
CASE(a_search_may_tell_of_an_overflow)
{
    ct_pair_t pair;

    other_up(&pair, search_as_overflow);
    for (size_t i = 0; i < 3; i++)
        landed_send(&pair, 30 + i);
    ct_until(&pair, pair.y.unexpected == 3);
    ct_check(counter(pair.b, PSPTL_COUNTER_tag_claimed) == 0, "claimed");
    ct_pair_down(&pair);
}

static void lose_length(ptl_event_t *event)
{
    if (event->type == PTL_EVENT_PUT_OVERFLOW)
        event->rlength = 0;
}

/* Some libraries do not report the length. */
CASE(an_overflow_may_have_lost_its_length)
{
    static landed_t landed;
    ct_pair_t pair;

    other_up(&pair, lose_length);
    landed_send(&pair, 70);
    landed_post(&pair, &landed);
    ct_until(&pair, landed.done);
    ct_check(landed.len == 70 && ct_pattern_check(landed.buffer, 70, 0),
             "%zu bytes", landed.len);
    ct_pair_down(&pair);
}

/* A receive that has matched completes even after the endpoint has closed. */
CASE(a_matched_receive_ends_with_its_endpoint)
{
    static landed_t landed;
    ct_pair_t pair;

    ct_pair_up(&pair);
    landed_post(&pair, &landed);
    landed_send(&pair, 70);
    ct_ops->ep_close(pair.y.ep);
    ct_check(ct_ops->ep_stop(pair.y.ep) == PSC_INPROGRESS,
             "the buffer is not given back yet");
    ct_until(&pair, landed.done);
    ct_until(&pair, ct_ops->ep_stop(pair.y.ep) == PSC_OK);
    ct_ops->ep_fini(pair.y.ep);
    ct_end_destroy(&pair.x, pair.b);
    ct_side_close(pair.a);
    ct_side_close(pair.b);
}

/* The window is the number of messages that the peer may have in flight; no
 * receive is needed. */
CASE(overflow_buffers_are_as_many_as_messages)
{
    ct_pair_t pair;
    psc_status_t status = PSC_OK;
    psc_iov_t none = {NULL, 0};

    set_number("SENDQ_SIZE", 64);
    ct_pair_up(&pair);
    ct_until(&pair, ct_pair_progress(&pair) == 0);
    for (uint64_t n = 0; status == PSC_OK; n++)
        status = ct_ops->tag_send(pair.x.ep, n, &none, 0);
    ct_check(status == PSC_ERR_NO_RESOURCE, "%s", psc_status_string(status));
    ct_until(&pair, pair.y.unexpected == 16);
    ct_check(counted(&pair, PSPTL_COUNTER_dropped) == 0, "dropped");
    ct_pair_down(&pair);
}

CASE(sources_are_told_apart)
{
    static ct_pair_t pairs[3];
    char reason[PSC_REASON_MAX] = "";
    psc_iov_t none = {NULL, 0};

    ct_side_open(&pairs[0].side_a);
    ct_side_open(&pairs[0].side_b);
    ends_up(pairs, 2);
    for (int i = 0; i < 20; i++)
        ct_until(&pairs[0], ct_ops->tag_send(pairs[i % 3 != 0].x.ep, 5, &none,
                                             0) == PSC_OK);
    ct_until(&pairs[0], pairs[0].y.unexpected + pairs[1].y.unexpected == 20);
    ct_check(pairs[0].y.unexpected == 7, "%llu came by the first",
             (unsigned long long)pairs[0].y.unexpected);
    portals_iface(pairs[0].a->iface)->device->n_sources = 0xffff;
    pairs[2].a = pairs[0].a;
    pairs[2].b = pairs[0].b;
    ct_end_create(&pairs[2].x, pairs[2].a);
    ct_end_create(&pairs[2].y, pairs[2].b);
    ct_pair_connect(&pairs[2]);
    ct_check(ct_ops->tag_ready(pairs[2].x.ep, reason) == PSC_ERR_UNSUPPORTED &&
                 strstr(reason, "match bits"),
             "no source is left: %s", reason);
    ct_check(ct_ops->tag_ready(pairs[2].y.ep, reason) == PSC_ERR_UNSUPPORTED &&
                 strstr(reason, "peer"),
             "it is the peer that has none: %s", reason);
    ends_down(pairs, 3);
}
