/* Endpoints of a bridge: turns the core's calls into commands. */
#include "bridge.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "pscompy/transport/kit/iov.h"

static bridge_t *ep_bridge(const psc_ep_t *ep)
{
    return psc_container_of(ep->iface, bridge_t, super);
}

static bridge_ep_t *ep_of(psc_ep_t *ep)
{
    return psc_container_of(ep, bridge_ep_t, super);
}

static psc_list_t *ep_bucket(bridge_t *bridge, uint64_t number)
{
    return &bridge->eps[number % BRIDGE_BUCKETS];
}

bridge_ep_t *bridge_ep_find(bridge_t *bridge, uint64_t number)
{
    psc_list_for_each(ep, ep_bucket(bridge, number), bridge_ep_t, link) {
        if (ep->number == number)
            return ep;
    }
    return NULL;
}

/* ---- life ---- */

/* Returns false if memory is short. */
static bool ep_events_create(bridge_ep_t *ep)
{
    ep->up_event = bridge_item_create(BRIDGE_UP, ep->number, NULL, 0);
    ep->failed_event =
        bridge_item_create(BRIDGE_FAILED, ep->number, NULL, PSC_REASON_MAX);
    return ep->up_event && ep->failed_event;
}

psc_status_t bridge_ep_create(psc_iface_t *iface, void *user, psc_ep_t **ep_p)
{
    bridge_t *bridge = psc_container_of(iface, bridge_t, super);
    bridge_ep_t *ep = calloc(1, sizeof *ep);

    if (!ep)
        return PSC_ERR_NO_MEMORY;
    if (getrandom(&ep->number, sizeof ep->number, 0) != sizeof ep->number) {
        free(ep);
        return PSC_ERR_TRANSPORT;
    }
    if (!ep_events_create(ep)) {
        bridge_ep_free(ep);
        return PSC_ERR_NO_MEMORY;
    }
    ep->super.iface = iface;
    ep->super.user = user;
    psc_lock_acquire(&bridge->lock);
    psc_list_push(ep_bucket(bridge, ep->number), &ep->link);
    psc_lock_release(&bridge->lock);
    *ep_p = &ep->super;
    return PSC_OK;
}

psc_status_t bridge_ep_address(psc_ep_t *self, uint8_t *address, size_t *len_p)
{
    bridge_t *bridge = ep_bridge(self);
    uint64_t number = ep_of(self)->number;

    if (*len_p < BRIDGE_NUMBER_SIZE + bridge->address_len)
        return PSC_ERR_INVALID;
    memcpy(address, &number, BRIDGE_NUMBER_SIZE);
    memcpy(address + BRIDGE_NUMBER_SIZE, bridge->address, bridge->address_len);
    *len_p = BRIDGE_NUMBER_SIZE + bridge->address_len;
    return PSC_OK;
}

psc_status_t bridge_ep_connect(psc_ep_t *self,
                               const psc_connect_params_t *params)
{
    bridge_t *bridge = ep_bridge(self);
    bridge_item_t *item;

    if (params->address_len < BRIDGE_NUMBER_SIZE ||
        params->address_len > PSC_ADDRESS_MAX)
        return PSC_ERR_INVALID;
    item = bridge_item_create(BRIDGE_CONNECT, ep_of(self)->number,
                              params->address + BRIDGE_NUMBER_SIZE,
                              params->address_len - BRIDGE_NUMBER_SIZE);
    if (!item)
        return PSC_ERR_NO_MEMORY;
    item->number = params->role;
    memcpy(&item->peer, params->address, BRIDGE_NUMBER_SIZE);
    memcpy(item->token, params->token, PSC_TOKEN_SIZE);
    psc_lock_acquire(&bridge->lock);
    bridge_command_push(bridge, item);
    psc_lock_release(&bridge->lock);
    return PSC_INPROGRESS;
}

/* If there is no memory for the command, the pump never calls
 * bridge_ep_closed(), so the endpoint is stopped at once. An endpoint that is
 * not up is stopped at once too: it has sent nothing, and a transport that
 * blocks would never release it. */
