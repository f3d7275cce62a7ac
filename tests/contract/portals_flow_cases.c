/* Cases of portals alone: the table entry whose messages the interface matches
 * closes, or drops one, and nothing is lost or overtaken. */
#include "portals_cases.h"

/* ---- two streams ---- */

#define STREAM 64 /* receives that are posted at a time */

typedef struct place {
    psc_tag_recv_t recv;
    char buffer[1500];
    bool posted, done;
    uint64_t number; /* number of the message that belongs there */
} place_t;

/* A message that is put directly from its buffer. */
typedef struct direct {
    psc_comp_t comp;
    char buffer[1500];
    bool flying;
} direct_t;

/* Each end sends to the other with rotating tags, and posts receives in
 * advance: every fifth takes any tag. So the n-th message belongs to the n-th
 * receive. Every seventh message is put directly from its buffer. */
typedef struct stream {
    ct_end_t *from, *to;
    place_t places[STREAM];
    direct_t directs[STREAM];
    uint64_t posted, sent, done;
} stream_t;

/* Number of direct messages that met a receive: reported by the sender, and
 * counted at the receiver. */
static uint64_t n_taken, n_here;

static bool stream_direct(uint64_t number)
{
    return number % 7 == 3;
}

/* Receives have room for their own message and not for the next one: a message
 * in the wrong receive is truncated and lost. */
static bool stream_exact;

static uint64_t stream_bits(uint64_t number)
{
    return 1ull << PSC_TAG_CONTEXT_SHIFT | number % 3 |
           (stream_direct(number) ? PSC_TAG_MARK : 0);
}

static size_t stream_len(uint64_t number)
{
    return number % 1400 + 1;
}

static void stream_done(psc_tag_recv_t *recv, psc_status_t status,
                        uint64_t bits, size_t len)
{
    place_t *place = (place_t *)(void *)recv;
    bool direct = stream_direct(place->number);

    ct_check(status == PSC_OK || (direct && status == PSC_ERR_UNSUPPORTED),
             "%s", psc_status_string(status));
    ct_check(len == stream_len(place->number) &&
                 bits == stream_bits(place->number) &&
                 (status != PSC_OK ||
                  ct_pattern_check(place->buffer, len, place->number)),
             "receive %llu got %zu bytes of tag %d",
             (unsigned long long)place->number, len,
             (int)(bits & PSC_TAG_MASK));
    n_here += direct && status == PSC_OK;
    place->done = true;
}

static void stream_direct_done(psc_comp_t *comp, psc_status_t status)
{
    direct_t *direct = (direct_t *)(void *)comp;

    ct_check(status == PSC_OK || status == PSC_ERR_UNSUPPORTED, "%s",
             psc_status_string(status));
    n_taken += status == PSC_OK;
    direct->flying = false;
}

static psc_status_t stream_put(stream_t *stream)
{
    direct_t *direct = &stream->directs[stream->sent % STREAM];
    size_t len = stream_len(stream->sent);
    uint32_t number;
    psc_status_t status;

    if (direct->flying)
        return PSC_ERR_NO_RESOURCE;
    direct->comp.func = stream_direct_done;
    ct_pattern_fill(direct->buffer, len, stream->sent);
    status = ct_ops->tag_put(stream->from->ep, stream_bits(stream->sent),
                             direct->buffer, len, &number, &direct->comp);
    direct->flying = status == PSC_INPROGRESS;
    return direct->flying ? PSC_OK : status;
}

static psc_status_t stream_send(stream_t *stream)
{
    char bytes[1500];
    psc_iov_t iov = {bytes, stream_len(stream->sent)};

    if (stream_direct(stream->sent))
        return stream_put(stream);
    ct_pattern_fill(bytes, iov.len, stream->sent);
    return ct_ops->tag_send(stream->from->ep, stream_bits(stream->sent), &iov,
                            1);
}

static void stream_post(stream_t *stream)
{
    place_t *place = &stream->places[stream->posted % STREAM];

    *place = (place_t){.posted = true, .number = stream->posted};
    place->recv = (psc_tag_recv_t){
        .source = stream->to->ep,
        .match = stream_bits(stream->posted),
        .ignore = PSC_TAG_MARK | (stream->posted % 5 == 0 ? PSC_TAG_MASK : 0),
        .buffer = {place->buffer, stream_exact ? stream_len(stream->posted)
                                               : sizeof(place->buffer)},
        .done = stream_done,
    };
    ct_check(ct_ops->tag_post(stream->to->ep, &place->recv) == PSC_OK,
             "receive %llu", (unsigned long long)stream->posted);
    stream->posted++;
}

