/* One pass of the driver (psptl_device_poll): handles the events of the queues,
 * then sends the messages and fragments that are due, and reports to the
 * owner. */
#include <stdio.h>

#include "channel.h"
#include "match.h"
#include "pscompy/transport/kit/clock.h"

/* maximum number of events that one call of event_take handles */
#define EVENT_BATCH 64u
/* nanoseconds between two checks of busy regions, which were revoked or closed
 * while a put or get used them */
#define EVENT_REGION_POLL_NS 10000000ll

static void event_fail_all(psptl_device_t *device, const char *reason)
{
    device->lossy = true;
    psc_list_for_each(channel, &device->channels, psptl_channel_t, link)
        psptl_channel_fail(channel, PSPTL_BROKEN, "%s", reason);
}

/* Handles the event that completes a put or get of this side. */
static void event_answer(const ptl_event_t *event)
{
    psptl_op_t *op = event->user_ptr;

    switch (op->kind) {
    case PSPTL_SEND:
        psptl_send_event(psc_container_of(op, psptl_send_t, op), event);
        break;
    case PSPTL_FRAGMENT:
        psptl_bulk_event(psc_container_of(op, psptl_fragment_t, op), event);
        break;
    case PSPTL_PING:
        psptl_ping_event(psc_container_of(op, psptl_channel_t, ping.op), event);
        break;
    default:
        break;
    }
}

static void event_unknown(psptl_device_t *device, const ptl_event_t *event)
{
    char reason[PSPTL_REASON_MAX];

    snprintf(reason, sizeof(reason),
             "the interface reports an event %d, which pscompy does not use "
             "(PSP_PORTALS_PROVIDER)",
             (int)event->type);
    event_fail_all(device, reason);
}

/* Without a working queue no operation is known to end. */
static void event_unreadable(psptl_device_t *device, int status)
{
    char reason[PSPTL_REASON_MAX];

    snprintf(reason, sizeof(reason),
             "the interface's event queues cannot be read (error %d)", status);
    event_fail_all(device, reason);
}

static void event_handle(psptl_device_t *device, psptl_entry_t *entry,
                         const ptl_event_t *event)
{
    psptl_op_t *op = event->user_ptr;

    switch (event->type) {
    case PTL_EVENT_PUT_OVERFLOW:
    case PTL_EVENT_SEARCH:
        psptl_match_event(event);
        break;
    case PTL_EVENT_PUT:
        if (entry == &device->tag)
            psptl_match_event(event);
        else if (op && op->kind == PSPTL_BUFFER)
            psptl_buffer_event(psc_container_of(op, psptl_buffer_t, op), event);
        break;
    case PTL_EVENT_ACK:
    case PTL_EVENT_REPLY:
        event_answer(event);
        break;
    /* after a SEND event that reports a failure no ACK or REPLY follows */
    case PTL_EVENT_SEND:
        if (event->ni_fail_type != PTL_NI_OK)
            event_answer(event);
        break;
    case PTL_EVENT_PT_DISABLED:
        entry->disabled = true;
        break;
    case PTL_EVENT_LINK:
    case PTL_EVENT_AUTO_UNLINK:
    case PTL_EVENT_AUTO_FREE:
        break;
    default:
        event_unknown(device, event);
    }
}

static void event_enable(psptl_device_t *device, psptl_entry_t *entry)
{
    if (device->ni->PtlPTEnable(device->handle, entry->pt) != PTL_OK)
        return;
    entry->disabled = false;
    psptl_device_count(device, PSPTL_COUNTER_enables);
}

/* Called when all events from before a portal table entry was disabled have
 * been handled, so the entry may be enabled. Messages that the interface has
 * refused arrive again; all receives are withdrawn, so that later messages
 * cannot consume the receives of the refused ones. */
static void event_drained(psptl_device_t *device)
{
    if (device->eager.disabled)
        event_enable(device, &device->eager);
    if (!device->tag.disabled || !psptl_withhold_all(device))
        return;
    event_enable(device, &device->tag);
    if (device->tag.disabled)
        return;
    psptl_device_count(device, PSPTL_COUNTER_tag_enables);
    psptl_withhold_ask(device);
}

