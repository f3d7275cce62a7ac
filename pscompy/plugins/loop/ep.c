/* Endpoints and messages. The upcalls ep_up and ep_failed are made by progress:
 * they are recorded as a notice, and a failure is reported only after the
 * messages before it are delivered. */
#include <stdlib.h>

#include "loop.h"
#include "pscompy/transport/kit/iov.h"

static loop_iface_t *loop_ep_iface(const loop_ep_t *ep)
{
    return (loop_iface_t *)ep->super.iface;
}

/* ---- notices ---- */

static void loop_ep_note(loop_ep_t *ep, loop_notice_t notice)
{
    loop_iface_t *iface = loop_ep_iface(ep);

    iface->n_notices +=
        (notice != LOOP_NOTHING) - (unsigned)(ep->notice != LOOP_NOTHING);
    ep->notice = notice;
    if (notice != LOOP_NOTHING)
        loop_iface_wake(iface);
}

static void loop_ep_fail(loop_ep_t *ep, psc_status_t status, const char *reason)
{
    if (ep->closed || ep->notice == LOOP_FAILS)
        return;
    ep->peer = NULL;
    ep->status = status;
    ep->reason = reason;
    loop_ep_note(ep, LOOP_FAILS);
}

static loop_ep_t *loop_ep_noted(loop_iface_t *iface)
{
    psc_list_for_each(ep, &iface->eps, loop_ep_t, link) {
        if (ep->notice == LOOP_IS_UP ||
            (ep->notice == LOOP_FAILS && ep->waiting == 0))
            return ep;
    }
    return NULL;
}

unsigned loop_iface_notify(loop_iface_t *iface)
{
    const psc_upcalls_t *up = iface->super.up;
    loop_ep_t *ep;
    unsigned n = 0;

    /* restart the search after each upcall, because it may change the list */
    while ((ep = loop_ep_noted(iface))) {
        loop_notice_t notice = ep->notice;

        loop_ep_note(ep, LOOP_NOTHING);
        ep->up = notice == LOOP_IS_UP;
        if (ep->up)
            up->ep_up(&ep->super);
        else
            up->ep_failed(&ep->super, ep->status, ep->reason);
        n++;
    }
    return n;
}

/* ---- creating ---- */

psc_status_t loop_ep_create(psc_iface_t *self, void *user, psc_ep_t **ep_p)
{
    loop_iface_t *iface = (loop_iface_t *)self;
    loop_ep_t *ep = calloc(1, sizeof(*ep));

    if (!ep)
        return PSC_ERR_NO_MEMORY;
    ep->super = (psc_ep_t){self, user};
    ep->id = ++iface->next_id;
    psc_list_push(&iface->eps, &ep->link);
    *ep_p = &ep->super;
    return PSC_OK;
}

/* The address never leaves the process, so the machine's byte order is used. */
psc_status_t loop_ep_address(psc_ep_t *self, uint8_t *address, size_t *len_p)
{
    const loop_ep_t *ep = (const loop_ep_t *)self;

    if (*len_p < LOOP_ADDRESS_SIZE)
        return PSC_ERR_INVALID;
    memcpy(address, &loop_ep_iface(ep)->nonce, 8);
    memcpy(address + 8, &ep->id, 8);
    *len_p = LOOP_ADDRESS_SIZE;
    return PSC_OK;
}

/* ---- connecting ---- */

static loop_ep_t *loop_ep_find(loop_iface_t *iface, const uint8_t *address,
                               size_t len)
{
    if (len != LOOP_ADDRESS_SIZE || memcmp(address, &iface->nonce, 8) != 0)
        return NULL;
    psc_list_for_each(ep, &iface->eps, loop_ep_t, link) {
        if (memcmp(address + 8, &ep->id, 8) == 0 && !ep->closed)
            return ep;
    }
    return NULL;
}

static bool loop_token_equal(const uint8_t *a, const uint8_t *b)
{
    unsigned difference = 0;

    for (unsigned i = 0; i < PSC_TOKEN_SIZE; i++)
        difference |= a[i] ^ b[i];
    return difference == 0;
}

/* Connects two endpoints that have asked for each other. */
static void loop_ep_pair(loop_ep_t *ep, loop_ep_t *peer)
{
    static const char reason[] = "the two ends hold different tokens";

    if (!loop_token_equal(ep->token, peer->token)) {
        loop_ep_fail(ep, PSC_ERR_CONNECT, reason);
        loop_ep_fail(peer, PSC_ERR_CONNECT, reason);
        return;
    }
    ep->peer = peer;
    peer->peer = ep;
    loop_ep_note(ep, LOOP_IS_UP);
    loop_ep_note(peer, LOOP_IS_UP);
}

psc_status_t loop_ep_connect(psc_ep_t *self, const psc_connect_params_t *params)
{
    loop_ep_t *ep = (loop_ep_t *)self, *peer;

    if (ep->asked || ep->closed)
        return PSC_ERR_INVALID;
    ep->asked = true;
    if (params->role == PSC_ROLE_SELF) {
        ep->peer = ep;
        ep->up = true;
        return PSC_OK;
    }
    peer =
        loop_ep_find(loop_ep_iface(ep), params->address, params->address_len);
    if (!peer || peer == ep || (peer->asked && peer->wanted != ep->id)) {
        loop_ep_fail(ep, PSC_ERR_CONNECT,
                     "no free endpoint of this process has that address");
        return PSC_INPROGRESS;
    }
    memcpy(ep->token, params->token, sizeof(ep->token));
    ep->wanted = peer->id;
    if (peer->asked)
        loop_ep_pair(ep, peer);
    return PSC_INPROGRESS;
}

