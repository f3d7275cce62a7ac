#include "notices.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "descriptor.h"
#include "pscompy/transport/kit/restart.h"

int psc_notices_open(psc_notices_t *notices)
{
    *notices = (psc_notices_t){.log_fd = -1};
    psc_list_init(&notices->posted);
    psc_list_init(&notices->quiet);
    psc_list_init(&notices->callers);
    notices->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return notices->fd < 0 ? -1 : 0;
}

void psc_notices_close(psc_notices_t *notices)
{
    psc_control_event_t event;

    while (psc_notices_take_callers(notices, &event, 1) > 0)
        continue;
    if (notices->fd >= 0)
        close(notices->fd);
}

/* ---- notices ---- */

void psc_notice_init(psc_notice_t *notice, psc_control_kind_t kind, uint64_t id)
{
    *notice = (psc_notice_t){.event = {kind, id}};
    psc_list_init(&notice->link);
}

void psc_notice_post(psc_notices_t *notices, psc_notice_t *notice)
{
    if (notice->quiet)
        psc_list_remove(&notice->link);
    notice->quiet = false;
    if (notice->ended || psc_link_listed(&notice->link))
        return;
    if (psc_list_empty(&notices->posted))
        psc_notices_ring(notices);
    psc_list_push(&notices->posted, &notice->link);
}

void psc_notice_post_quietly(psc_notices_t *notices, psc_notice_t *notice)
{
    if (!notice->quiet)
        psc_notice_post(notices, notice);
    else if (!notice->ended && !psc_link_listed(&notice->link))
        psc_list_push(&notices->quiet, &notice->link);
}

psc_status_t psc_notice_caller(psc_notices_t *notices, int rank)
{
    psc_notice_t *notice = malloc(sizeof *notice);

    if (!notice)
        return PSC_ERR_NO_MEMORY;
    psc_notice_init(notice, PSC_CONTROL_CALLER, (uint64_t)rank);
    if (psc_list_empty(&notices->callers))
        psc_notices_hold(notices, +1);
    psc_list_push(&notices->callers, &notice->link);
    return PSC_OK;
}

int psc_notices_take_callers(psc_notices_t *notices,
                             psc_control_event_t *events, int max)
{
    psc_link_t *link;
    int n = 0;

    while (n < max && (link = psc_list_pop(&notices->callers))) {
        psc_notice_t *notice = psc_container_of(link, psc_notice_t, link);

        events[n++] = notice->event;
        free(notice);
    }
    if (n > 0 && psc_list_empty(&notices->callers))
        psc_notices_hold(notices, -1);
    return n;
}

void psc_notice_end(psc_notice_t *notice)
{
    notice->ended = true;
    psc_list_remove(&notice->link);
}

int psc_notices_take(psc_notices_t *notices, psc_control_event_t *events,
                     int max)
{
    psc_link_t *link;
    int n = 0;

    while (n < max && (link = psc_list_pop(&notices->posted)))
        events[n++] = psc_container_of(link, psc_notice_t, link)->event;
    if (n < max)
        psc_descriptor_clear(notices->fd);
    return n;
}

int psc_notices_take_quiet(psc_notices_t *notices, psc_control_event_t *events,
                           int max)
{
    psc_link_t *link;
    int n = 0;

    while (n < max && (link = psc_list_pop(&notices->quiet))) {
        psc_notice_t *notice = psc_container_of(link, psc_notice_t, link);

        notice->quiet = false;
        events[n++] = notice->event;
    }
    return n;
}

void psc_notices_ring(psc_notices_t *notices)
{
    psc_descriptor_signal(notices->fd);
}

void psc_notices_hold(psc_notices_t *notices, int change)
{
    notices->n_holding += (uint32_t)change;
    if (notices->n_holding == 0 || notices->holding_reported)
        return;
    notices->holding_reported = true;
    psc_notices_ring(notices);
}

/* ---- the log ---- */

void psc_notices_log(const psc_notices_t *notices, int level, const char *line)
{
    char text[PSC_REASON_MAX + 32];
    int len;

    if (notices->log_fd < 0 || level > notices->log_level)
        return;
    len = snprintf(text, sizeof text, "%d %s\n", level, line);
    if (len > (int)sizeof text - 1)
        len = (int)sizeof text - 1;
    text[len - 1] = '\n';
    if (PSC_RESTART(write(notices->log_fd, text, (size_t)len)) < 0)
        return; /* the pipe is full: the line is lost */
}
