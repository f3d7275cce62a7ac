/* Endpoints: creating, addresses, closing. Their states and failures are in
 * transport/kit/endpoint.h. */
#include <stdlib.h>
#include <string.h>

#include "portals.h"

/* the bytes "pcpt", little-endian */
#define PORTALS_ADDRESS_MAGIC 0x74706370u
#define PORTALS_ADDRESS_VERSION 3u

/* ---- creating ---- */

psc_status_t portals_ep_create(psc_iface_t *self, void *user, psc_ep_t **ep_p)
{
    portals_iface_t *iface = portals_iface(self);
    portals_ep_t *ep = calloc(1, sizeof(*ep));
    char reason[PSC_REASON_MAX];
    psptl_address_t driver;

    if (!ep)
        return PSC_ERR_NO_MEMORY;
    ep->kit.super = (psc_ep_t){self, user};
    ep->channel = psptl_channel_create(iface->device, ep, reason);
    if (!ep->channel) {
        psc_iface_log(self, 1, "%s", reason);
        free(ep);
        return PSC_ERR_NO_MEMORY;
    }
    psptl_channel_address(ep->channel, &driver);
    psc_kit_ep_join(&ep->kit, &iface->eps, driver.bits);
    *ep_p = &ep->kit.super;
    return PSC_OK;
}

/* ---- addresses ---- */

psc_status_t portals_ep_address(psc_ep_t *self, uint8_t *address, size_t *len_p)
{
    portals_ep_t *ep = portals_ep(self);
    const psptl_settings_t *settings = &portals_ep_iface(ep)->settings.driver;
    portals_address_t own = {
        .magic = PORTALS_ADDRESS_MAGIC,
        .version = PORTALS_ADDRESS_VERSION,
        .window = settings->recvq,
        .buffer_size = (uint32_t)settings->buffer_size,
    };

    if (*len_p < sizeof(own))
        return PSC_ERR_INVALID;
    psptl_channel_address(ep->channel, &own.driver);
    memcpy(address, &own, sizeof(own));
    *len_p = sizeof(own);
    return PSC_OK;
}

bool portals_address_unpack(const uint8_t *bytes, size_t len,
                            portals_address_t *address_p)
{
    if (len != sizeof(*address_p))
        return false;
    memcpy(address_p, bytes, sizeof(*address_p));
    return address_p->magic == PORTALS_ADDRESS_MAGIC &&
           address_p->version == PORTALS_ADDRESS_VERSION &&
           address_p->window > 0;
}

/* ---- closing ---- */

void portals_ep_close(psc_ep_t *self)
{
    portals_ep_t *ep = portals_ep(self);

    ep->parting = psc_kit_ep_expects_goodbye(&ep->kit) && !ep->cut &&
                  !ep->kit.goodbye && ep->kit.role != PSC_ROLE_SELF;
    psptl_channel_part(ep->channel);
    psc_kit_ep_close(&ep->kit);
    (void)portals_ep_stop(self);
}

/* Returns PSC_OK when every message has been acknowledged, the last of which is
 * the goodbye, and PSC_INPROGRESS before that. */
psc_status_t portals_ep_stop(psc_ep_t *self)
{
    portals_ep_t *ep = portals_ep(self);

    /* the peer has said goodbye or the channel has failed: no further message
     * can be delivered */
    if (ep->kit.goodbye || ep->cut) {
        psptl_channel_abort(ep->channel);
        ep->parting = false;
    }
    if (ep->parting &&
        portals_control_send(&ep->kit, PSC_KIT_EP_GOODBYE, NULL, 0) == PSC_OK)
        ep->parting = false;
    return ep->parting || !psptl_channel_idle(ep->channel) ? PSC_INPROGRESS
                                                           : PSC_OK;
}

void portals_ep_free(psc_kit_ep_t *kit)
{
    free(portals_ep(&kit->super));
}

void portals_ep_fini(psc_ep_t *self)
{
    portals_ep_t *ep = portals_ep(self);
    portals_iface_t *iface = portals_ep_iface(ep);

    psc_kit_ep_leave(&ep->kit);
    psptl_channel_destroy(ep->channel);
    if (!iface->in_progress)
        psc_kit_eps_free(&iface->eps, portals_ep_free);
}

/* ---- counters ---- */

uint32_t portals_ep_counters(const psc_ep_t *self, psc_counted_t *counters,
                             uint32_t room)
{
    static const char *const names[PSPTL_N_COUNTERS] = {
#define PORTALS_COUNTER_NAME(name) "portals_" #name,
        PSPTL_COUNTER_LIST(PORTALS_COUNTER_NAME)
#undef PORTALS_COUNTER_NAME
    };
    const portals_ep_t *ep = (const portals_ep_t *)self;
    uint64_t values[PSPTL_N_COUNTERS];
    uint32_t n = room < PSPTL_N_COUNTERS ? room : PSPTL_N_COUNTERS;

    psptl_channel_counters(ep->channel, values);
    for (uint32_t i = 0; i < n; i++)
        counters[i] = (psc_counted_t){names[i], values[i]};
    return n;
}
