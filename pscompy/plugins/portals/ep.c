/* Endpoints: creating, addresses, the door between their states, failing,
 * closing. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "portals.h"

#define PORTALS_ADDRESS_MAGIC 0x74706370u /* "pcpt" */
#define PORTALS_ADDRESS_VERSION 3u

/* ---- states ---- */

static const char *portals_state_name(portals_ep_state_t state)
{
    static const char *const names[PORTALS_N_EP_STATES] = {
#define PORTALS_EP_NAME(state) #state,
        PORTALS_EP_STATES(PORTALS_EP_NAME)
#undef PORTALS_EP_NAME
    };

    return names[state];
}

void portals_ep_enter(portals_ep_t *ep, portals_ep_state_t state)
{
    portals_iface_t *iface = portals_ep_iface(ep);

    portals_log(iface, 4, "portals: endpoint %llx: %s -> %s",
                (unsigned long long)ep->bits,
                portals_state_name(ep->state), portals_state_name(state));
    iface->n_connecting += (unsigned)(state == PORTALS_EP_MEETING) -
                           (unsigned)(ep->state == PORTALS_EP_MEETING);
    iface->n_closed += (unsigned)(state == PORTALS_EP_CLOSED) -
                       (unsigned)(ep->state == PORTALS_EP_CLOSED);
    ep->state = state;
    portals_sleep_pace(iface);
}

/* ---- failing ---- */

void portals_ep_fail(portals_ep_t *ep, psc_status_t status, const char *format,
                     ...)
{
    va_list args;

    if (ep->failing || ep->state >= PORTALS_EP_FAILED)
        return;
    va_start(args, format);
    vsnprintf(ep->reason, sizeof(ep->reason), format, args);
    va_end(args);
    ep->status = status;
    ep->failing = true;
    portals_ep_iface(ep)->n_failing++;
}

static portals_ep_t *portals_ep_failing(portals_iface_t *iface)
{
    psc_list_for_each(ep, &iface->eps, portals_ep_t, link) {
        if (ep->failing)
            return ep;
    }
    return NULL;
}

static void portals_ep_settle(portals_ep_t *ep)
{
    if (ep->failing)
        portals_ep_iface(ep)->n_failing--;
    ep->failing = false;
}

/* An upcall may end any endpoint, so the list is walked anew. */
void portals_ep_report(portals_iface_t *iface)
{
    portals_ep_t *ep;

    while (iface->n_failing > 0 && (ep = portals_ep_failing(iface))) {
        portals_ep_settle(ep);
        portals_ep_enter(ep, PORTALS_EP_FAILED);
        iface->handled++;
        iface->super.up->ep_failed(&ep->super, ep->status, ep->reason);
    }
}

/* ---- the clock ---- */

/* A put of nothing: the peer's interface acknowledges it, if its process is
 * still there, whatever the process does. */
void portals_ep_tick(portals_ep_t *ep, int64_t now)
{
    bool connecting = ep->state == PORTALS_EP_MEETING;

    if (ep->failing)
        return;
    if (connecting && now >= ep->deadline) {
        portals_ep_fail(ep, PSC_ERR_CONNECT,
                        "portals: the peer did not answer in time "
                        "(PSP_PORTALS_CONNECT_TIMEOUT)");
    } else if (connecting || ep->state == PORTALS_EP_UP) {
        if (!ep->heard && ep->role != PSC_ROLE_SELF)
            ep->driver->channel_ping(ep->channel);
        ep->heard = false;
    }
}

/* ---- creating ---- */

psc_status_t portals_ep_create(psc_iface_t *self, void *user, psc_ep_t **ep_p)
{
    portals_iface_t *iface = portals_iface(self);
    portals_ep_t *ep = calloc(1, sizeof(*ep));
    char reason[PSC_REASON_MAX];
    psptl_place_t place;

    if (!ep)
        return PSC_ERR_NO_MEMORY;
    ep->super = (psc_ep_t){self, user};
    ep->driver = iface->driver;
    psc_list_init(&ep->owing);
    ep->channel = ep->driver->channel_create(iface->device, ep, reason,
                                             sizeof(reason));
    if (!ep->channel) {
        portals_log(iface, 1, "portals: %s", reason);
        free(ep);
        return PSC_ERR_NO_MEMORY;
    }
    ep->driver->channel_place(ep->channel, &place);
    ep->bits = place.bits;
    iface->n_eps++;
    psc_list_push(&iface->eps, &ep->link);
    *ep_p = &ep->super;
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
    ep->driver->channel_place(ep->channel, &own.place);
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

/* Whoever was told our address may still hear from us; who is lost, or never
 * proved anything, does not. */
static bool portals_ep_greeted(const portals_ep_t *ep)
{
    if (ep->state == PORTALS_EP_FAILED)
        return ep->status != PSC_ERR_CONNECT;
    return ep->state == PORTALS_EP_UP || ep->meet.stage == PSC_MEET_PROVING;
}

void portals_ep_close(psc_ep_t *self)
{
    portals_ep_t *ep = portals_ep(self);

    portals_ep_settle(ep);
    psc_list_remove(&ep->owing);
    ep->parting = portals_ep_greeted(ep) && !ep->cut && !ep->goodbye &&
                  ep->role != PSC_ROLE_SELF;
    if (ep->status >= 0)
        ep->status = PSC_ERR_CLOSED;
    ep->driver->channel_part(ep->channel);
    portals_ep_enter(ep, PORTALS_EP_CLOSED);
    (void)portals_ep_stop(self);
}

/* What was sent has arrived when its acknowledgements are there, and the
 * goodbye is behind it. */
psc_status_t portals_ep_stop(psc_ep_t *self)
{
    portals_ep_t *ep = portals_ep(self);

    if (ep->goodbye || ep->cut) { /* nobody takes anything */
        ep->driver->channel_abort(ep->channel);
        ep->parting = false;
    }
    if (ep->parting && portals_control_send(ep, PORTALS_KIND_GOODBYE, NULL,
                                            0) == PSC_OK)
        ep->parting = false;
    return ep->parting || !ep->driver->channel_idle(ep->channel)
               ? PSC_INPROGRESS
               : PSC_OK;
}

/* Inside progress somebody up the stack may still look at the endpoint. */
void portals_ep_fini(psc_ep_t *self)
{
    portals_ep_t *ep = portals_ep(self);
    portals_iface_t *iface = portals_ep_iface(ep);

    portals_ep_settle(ep);
    portals_ep_feed(ep);
    portals_ep_enter(ep, PORTALS_EP_CLOSED);
    ep->dead = true;
    psc_list_remove(&ep->owing);
    psc_list_remove(&ep->link);
    iface->n_eps--;
    iface->n_closed--;
    portals_sleep_pace(iface);
    ep->driver->channel_destroy(ep->channel);
    explicit_bzero(&ep->meet, sizeof(ep->meet));
    psc_list_push(&iface->graveyard, &ep->link);
    if (!iface->in_progress)
        portals_iface_bury(iface);
}
