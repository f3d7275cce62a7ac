/* The items of a bridge (commands and events), its two queues, and how items
 * and bridge are freed. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bridge.h"
#include "pscompy/transport/kit/restart.h"

bridge_item_t *bridge_item_create(int kind, uint64_t ep, const void *data,
                                  size_t len)
{
    bridge_item_t *item = calloc(1, sizeof *item + len);

    if (!item)
        return NULL;
    item->kind = kind;
    item->ep = ep;
    item->len = len;
    if (data && len)
        memcpy(item->data, data, len);
    return item;
}

void bridge_item_wipe(bridge_item_t *item)
{
    if (item)
        explicit_bzero(item->token, PSC_TOKEN_SIZE);
    free(item);
}

static void bridge_signal(int fd)
{
    uint64_t one = 1;

    if (PSC_RESTART(write(fd, &one, sizeof one)) < 0 && errno != EAGAIN)
        abort(); /* write() to our own eventfd fails only if it was closed */
}

void bridge_command_push(bridge_t *bridge, bridge_item_t *item)
{
    if (psc_list_empty(&bridge->commands))
        bridge_signal(bridge->pump_fd);
    psc_list_push(&bridge->commands, &item->link);
}

void bridge_wake(bridge_t *bridge)
{
    atomic_store_explicit(&bridge->busy, true, memory_order_relaxed);
    if (!bridge->armed)
        return;
    bridge->armed = false;
    bridge->signalled = true;
    bridge_signal(bridge->event_fd);
}

void bridge_event_push(bridge_t *bridge, bridge_item_t *item)
{
    psc_list_push(&bridge->events, &item->link);
    bridge_wake(bridge);
}

/* ---- the end ---- */

static void bridge_items_free(psc_list_t *items)
{
    psc_link_t *link;

    while ((link = psc_list_pop(items)))
        bridge_item_wipe(psc_container_of(link, bridge_item_t, link));
}

void bridge_ep_free(bridge_ep_t *ep)
{
    free(ep->up_event);
    free(ep->failed_event);
    free(ep);
}

static void bridge_eps_free(bridge_t *bridge)
{
    for (unsigned i = 0; i < BRIDGE_BUCKETS; i++) {
        psc_list_for_each(ep, &bridge->eps[i], bridge_ep_t, link)
            bridge_ep_free(ep);
    }
}

static void bridge_free(bridge_t *bridge)
{
    bridge_items_free(&bridge->commands);
    bridge_items_free(&bridge->events);
    bridge_eps_free(bridge);
    bridge_item_wipe(bridge->taken);
    if (bridge->pump_fd >= 0)
        close(bridge->pump_fd);
    if (bridge->event_fd >= 0)
        close(bridge->event_fd);
    free(bridge);
}

void bridge_release(bridge_t *bridge)
{
    if (atomic_fetch_sub(&bridge->references, 1) == 1)
        bridge_free(bridge);
}

void bridge_end(bridge_t *bridge)
{
    psc_lock_acquire(&bridge->lock);
    bridge->ended = true;
    bridge_signal(bridge->pump_fd);
    psc_lock_release(&bridge->lock);
}