static void stream_go_on(stream_t *stream)
{
    place_t *oldest = &stream->places[stream->done % STREAM];

    while (oldest->posted && oldest->done && oldest->number == stream->done)
        oldest = &stream->places[++stream->done % STREAM];
    while (stream->posted - stream->done < STREAM)
        stream_post(stream);
    if (stream->sent + 1 >= stream->posted)
        return;
    if (stream_send(stream) == PSC_OK)
        stream->sent++;
}

/* True if the last message has arrived; its place may already be used by
 * another. */
static bool stream_arrived(const stream_t *stream)
{
    const place_t *last = &stream->places[(stream->sent - 1) % STREAM];

    return last->done || last->number != stream->sent - 1;
}

/* Runs both directions until the counter `which` has reached `least`, and then
 * until all messages have arrived. */
static void streams_run(ct_pair_t *pair, psptl_counter_t which, uint64_t least)
{
    static stream_t there, back;
    int64_t deadline = ct_deadline();

    there = (stream_t){.from = &pair->x, .to = &pair->y};
    back = (stream_t){.from = &pair->y, .to = &pair->x};
    while (counted(pair, which) < least) {
        stream_go_on(&there);
        stream_go_on(&back);
        ct_pair_progress(pair);
        ct_check(!pair->x.failed && !pair->y.failed, "%s%s", pair->x.reason,
                 pair->y.reason);
        ct_check(psc_clock_now() < deadline, "%llu of %llu",
                 (unsigned long long)counted(pair, which),
                 (unsigned long long)least);
    }
    for (stream_t *s = &there; s; s = s == &there ? &back : NULL) {
        ct_until(pair, stream_arrived(s));
        for (int i = 0; i < STREAM; i++)
            ct_until(pair, !s->directs[i].flying);
        for (uint64_t n = s->sent; n < s->posted; n++)
            ct_check(ct_ops->tag_cancel(s->to->ep,
                                        &s->places[n % STREAM].recv) == PSC_OK,
                     "receive %llu", (unsigned long long)n);
    }
    ct_check(pair->x.unexpected + pair->y.unexpected == 0, "unexpected");
    ct_check(n_taken == n_here, "%llu were taken, %llu are here",
             (unsigned long long)n_taken, (unsigned long long)n_here);
    print_counters(pair);
}

/* No message is lost or overtakes another, a thousand times; with one put in
 * forty the entry is disabled. */
CASE(an_entry_that_matches_closes_and_opens)
{
    ct_pair_t pair;

    stream_exact = true;
    fault("disable_tables", 25000);
    ct_pair_up(&pair);
    streams_run(&pair, PSPTL_COUNTER_tag_enables, 1000);
    ct_pair_down(&pair);
}

CASE(messages_that_were_dropped_find_their_receives)
{
    ct_pair_t pair;

    fault("fail_acks", 10000);
    ct_pair_up(&pair);
    streams_run(&pair, PSPTL_COUNTER_tag_puts, 10000);
    ct_check(counted(&pair, PSPTL_COUNTER_resends) > 50, "resends");
    ct_pair_down(&pair);
}

CASE(both_at_once_and_the_wire_too)
{
    ct_pair_t pair;

    fault("disable_tables", 5000);
    fault("fail_acks", 5000);
    fault("drop", 5000);
    fault("duplicate", 5000);
    fault("reorder", 5000);
    ct_pair_up(&pair);
    streams_run(&pair, PSPTL_COUNTER_tag_puts, 3000);
    ct_pair_down(&pair);
}

/* ---- one step at a time ---- */

static ptl_handle_eq_t closed_queue;

static int take_closed(const ptl_handle_eq_t *queues, unsigned n,
                       ptl_time_t timeout, ptl_event_t *event, unsigned *which)
{
    if (closed_queue == PTL_INVALID_HANDLE)
        return real_ni->PtlEQPoll(queues, n, timeout, event, which);
    *event = (ptl_event_t){.type = PTL_EVENT_PT_DISABLED};
    for (*which = 0; queues[*which] != closed_queue;)
        ++*which;
    closed_queue = PTL_INVALID_HANDLE;
    return PTL_OK;
}