/* Takes one event. Polls the event queue of the entry `bulk` first, because the
 * number of its events is bounded by the operations in flight. One call polls
 * all queues, because an interface in software makes a system call for every
 * poll that finds no event. */
static int event_poll(psptl_device_t *device, psptl_entry_t **entry_p,
                      ptl_event_t *event)
{
    psptl_entry_t *entries[] = {&device->bulk, &device->eager, &device->tag};
    ptl_handle_eq_t queues[] = {device->bulk.eq, device->eager.eq,
                                device->tag.eq};
    unsigned which = 0;
    int status = device->ni->PtlEQPoll(queues, device->tag.open ? 3 : 2, 0,
                                       event, &which);

    *entry_p = entries[which];
    return status;
}

static int event_next(psptl_device_t *device, psptl_entry_t **entry_p,
                      ptl_event_t *event)
{
    psptl_late_t late;

    if (psptl_backlog_empty(device))
        return event_poll(device, entry_p, event);
    late = psptl_backlog_take(device);
    *entry_p = late.entry;
    *event = late.event;
    return late.status;
}

/* Handles up to EVENT_BATCH events. Stops after the first message that is
 * delivered, because one more poll of the interface may cost a system call. */
static unsigned event_take(psptl_device_t *device)
{
    uint64_t delivered = device->n_delivered;
    unsigned n = 0;

    for (; n < EVENT_BATCH && device->n_delivered == delivered &&
           psc_list_empty(&device->ended_bulks);
         n++) {
        ptl_event_t event;
        psptl_entry_t *entry;
        int status = event_next(device, &entry, &event);

        if (status == PTL_EQ_EMPTY)
            event_drained(device);
        else if (status != PTL_OK && status != PTL_EQ_DROPPED)
            event_unreadable(device, status);
        if (status != PTL_OK && status != PTL_EQ_DROPPED)
            break;
        event_handle(device, entry, &event);
        if (status == PTL_EQ_DROPPED)
            event_fail_all(device, "the event queue was full and events are "
                                   "lost (PSP_PORTALS_EQ_SIZE)");
    }
    return n;
}

/* Makes additional polls for an interface that makes progress only when it is
 * polled. */
static unsigned event_foster(psptl_device_t *device)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < device->settings.foster; i++) {
        n += event_take(device);
        psptl_device_count(device, PSPTL_COUNTER_foster_polls);
    }
    return n;
}

unsigned psptl_device_poll(psptl_device_t *device)
{
    unsigned n = event_take(device);

    if (device->n_bulks > 0)
        n += event_foster(device);
    if (!psc_list_empty(&device->pending))
        psptl_deliver_pending(device);
    if (!psc_list_empty(&device->ended_bulks))
        n += psptl_bulk_report(device);
    if (!psc_list_empty(&device->lost_tags))
        n += psptl_deliver_lost(device);
    if (!psc_list_empty(&device->unsettled))
        psptl_withhold_settle(device);
    if (!psc_list_empty(&device->waiting))
        psptl_send_again(device);
    if (device->n_bulks > 0)
        psptl_bulk_go_on(device);
    if (!psc_list_empty(&device->zombies))
        psptl_channel_reap(device);
    if (!psc_list_empty(&device->busy_regions))
        psptl_region_reap(device);
    return n;
}

/* Returns the time of the next psptl_device_poll that is needed without an
 * event. Busy regions (revoked or closed while in use) need one from time to
 * time, because the end of a peer's put into a region makes no event. */
int64_t psptl_device_deadline(const psptl_device_t *device)
{
    int64_t due = psc_list_empty(&device->busy_regions)
                      ? INT64_MAX
                      : psc_clock_deadline(EVENT_REGION_POLL_NS);

    psc_list_for_each(channel, &device->waiting, psptl_channel_t,
                      sending.waiting)
        due = channel->sending.retry_at < due ? channel->sending.retry_at : due;
    psc_list_for_each(late, &device->late_fragments, psptl_fragment_t, link)
        due = late->retry_at < due ? late->retry_at : due;
    return due;
}
