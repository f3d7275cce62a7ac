/* Flow control, and queues and lists that overflow. Like a driver, the sending
 * side resends refused messages in order. */
#include "harness.h"

static uint8_t mine[1 << 20], theirs[1 << 20];

enum { MESSAGES = 2000, LENGTH = 64 };

/* A stream of messages with up to `window` unacknowledged ones. After a refusal
 * it waits until no put is in flight, and resends from the first refused
 * message. */
typedef struct stream {
    side_t *side;
    unsigned next, base, window;
    bool refused[MESSAGES], acked[MESSAGES];
    unsigned under_way, refusals;
} stream_t;

static void stream_put(stream_t *stream)
{
    unsigned i = stream->next++;

    stream->refused[i] = stream->acked[i] = false;
    same(PtlPut(stream->side->md, (uintptr_t)mine + i % 1000, LENGTH,
                PTL_ACK_REQ, stream->side->peer, stream->side->pt, 0, 0,
                (void *)(uintptr_t)i, i),
         PTL_OK);
    stream->under_way++;
}

static void stream_event(stream_t *stream, ptl_ni_fail_t refusal)
{
    ptl_event_t event = next_event(stream->side);
    unsigned i = (unsigned)(uintptr_t)event.user_ptr;

    same(event.type, PTL_EVENT_ACK);
    stream->under_way--;
    if (event.ni_fail_type != PTL_NI_OK) {
        same(event.ni_fail_type, refusal);
        stream->refused[i] = true;
        stream->refusals++;
    } else {
        stream->acked[i] = true;
    }
}

/* Sends until every message has been accepted. */
static void stream_run(stream_t *stream, ptl_ni_fail_t refusal)
{
    fill(mine, sizeof(mine), 0);
    while (stream->base < MESSAGES) {
        bool blocked = false;

        for (unsigned i = stream->base; i < stream->next; i++)
            blocked |= stream->refused[i];
        if (blocked && stream->under_way == 0) {
            stream->next = stream->base;
            while (stream->refused[stream->next] == false)
                stream->next++;
            meet(stream->side); /* no further message will arrive, */
            meet(stream->side); /* so the target can enable the table entry */
            blocked = false;
            for (unsigned i = stream->next; i < MESSAGES; i++)
                stream->refused[i] = false;
        }
        while (!blocked && stream->next < MESSAGES &&
               stream->next - stream->base < stream->window)
            stream_put(stream);
        stream_event(stream, refusal);
        while (stream->base < stream->next && stream->acked[stream->base])
            stream->base++;
    }
    tell(stream->side, 1);
}

static void stream_first(side_t *side)
{
    stream_t stream = {.side = side, .window = 32};

    meet(side);
    stream_run(&stream, PTL_NI_PT_DISABLED);
    check(stream.refusals > 0);
}

/* Appends use-once entries up to the message number `upto`. */
static void stream_append(side_t *side, unsigned *appended, unsigned upto)
{
    ptl_me_t me = entry_for(theirs, LENGTH, 0);

    while (*appended < upto && *appended < MESSAGES) {
        me.start = theirs + *appended % 1000 * LENGTH;
        append(side, &me, PTL_PRIORITY_LIST, (void *)(uintptr_t)*appended);
        ++*appended;
    }
}

/* Receives until all messages have arrived. Enables the table entry after each
 * PT_DISABLED event, when the sender has no put in flight. */
static void stream_second(side_t *side)
{
    unsigned appended = 0, came = 0, disabled = 0;

    stream_append(side, &appended, 8);
    meet(side);
    while (came < MESSAGES) {
        ptl_event_t event = next_event(side);

        if (event.type == PTL_EVENT_PT_DISABLED) {
            disabled++;
            meet_busily(side);
            stream_append(side, &appended, came + 40);
            same(PtlPTEnable(side->ni, side->pt), PTL_OK);
            meet(side);
            continue;
        }
        same(event.type, PTL_EVENT_PUT);
        same(event.hdr_data, came); /* each message once, and in order */
        same((uintptr_t)event.user_ptr, came);
        check(memcmp(event.start, theirs + came % 1000 * LENGTH, LENGTH) == 0);
        came++;
    }
    same(told(side), 1);
    check(disabled > 0);
}