/* The table entry of y is disabled, as if its queue were full. */
static void entry_close(ct_pair_t *pair)
{
    psptl_device_t *device = portals_iface(pair->b->iface)->device;
    __typeof__(PtlPTDisable) *disable;

    ni_symbol("PtlPTDisable", &disable);
    ni_wrap(pair->b)->PtlEQPoll = take_closed;
    closed_queue = device->tag.eq;
    ct_check(disable(device->handle, device->tag.pt) == PTL_OK, "disable");
}

static void refuse(ct_pair_t *pair)
{
    int64_t deadline = ct_deadline();

    while (counter(pair->a, PSPTL_COUNTER_disabled) == 0) {
        ct_side_progress(pair->a);
        ct_check(psc_clock_now() < deadline, "nothing is refused");
    }
}

/* Receives are held until the fence is answered, and no longer. */
CASE(receives_go_back_after_the_fence)
{
    static landed_t landed[6];
    ct_pair_t pair;
    psc_iov_t none = {NULL, 0};

    ct_pair_up(&pair);
    for (int i = 0; i < 4; i++)
        landed_post(&pair, &landed[i]);
    entry_close(&pair);
    for (int i = 0; i < 3; i++)
        ct_check(ct_ops->tag_send(pair.x.ep, 0, &none, 0) == PSC_OK, "send");
    refuse(&pair);
    ct_until(&pair, landed[2].done);
    ct_check(counter(pair.b, PSPTL_COUNTER_tag_enables) == 1 &&
                 counter(pair.b, PSPTL_COUNTER_tag_held) == 4,
             "all were held");
    ct_until(&pair, counter(pair.b, PSPTL_COUNTER_tag_fences) == 1);
    ct_until(&pair, ct_pair_progress(&pair) == 0);
    landed_post(&pair, &landed[4]);
    ct_check(counter(pair.b, PSPTL_COUNTER_tag_held) == 4, "not this one");
    landed_send(&pair, 70);
    landed_send(&pair, 30);
    ct_until(&pair, landed[4].done);
    ct_check(landed[3].len == 70 && landed[4].len == 30, "in their order");
    ct_check(counter(pair.b, PSPTL_COUNTER_tag_kept) == 3, "of those before");
    ct_check(pair.y.unexpected == 0, "unexpected");
    ct_pair_down(&pair);
}

/* There are more messages than overflow buffers: the entry is disabled, and all
 * messages are delivered in order. */
CASE(too_few_overflow_buffers_lose_nothing)
{
    ct_pair_t pair;
    psc_iov_t none = {NULL, 0};

    set_number("OVERFLOW_SIZE", 2);
    set_number("SENDQ_SIZE", 64);
    ct_pair_up(&pair);
    for (uint64_t n = 0; n < 12; n++)
        ct_check(ct_ops->tag_send(pair.x.ep, n, &none, 0) == PSC_OK, "send");
    refuse(&pair);
    for (uint64_t n = 12; n < 100; n++)
        ct_until(&pair, ct_ops->tag_send(pair.x.ep, n, &none, 0) == PSC_OK);
    ct_until(&pair, pair.y.unexpected == 100);
    for (uint64_t n = 0; n < 100; n++)
        ct_check(pair.y.unexpected_bits[n] == n, "in order");
    ct_check(counter(pair.b, PSPTL_COUNTER_tag_enables) > 0, "enables");
    print_counters(&pair);
    ct_pair_down(&pair);
}

static unsigned n_astray;

/* The address of an interface that does not exist yet. */
static int put_astray(ptl_handle_md_t md, ptl_size_t local, ptl_size_t len,
                      ptl_ack_req_t ack, ptl_process_t target,
                      ptl_pt_index_t pt, ptl_match_bits_t bits,
                      ptl_size_t remote, void *user, ptl_hdr_data_t data)
{
    if (n_astray > 0) {
        n_astray--;
        pt = 60;
    }
    return real_ni->PtlPut(md, local, len, ack, target, pt, bits, remote, user,
                           data);
}

/* The first of four is dropped, and the others take the receives before it:
 * they give them back. The last finds none. */
