/* Messages that the interface matches to posted receives: posting, sending,
 * receiving. They take credits like active messages. The `word` of such a
 * message (half of the header data of its put) is the number of messages that
 * its sender has received; an active message carries this number in its
 * psc_head_t. */
#include <stdio.h>

#include "portals.h"
#include "pscompy/transport/kit/iov.h"

psc_status_t portals_tag_ready(psc_ep_t *self, char *reason)
{
    portals_ep_t *ep = portals_ep(self);
    const char *flaw = psptl_tag_flaw(ep->channel);

    if (!flaw)
        return PSC_OK;
    snprintf(reason, PSC_REASON_MAX, "%s", flaw);
    return PSC_ERR_UNSUPPORTED;
}

/* ---- receives ---- */

psc_status_t portals_tag_post(psc_ep_t *self, psc_tag_recv_t *recv)
{
    portals_ep_t *ep = portals_ep(self);
    psptl_receive_t receive = {
        .cookie = recv,
        .match = recv->match,
        .ignore = recv->ignore,
        .base = recv->buffer.base,
        .len = recv->buffer.len,
    };

    if (!psc_kit_ep_works(&ep->kit))
        return PSC_ERR_NO_RESOURCE;
    recv->posted = psptl_tag_post(ep->channel, &receive);
    return recv->posted ? PSC_OK : PSC_ERR_NO_RESOURCE;
}

psc_status_t portals_tag_cancel(psc_ep_t *self, psc_tag_recv_t *recv)
{
    (void)self;
    return psptl_tag_cancel(recv->posted) ? PSC_OK : PSC_ERR_INVALID;
}

/* ---- sending ---- */

psc_status_t portals_tag_send(psc_ep_t *self, uint64_t bits,
                              const psc_iov_t *iov, size_t n_iov)
{
    portals_ep_t *ep = portals_ep(self);
    size_t len = psc_iov_total(iov, n_iov);
    psc_status_t status = portals_am_may(ep, len);
    uint8_t *to;

    if (status != PSC_OK)
        return status;
    to = psptl_send_begin(ep->channel);
    if (!to)
        return PSC_ERR_NO_RESOURCE;
    psc_iov_gather(to, iov, n_iov);
    ep->kit.credit.sent++;
    psptl_tag_send(ep->channel, len, bits, psc_credit_report(&ep->kit.credit));
    return PSC_OK;
}

_Static_assert(PSPTL_TAG_DIRECT == PSC_TAG_MARK, "the same bit");

psc_status_t portals_tag_put(psc_ep_t *self, uint64_t bits, const void *buffer,
                             size_t len, uint32_t *number_p, psc_comp_t *comp)
{
    portals_ep_t *ep = portals_ep(self);
    psc_status_t status = portals_am_may(ep, 0);
    psptl_order_t order = {
        .cookie = comp,
        .local = (uint8_t *)(uintptr_t)buffer,
        .len = len,
        .bits = bits,
        .word = ep->kit.credit.received,
    };
    psptl_verdict_t verdict;

    if (status != PSC_OK)
        return status;
    verdict = psptl_tag_put(ep->channel, &order);
    if (verdict != PSPTL_OK)
        return verdict == PSPTL_UNCLAIMED ? PSC_ERR_UNSUPPORTED
                                          : PSC_ERR_NO_RESOURCE;
    *number_p = order.number;
    ep->kit.credit.sent++;
    (void)psc_credit_report(&ep->kit.credit);
    return PSC_INPROGRESS;
}

/* ---- receiving ---- */

/* Ends a receive, in every state of the endpoint: reports that a message has
 * matched it, or that it is lost. */
static void portals_tag_report(psc_tag_recv_t *recv,
                               const psptl_tagged_t *message,
                               psc_status_t status)
{
    if (status == PSC_OK && message->missed)
        status = PSC_ERR_UNSUPPORTED;
    recv->number = message->number;
    recv->done(recv, status, message->bits, message->len);
}

static void portals_tag_untold(portals_ep_t *ep, const psptl_tagged_t *message)
{
    const psc_upcalls_t *up = ep->kit.super.iface->up;

    if (message->missed)
        up->tag_missed(&ep->kit.super, message->bits, message->len,
                       message->number);
    else
        up->tag_unexpected(&ep->kit.super, message->bits, message->bytes,
                           message->len);
}

void portals_tagged(void *owner, void *cookie, const psptl_tagged_t *message,
                    psptl_verdict_t verdict)
{
    portals_ep_t *ep = owner;
    psc_status_t status = portals_status_of(verdict);

    ep->kit.active_since_tick = true;
    if (status == PSC_OK && !portals_credit_take(ep, message->word)) {
        psc_kit_ep_fail(&ep->kit, PSC_ERR_PROTOCOL, "a malformed header");
        status = PSC_ERR_PROTOCOL;
    }
    if (status == PSC_OK)
        psc_kit_ep_count(&ep->kit);
    if (cookie)
        portals_tag_report(cookie, message, status);
    else if (status == PSC_OK && psc_kit_ep_works(&ep->kit))
        portals_tag_untold(ep, message);
}
