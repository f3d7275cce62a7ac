/* Endpoints. The upcalls ep_up and ep_failed are made by progress: until then
 * `notice` of the endpoint records which one is to be made. A failure is
 * reported only after the messages that were sent before it are delivered. */
#include <stdlib.h>

#include "loop.h"

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

    /* search from the start after each upcall, which may change the list of
     * endpoints */
    while ((ep = loop_ep_noted(iface))) {
        loop_notice_t notice = ep->notice;

        loop_ep_note(ep, LOOP_NOTHING);
        if (notice == LOOP_IS_UP)
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

/* Connects two endpoints after ep_connect was called on each with the address
 * of the other. */
static void loop_ep_pair(loop_ep_t *ep, loop_ep_t *peer)
{
    static const char reason[] = "the two ends hold different tokens";

    if (memcmp(ep->token, peer->token, PSC_TOKEN_SIZE) != 0) {
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

/* Fails the endpoint that is connected to this one, and the endpoints that wait
 * for this one to connect. */
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
    ep->peer = NULL;
    loop_ep_note(ep, LOOP_NOTHING);
    loop_ep_leave(ep);
}

psc_status_t loop_ep_stop(psc_ep_t *self)
{
    /* return at once, because messages in flight are in slots of the
     * interface */
    (void)self;
    return PSC_OK;
}

void loop_ep_free_if_idle(loop_ep_t *ep)
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