CASE(flow_control)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.pt_options = PTL_PT_FLOWCTRL;
    pair(stream_first, stream_second);
}

/* Replaces the target's event queue by one of 16 events, which overflows. */
static void shrink_queue(side_t *side)
{
    ptl_pt_index_t before = side->pt;

    same(PtlPTFree(side->ni, side->pt), PTL_OK);
    same(PtlEQAlloc(side->ni, 16, &side->eq), PTL_OK);
    same(PtlPTAlloc(side->ni, PTL_PT_FLOWCTRL, side->eq, before, &side->pt),
         PTL_OK);
}

static void full_second(side_t *side)
{
    unsigned appended = 0, came = 0, disabled = 0;
    ptl_event_t event;

    shrink_queue(side);
    stream_append(side, &appended, MESSAGES);
    meet(side);
    while (came < MESSAGES) {
        /* Take no event from the queue before the table entry is disabled. */
        while (disabled == 0 && counted(side).bytes_copied < 10 * LENGTH)
            continue;
        event = next_event(side);
        if (event.type == PTL_EVENT_PT_DISABLED) {
            disabled++;
            meet_busily(side);
            same(PtlPTEnable(side->ni, side->pt), PTL_OK);
            meet(side);
            continue;
        }
        same(event.type, PTL_EVENT_PUT);
        same(event.hdr_data, came++);
    }
    same(told(side), 1);
    check(disabled > 0);
}

CASE(flow_control_full_queue)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.pt_options = PTL_PT_FLOWCTRL;
    pair(stream_first, full_second);
}

/* The target runs out of headers for unexpected messages. */
static void headers_second(side_t *side)
{
    ptl_me_t over = entry_for(theirs, sizeof(theirs), 0);
    ptl_me_t wild = entry_for(NULL, 0, 0);
    unsigned came = 0, disabled = 0;

    over.options = PTL_ME_OP_PUT | PTL_ME_MANAGE_LOCAL |
                   PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_COMM_DISABLE;
    append(side, &over, PTL_OVERFLOW_LIST, NULL);
    meet(side);
    while (came + 10 < MESSAGES) {
        expect(side, PTL_EVENT_PT_DISABLED, PTL_NI_OK);
        disabled++;
        meet_busily(side);
        wild.options = PTL_ME_OP_PUT;
        same(PtlMESearch(side->ni, side->pt, &wild, PTL_SEARCH_DELETE, NULL),
             PTL_OK);
        for (unsigned i = 0; i < 10; i++)
            same(expect(side, PTL_EVENT_SEARCH, PTL_NI_OK).hdr_data, came++);
        same(PtlPTEnable(side->ni, side->pt), PTL_OK);
        meet(side);
    }
    same(told(side), 1);
    same(disabled, MESSAGES / 10 - 1);
}

CASE(flow_control_headers)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.pt_options = PTL_PT_FLOWCTRL;
    setup.settings.max_headers = 10;
    pair(stream_first, headers_second);
}

/* ---- a fault disables the table under load ---- */

static void forced_second(side_t *side)
{
    stream_second(side);
    check(counted(side).tables_disabled >= 1000);
}

CASE(flow_control_forced)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.pt_options = PTL_PT_FLOWCTRL;
    setup.settings.disable_tables = 400000;
    setup.settings.seed = 11;
    pair(stream_first, forced_second);
}

enum { REPLIES = 3, ROUNDS = 200 };

/* Puts whose ACKs must be sent while the replies to gets fill the window. */
static void acks_first(side_t *side)
{
    meet(side);
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned i = 0; i < REPLIES; i++)
            same(PtlGet(side->md, (uintptr_t)theirs, 3000, side->peer, side->pt,
                        1, 0, NULL),
                 PTL_OK);
        put(side, mine, LENGTH, 0, round, PTL_ACK_REQ);
        for (unsigned i = 0; i < REPLIES + 1; i++)
            same(next_event(side).ni_fail_type, PTL_NI_OK);
    }
    tell(side, 1);
}