/* ---- closing ---- */

/* Fails the endpoints that are connected to this one, or wait for it. */
static void loop_ep_leave(loop_ep_t *ep)
{
    psc_list_for_each(other, &loop_ep_iface(ep)->eps, loop_ep_t, link) {
        if (other != ep && other->asked && !other->closed &&
            (other->peer == ep || other->wanted == ep->id))
            loop_ep_fail(other, PSC_ERR_CLOSED, "the peer closed");
    }
}

void loop_ep_close(psc_ep_t *self)
{
    loop_ep_t *ep = (loop_ep_t *)self;

    if (ep->closed)
        return;
    ep->closed = true;
    ep->up = false;
    ep->peer = NULL;
    loop_ep_note(ep, LOOP_NOTHING);
    loop_ep_leave(ep);
}

psc_status_t loop_ep_stop(psc_ep_t *self)
{
    (void)self; /* its messages are in slots of the interface */
    return PSC_OK;
}

static void loop_ep_free_if_idle(loop_ep_t *ep)
{
    if (!ep->finished || ep->queued > 0)
        return;
    psc_list_remove(&ep->link);
    free(ep);
}

void loop_ep_fini(psc_ep_t *self)
{
    loop_ep_t *ep = (loop_ep_t *)self;

    loop_ep_close(self);
    ep->finished = true;
    loop_ep_free_if_idle(ep);
}

/* ---- slots ---- */

static loop_slot_t *loop_slot_take(loop_iface_t *iface)
{
    psc_link_t *link = psc_list_pop(&iface->spare);

    if (link)
        return psc_container_of(link, loop_slot_t, link);
    return malloc(sizeof(loop_slot_t) + iface->buffer_size);
}

static void loop_slot_give_back(loop_iface_t *iface, loop_slot_t *slot)
{
    loop_ep_t *to = slot->to;

    psc_list_push_front(&iface->spare, &slot->link);
    to->queued--;
    loop_ep_free_if_idle(to);
}

void loop_desc_release(psc_iface_t *self, psc_desc_t *desc)
{
    loop_iface_t *iface = (loop_iface_t *)self;

    loop_slot_give_back(iface, (loop_slot_t *)desc);
    loop_iface_wake(iface); /* a send that found no room may be tried again */
}

static void loop_slot_deliver(loop_iface_t *iface, loop_slot_t *slot)
{
    loop_ep_t *to = slot->to;
    psc_am_t am = {
        .id = slot->id,
        .header_len = slot->header_len,
        .header = slot->header,
        .payload = slot->payload,
        .len = slot->len,
        .desc = (psc_desc_t *)slot,
    };

    to->waiting--;
    if (to->closed ||
        iface->super.up->am_recv(&to->super, &am) != PSC_INPROGRESS)
        loop_slot_give_back(iface, slot);
}

unsigned loop_iface_deliver(loop_iface_t *iface)
{
    unsigned n = 0;
    psc_link_t *link;

    while (n < LOOP_DELIVER_MAX && (link = psc_list_pop(&iface->queue))) {
        loop_slot_deliver(iface, psc_container_of(link, loop_slot_t, link));
        n++;
    }
    return n;
}

/* ---- messages ---- */

static psc_status_t loop_send_check(const loop_ep_t *ep, uint8_t header_len,
                                    size_t len)
{
    const loop_iface_t *iface = loop_ep_iface(ep);

    if (!ep->peer)
        return ep->closed ? PSC_ERR_CLOSED : PSC_ERR_PEER_LOST;
    if (header_len > PSC_AM_HEADER_MAX || len > iface->buffer_size - header_len)
        return PSC_ERR_INVALID;
    return ep->peer->queued < iface->sendq_size ? PSC_OK : PSC_ERR_NO_RESOURCE;
}

psc_status_t loop_am_bcopy(psc_ep_t *self, uint8_t id, const void *header,
                           uint8_t header_len, const psc_iov_t *iov,
                           size_t n_iov)
{
    loop_ep_t *ep = (loop_ep_t *)self;
    loop_iface_t *iface = loop_ep_iface(ep);
    loop_slot_t *slot;
    psc_status_t status;
    size_t len = psc_iov_total(iov, n_iov);

    status = loop_send_check(ep, header_len, len);
    if (status != PSC_OK)
        return status;
    slot = loop_slot_take(iface);
    if (!slot)
        return PSC_ERR_NO_MEMORY;
    slot->to = ep->peer;
    slot->id = id;
    slot->header_len = header_len;
    if (header_len > 0)
        memcpy(slot->header, header, header_len);
    psc_iov_gather(slot->payload, iov, n_iov);
    slot->len = len;
    slot->to->queued++;
    slot->to->waiting++;
    psc_list_push(&iface->queue, &slot->link);
    loop_iface_wake(iface);
    return PSC_OK;
}

psc_status_t loop_am_short(psc_ep_t *ep, uint8_t id, const void *header,
                           uint8_t header_len, const void *payload, size_t len)
{
    const psc_iov_t piece = {(void *)(uintptr_t)payload, len};

    return loop_am_bcopy(ep, id, header, header_len, &piece, 1);
}