void bridge_ep_close(psc_ep_t *self)
{
    bridge_t *bridge = ep_bridge(self);
    bridge_ep_t *ep = ep_of(self);
    bridge_item_t *item;
    bool told;

    if (ep->closed)
        return;
    item = bridge_item_create(BRIDGE_CLOSE, ep->number, NULL, 0);
    psc_lock_acquire(&bridge->lock);
    ep->closed = true;
    told = item && !bridge->ended;
    if (told)
        bridge_command_push(bridge, item);
    ep->stopped |= !told || !ep->up;
    psc_lock_release(&bridge->lock);
    if (!told)
        free(item);
}

psc_status_t bridge_ep_stop(psc_ep_t *self)
{
    bridge_t *bridge = ep_bridge(self);
    bool stopped;

    psc_lock_acquire(&bridge->lock);
    stopped = ep_of(self)->stopped;
    psc_lock_release(&bridge->lock);
    return stopped ? PSC_OK : PSC_INPROGRESS;
}

void bridge_ep_fini(psc_ep_t *self)
{
    bridge_t *bridge = ep_bridge(self);
    bridge_ep_t *ep = ep_of(self);

    psc_lock_acquire(&bridge->lock);
    psc_list_remove(&ep->link);
    psc_lock_release(&bridge->lock);
    bridge_ep_free(ep);
}

/* ---- sending ---- */

/* Returns the length of a frame, or 0 if it would be longer than max_frame. */
static size_t frame_len(const bridge_t *bridge, uint8_t header_len,
                        const psc_iov_t *iov, size_t n_iov)
{
    size_t len = sizeof(bridge_head_t) + header_len;

    for (size_t i = 0; i < n_iov; i++) {
        if (iov[i].len > bridge->attr.max_frame - len)
            return 0;
        len += iov[i].len;
    }
    return len;
}

static bridge_item_t *frame_create(uint64_t number, size_t len, uint8_t id,
                                   const void *header, uint8_t header_len,
                                   const psc_iov_t *iov, size_t n_iov)
{
    bridge_head_t head = {.id = id, .header_len = header_len};
    bridge_item_t *item = bridge_item_create(BRIDGE_FRAME, number, NULL, len);
    uint8_t *at;

    if (!item)
        return NULL;
    memcpy(item->data, &head, sizeof head);
    memcpy(item->data + sizeof head, header, header_len);
    at = item->data + sizeof head + header_len;
    psc_iov_gather(at, iov, n_iov);
    return item;
}

/* Reserves room in the endpoint's queue for one more frame to send. Returns
 * PSC_OK, or the reason why the frame cannot be queued. */
static psc_status_t ep_claim(bridge_t *bridge, bridge_ep_t *ep)
{
    psc_status_t status = PSC_OK;

    psc_lock_acquire(&bridge->lock);
    if (ep->closed || bridge->ended)
        status = PSC_ERR_CLOSED;
    else if (ep->failed != PSC_OK)
        status = ep->failed;
    else if (ep->sending >= bridge->attr.queue)
        status = PSC_ERR_NO_RESOURCE;
    ep->starved |= status == PSC_ERR_NO_RESOURCE;
    ep->sending += status == PSC_OK;
    psc_lock_release(&bridge->lock);
    return status;
}

psc_status_t bridge_am_bcopy(psc_ep_t *self, uint8_t id, const void *header,
                             uint8_t header_len, const psc_iov_t *iov,
                             size_t n_iov)
{
    bridge_t *bridge = ep_bridge(self);
    bridge_ep_t *ep = ep_of(self);
    size_t len = frame_len(bridge, header_len, iov, n_iov);
    psc_status_t status = len ? ep_claim(bridge, ep) : PSC_ERR_INVALID;
    bridge_item_t *item;

    if (status != PSC_OK)
        return status;
    item = frame_create(ep->number, len, id, header, header_len, iov, n_iov);
    psc_lock_acquire(&bridge->lock);
    if (item)
        bridge_command_push(bridge, item);
    else
        ep->sending--;
    psc_lock_release(&bridge->lock);
    return item ? PSC_OK : PSC_ERR_NO_MEMORY;
}

void bridge_desc_release(psc_iface_t *iface, psc_desc_t *desc)
{
    (void)iface;
    free(desc);
}