CASE(what_took_the_receive_of_a_late_one_gives_it_back)
{
    static landed_t landed[3];
    ct_pair_t pair;
    char bytes[100];

    ct_pair_up(&pair);
    ni_wrap(pair.a)->PtlPut = put_astray;
    for (int i = 0; i < 3; i++)
        landed_post(&pair, &landed[i]);
    n_astray = 1;
    for (size_t i = 0; i < 4; i++) {
        psc_iov_t iov = {bytes, 40 + i};

        ct_pattern_fill(bytes, iov.len, 0); /* the seed is the match bits */
        ct_check(ct_ops->tag_send(pair.x.ep, 0, &iov, 1) == PSC_OK, "send");
    }
    ct_until(&pair, pair.y.unexpected == 1);
    for (size_t i = 0; i < 3; i++)
        ct_check(landed[i].done && landed[i].len == 40 + i &&
                     ct_pattern_check(landed[i].buffer, 40 + i, 0),
                 "receive %zu", i);
    ct_check(counter(pair.b, PSPTL_COUNTER_tag_rewinds) == 1, "rewinds");
    ct_pair_down(&pair);
}

typedef struct given {
    psc_tag_recv_t recv;
    char buffer[100];
    bool done;
    psc_status_t status;
    size_t len;
} given_t;

static void given_done(psc_tag_recv_t *recv, psc_status_t status, uint64_t bits,
                       size_t len)
{
    given_t *given = (given_t *)(void *)recv;

    ct_check(bits == PSC_TAG_MARK, "bits");
    given->done = true;
    given->status = status;
    given->len = len;
}

/* The same with messages that are put from where they are. The first one finds
 * that all receives are held; the others are here, which their sender knows. */
CASE(what_is_put_from_where_it_is_gives_its_receive_back)
{
    static given_t given[3];
    static direct_t directs[4];
    ct_pair_t pair;
    uint32_t number;

    ct_pair_up(&pair);
    ni_wrap(pair.a)->PtlPut = put_astray;
    for (int i = 0; i < 3; i++) {
        given[i].recv = (psc_tag_recv_t){
            .source = pair.y.ep,
            .ignore = PSC_TAG_MARK,
            .buffer = {given[i].buffer, sizeof(given[i].buffer)},
            .done = given_done,
        };
        ct_check(ct_ops->tag_post(pair.y.ep, &given[i].recv) == PSC_OK, "post");
    }
    n_astray = 1;
    for (size_t i = 0; i < 4; i++) {
        directs[i].comp.func = stream_direct_done;
        directs[i].flying = true;
        ct_pattern_fill(directs[i].buffer, 40 + i, PSC_TAG_MARK);
        ct_check(ct_ops->tag_put(pair.x.ep, PSC_TAG_MARK, directs[i].buffer,
                                 40 + i, &number,
                                 &directs[i].comp) == PSC_INPROGRESS,
                 "put");
    }
    ct_until(&pair, pair.y.unexpected == 1);
    for (size_t i = 0; i < 3; i++)
        ct_check(given[i].done && given[i].len == 40 + i &&
                     (i == 0 ? given[i].status == PSC_ERR_UNSUPPORTED
                             : ct_pattern_check(given[i].buffer, 40 + i,
                                                PSC_TAG_MARK)),
                 "receive %zu", i);
    for (int i = 0; i < 4; i++)
        ct_until(&pair, !directs[i].flying);
    ct_check(n_taken == 3, "the sender knows");
    ct_check(counter(pair.b, PSPTL_COUNTER_tag_rewinds) == 1, "rewinds");
    ct_pair_down(&pair);
}

/* A message that was truncated by the wrong receive cannot be restored. */
CASE(a_late_one_whose_follower_was_cut_is_an_error)
{
    static landed_t landed[2];
    ct_pair_t pair;
    char bytes[100] = "";
    psc_iov_t one = {bytes, 10}, long_one = {bytes, 90};

    ct_pair_up(&pair);
    ni_wrap(pair.a)->PtlPut = put_astray;
    landed_post_room(&pair, &landed[0], 20);
    landed_post(&pair, &landed[1]);
    n_astray = 1;
    ct_check(ct_ops->tag_send(pair.x.ep, 0, &one, 1) == PSC_OK, "send");
    ct_check(ct_ops->tag_send(pair.x.ep, 0, &long_one, 1) == PSC_OK, "send");
    ct_until(&pair, pair.y.failed);
    ct_check(landed[0].done && landed[0].len == 10 && !landed[1].done,
             "the first one is right");
    ct_check(strstr(pair.y.reason, "PSP_PORTALS_MATCHING"), "%s",
             pair.y.reason);
    ct_check(ct_ops->tag_cancel(pair.y.ep, &landed[1].recv) == PSC_OK, "held");
    ct_pair_down(&pair);
}
