#include "control_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "worker.h"
#include "pscompy/transport/kit/restart.h"

int psc_control_events_open(psc_control_events_t *control_events)
{
    *control_events = (psc_control_events_t){.log_fd = -1};
    psc_list_init(&control_events->posted);
    psc_list_init(&control_events->quiet);
    psc_list_init(&control_events->callers);
    control_events->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return control_events->fd < 0 ? -1 : 0;
}

void psc_control_events_close(psc_control_events_t *control_events)
{
    psc_control_event_t event;

    while (psc_control_events_take_callers(control_events, &event, 1) > 0)
        continue;
    if (control_events->fd >= 0)
        close(control_events->fd);
}

/* ---- control events ---- */

void psc_event_slot_init(psc_event_slot_t *slot, psc_control_kind_t kind,
                         uint64_t id)
{
    *slot = (psc_event_slot_t){.event = {kind, id}};
    psc_list_init(&slot->link);
}

void psc_control_event_post(psc_control_events_t *control_events,
                            psc_event_slot_t *slot)
{
    if (slot->quiet)
        psc_list_remove(&slot->link);
    slot->quiet = false;
    if (slot->ended || psc_link_listed(&slot->link))
        return;
    if (psc_list_empty(&control_events->posted))
        psc_control_events_ring(control_events);
    psc_list_push(&control_events->posted, &slot->link);
}

void psc_control_event_post_quietly(psc_control_events_t *control_events,
                                    psc_event_slot_t *slot)
{
    if (!slot->quiet)
        psc_control_event_post(control_events, slot);
    else if (!slot->ended && !psc_link_listed(&slot->link))
        psc_list_push(&control_events->quiet, &slot->link);
}

psc_status_t psc_control_events_caller(psc_control_events_t *control_events,
                                       int rank)
{
    psc_event_slot_t *slot = malloc(sizeof *slot);

    if (!slot)
        return PSC_ERR_NO_MEMORY;
    psc_event_slot_init(slot, PSC_CONTROL_CALLER, (uint64_t)rank);
    if (psc_list_empty(&control_events->callers))
        psc_control_events_hold(control_events, +1);
    psc_list_push(&control_events->callers, &slot->link);
    return PSC_OK;
}

int psc_control_events_take_callers(psc_control_events_t *control_events,
                                    psc_control_event_t *events, int max)
{
    psc_link_t *link;
    int n = 0;

    while (n < max && (link = psc_list_pop(&control_events->callers))) {
        psc_event_slot_t *slot = psc_container_of(link, psc_event_slot_t, link);

        events[n++] = slot->event;
        free(slot);
    }
    if (n > 0 && psc_list_empty(&control_events->callers))
        psc_control_events_hold(control_events, -1);
    return n;
}

void psc_event_slot_end(psc_event_slot_t *slot)
{
    slot->ended = true;
    psc_list_remove(&slot->link);
}

int psc_control_events_take(psc_control_events_t *control_events,
                            psc_control_event_t *events, int max)
{
    psc_link_t *link;
    int n = 0;

    while (n < max && (link = psc_list_pop(&control_events->posted)))
        events[n++] = psc_container_of(link, psc_event_slot_t, link)->event;
    if (n < max)
        psc_descriptor_clear(control_events->fd);
    return n;
}

int psc_control_events_take_quiet(psc_control_events_t *control_events,
                                  psc_control_event_t *events, int max)
{
    psc_link_t *link;
    int n = 0;

    while (n < max && (link = psc_list_pop(&control_events->quiet))) {
        psc_event_slot_t *slot = psc_container_of(link, psc_event_slot_t, link);

        slot->quiet = false;
        events[n++] = slot->event;
    }
    return n;
}

void psc_control_events_ring(psc_control_events_t *control_events)
{
    psc_descriptor_signal(control_events->fd);
}

void psc_control_events_hold(psc_control_events_t *control_events, int change)
{
    control_events->n_holding += (uint32_t)change;
    if (control_events->n_holding == 0 || control_events->holding_reported)
        return;
    control_events->holding_reported = true;
    psc_control_events_ring(control_events);
}

/* ---- the log ---- */

void psc_control_events_log(const psc_control_events_t *control_events,
                            int level, const char *line)
{
    char text[PSC_REASON_MAX + 32];
    int len;

    if (control_events->log_fd < 0 || level > control_events->log_level)
        return;
    len = snprintf(text, sizeof text, "%d %s\n", level, line);
    if (len > (int)sizeof text - 1)
        len = (int)sizeof text - 1;
    text[len - 1] = '\n';
    if (PSC_RESTART(write(control_events->log_fd, text, (size_t)len)) < 0)
        return; /* the pipe is full: the line is lost */
}