static void acks_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, LENGTH, 0);

    me.options =
        PTL_ME_OP_PUT | PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_COMM_DISABLE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    me = entry_for(mine, 3000, 1);
    me.options =
        PTL_ME_OP_GET | PTL_ME_EVENT_LINK_DISABLE | PTL_ME_EVENT_COMM_DISABLE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    same(told(side), 1);
}

/* The window of a lossy wire is narrow, so ACKs wait for room in it. */
CASE(acks_in_a_narrow_window)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.drop = setup.settings.duplicate = 100000;
    setup.settings.seed = 5;
    pair(acks_first, acks_second);
}

/* ---- without flow control events are lost, and the queue reports it ---- */

static void overflows_first(side_t *side)
{
    meet(side);
    for (unsigned i = 0; i < 20; i++) {
        put(side, mine, 8, 0, i, PTL_ACK_REQ);
        expect(side, PTL_EVENT_ACK, PTL_NI_OK);
    }
    meet(side);
}

static void overflows_second(side_t *side)
{
    ptl_me_t me = entry_for(theirs, 8, 0);
    ptl_event_t event;

    me.options &= ~PTL_ME_USE_ONCE;
    append(side, &me, PTL_PRIORITY_LIST, NULL);
    meet(side);
    meet(side);
    for (unsigned i = 0; i < 8; i++) {
        int rc = PtlEQGet(side->eq, &event);

        same(rc, i == 0 ? PTL_EQ_DROPPED : PTL_OK);
        same(event.hdr_data, i);
    }
    same(PtlEQGet(side->eq, &event), PTL_EQ_EMPTY);
}

CASE(queue_overflows)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.max_events = 8;
    pair(overflows_first, overflows_second);
}

/* ---- faults that the caller sees ---- */

static void failing_first(side_t *side)
{
    unsigned failed = 0;

    meet(side);
    for (unsigned i = 0; i < MESSAGES; i++) {
        ptl_event_t event;

        do {
            put(side, mine, LENGTH, 0, i, PTL_ACK_REQ);
            event = next_event(side);
            same(event.type, PTL_EVENT_ACK);
            failed += event.ni_fail_type == PTL_NI_DROPPED;
        } while (event.ni_fail_type == PTL_NI_DROPPED);
        same(event.ni_fail_type, PTL_NI_OK);
    }
    tell(side, failed);
}

static void failing_second(side_t *side)
{
    unsigned appended = 0, failed;

    stream_append(side, &appended, MESSAGES);
    meet(side);
    for (unsigned i = 0; i < MESSAGES; i++)
        same(expect(side, PTL_EVENT_PUT, PTL_NI_OK).hdr_data, i);
    failed = (unsigned)told(side);
    check(failed > 0);
    same(counted(side).acks_failed, failed);
}

CASE(failed_acks)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.settings.fail_acks = 50000;
    setup.settings.seed = 7;
    pair(failing_first, failing_second);
}

static void reordered_first(side_t *side)
{
    meet(side);
    for (unsigned i = 0; i < MESSAGES; i++)
        put(side, mine, LENGTH, 0, i, PTL_ACK_REQ);
    for (unsigned i = 0; i < MESSAGES; i++)
        expect(side, PTL_EVENT_ACK, PTL_NI_OK);
}

static void reordered_second(side_t *side)
{
    static bool came[MESSAGES];
    unsigned appended = 0, out_of_order = 0;

    stream_append(side, &appended, MESSAGES);
    meet(side);
    for (unsigned i = 0; i < MESSAGES; i++) {
        ptl_event_t event = expect(side, PTL_EVENT_PUT, PTL_NI_OK);

        check(!came[event.hdr_data]);
        came[event.hdr_data] = true;
        same((uintptr_t)event.user_ptr, event.hdr_data);
        out_of_order += event.hdr_data != i;
    }
    check(out_of_order > 0);
    check(counted(side).events_reordered > 0);
}

CASE(reordered_events)
{
    setup.md_options = PTL_MD_EVENT_SEND_DISABLE;
    setup.eq_size = 4096;
    setup.settings.reorder_events = 50000;
    setup.settings.seed = 7;
    pair(reordered_first, reordered_second);
}
