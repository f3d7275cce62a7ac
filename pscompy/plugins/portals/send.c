/* Sending active messages, and the credits of both sides. */
#include <string.h>

#include "portals.h"
#include "pscompy/transport/kit/iov.h"

psc_status_t portals_am_may(portals_ep_t *ep, size_t len)
{
    if (len > portals_ep_iface(ep)->settings.driver.buffer_size)
        return PSC_ERR_INVALID;
    if (__builtin_expect(!psc_kit_ep_works(&ep->kit), 0))
        return psc_kit_ep_refuse(&ep->kit);
    return psc_credit_available(&ep->kit.credit) ? PSC_OK : PSC_ERR_NO_RESOURCE;
}

/* ---- sending ---- */

static uint8_t *portals_put_bytes(uint8_t *to, const void *bytes, size_t len)
{
    if (len > 0)
        memcpy(to, bytes, len);
    return to + len;
}

/* Writes a message's head and header into the next send buffer. Returns the
 * address for the payload, or NULL if the send ring is full. */
static uint8_t *portals_begin(portals_ep_t *ep, uint8_t kind, uint8_t id,
                              const void *header, uint8_t header_len)
{
    uint8_t *to = psptl_send_begin(ep->channel);
    psc_head_t head;

    if (!to)
        return NULL;
    head = psc_head_make(&ep->kit, kind, id, header_len);
    to = portals_put_bytes(to, &head, sizeof(head));
    return portals_put_bytes(to, header, header_len);
}

psc_status_t portals_am_short(psc_ep_t *self, uint8_t id, const void *header,
                              uint8_t header_len, const void *payload,
                              size_t len)
{
    psc_iov_t iov = {(void *)(uintptr_t)payload, len};

    return portals_am_bcopy(self, id, header, header_len, &iov, 1);
}

psc_status_t portals_am_bcopy(psc_ep_t *self, uint8_t id, const void *header,
                              uint8_t header_len, const psc_iov_t *iov,
                              size_t n_iov)
{
    portals_ep_t *ep = portals_ep(self);
    size_t len = sizeof(psc_head_t) + header_len + psc_iov_total(iov, n_iov);
    psc_status_t status = portals_am_may(ep, len);
    uint8_t *to;

    if (status != PSC_OK)
        return status;
    to = portals_begin(ep, PSC_KIT_EP_AM, id, header, header_len);
    if (!to)
        return PSC_ERR_NO_RESOURCE;
    psc_iov_gather(to, iov, n_iov);
    ep->kit.credit.sent++;
    psptl_send_end(ep->channel, len);
    return PSC_OK;
}

psc_status_t portals_control_send(psc_kit_ep_t *kit, uint8_t kind,
                                  const void *body, size_t len)
{
    portals_ep_t *ep = portals_ep(&kit->super);
    uint8_t *to = portals_begin(ep, kind, 0, NULL, 0);

    if (!to)
        return PSC_ERR_NO_RESOURCE;
    portals_put_bytes(to, body, len);
    psptl_send_end(ep->channel, sizeof(psc_head_t) + len);
    return PSC_OK;
}

/* ---- credits ---- */

bool portals_credit_take(portals_ep_t *ep, uint32_t taken)
{
    return psc_credit_confirm(&ep->kit.credit, taken) >= PSC_CREDIT_SAME;
}
