/* Endpoints: addresses, connecting, failing, and orderly closing. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "memory.h"

#define SHM_ADDRESS_MAGIC 0x6d687361u /* "ashm" */

/* ---- states ---- */

static const unsigned shm_ep_next[SHM_N_EP_STATES] = {
#define SHM_EP_NEXT(state, next) [SHM_EP_##state] = (next),
    SHM_EP_STATES(SHM_EP_NEXT)
#undef SHM_EP_NEXT
};

static bool shm_ep_counts(shm_ep_state_t state)
{
    return state == SHM_EP_NEW || state == SHM_EP_CONNECTING;
}

/* All changes of state are made here. Returns false and changes nothing if
 * `state` may not follow the present one (a second failure is ignored). */
bool shm_ep_enter(shm_ep_t *ep, shm_ep_state_t state)
{
    shm_iface_t *iface = shm_ep_iface(ep);

    if ((shm_ep_next[ep->state] & 1u << state) == 0)
        return false;
    if (shm_ep_counts(ep->state) && !shm_ep_counts(state))
        iface->n_connecting--;
    ep->state = state;
    return true;
}

static void shm_ep_note(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_ep_iface(ep);

    ep->failing = true;
    iface->n_failing++;
    if (iface->armed) /* Wake the thread that sleeps on the descriptor. */
        shm_bell_ring(iface->bell.fd);
}

void shm_ep_fail(shm_ep_t *ep, psc_status_t status, const char *format, ...)
{
    char reason[PSC_REASON_MAX];
    va_list args;

    if (!shm_ep_enter(ep, SHM_EP_FAILED))
        return;
    va_start(args, format);
    vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    memcpy(ep->reason, reason, sizeof reason);
    ep->status = status;
    psc_proof_wipe(&ep->proof);
    if (ep->link != NULL)
        shm_link_refuse(ep->link, ep->reason);
    shm_ep_note(ep);
}

void shm_ep_leave(shm_ep_t *ep, psc_status_t status, const char *reason)
{
    if (!shm_ep_enter(ep, SHM_EP_LEAVING))
        return;
    ep->status = status;
    snprintf(ep->reason, sizeof ep->reason, "%s", reason);
}

void shm_ep_report(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_ep_iface(ep);

    if (!ep->failing)
        return;
    ep->failing = false;
    iface->n_failing--;
    if (ep->state == SHM_EP_FAILED)
        iface->super.up->ep_failed(&ep->super, ep->status, ep->reason);
}

/* ---- creating ---- */

static psc_status_t shm_iface_add(shm_iface_t *iface, shm_ep_t *ep)
{
    if (iface->n_eps == iface->room) {
        uint32_t room = iface->room > 0 ? 2 * iface->room : 8;
        shm_ep_t **eps = realloc(iface->eps, room * sizeof(shm_ep_t *));

        if (eps == NULL)
            return PSC_ERR_NO_MEMORY;
        iface->eps = eps;
        iface->room = room;
    }
    iface->eps[iface->n_eps++] = ep;
    iface->n_connecting++;
    return PSC_OK;
}

shm_ep_t *shm_ep_find(shm_iface_t *iface, uint64_t id)
{
    for (uint32_t i = 0; i < iface->n_eps; i++)
        if (!iface->eps[i]->dead && iface->eps[i]->id == id)
            return iface->eps[i];
    return NULL;
}

psc_status_t shm_ep_create(psc_iface_t *super, void *user, psc_ep_t **ep_p)
{
    shm_iface_t *iface = shm_iface(super);
    psc_status_t status = PSC_ERR_CLOSED;
    shm_ep_t *ep;

    if (iface->closing)
        return status;
    ep = aligned_alloc(SHM_LINE,
                       (sizeof *ep + SHM_LINE - 1) / SHM_LINE * SHM_LINE);
    if (ep == NULL)
        return PSC_ERR_NO_MEMORY;
    memset(ep, 0, sizeof *ep);
    ep->super = (psc_ep_t){super, user};
    ep->bell = -1;
    psc_list_init(&ep->shares);
    ep->probe = shm_probe_create();
    status = ep->probe == NULL ? PSC_ERR_NO_MEMORY
                               : shm_random(&ep->id, sizeof ep->id);
    if (status == PSC_OK)
        status = shm_iface_add(iface, ep);
    if (status != PSC_OK) {
        free(ep->probe);
        free(ep);
        return status;
    }
    *ep_p = &ep->super;
    return PSC_OK;
}

/* ---- addresses ----
 * magic 4, uid 4, pid 4, length of the path 4, endpoint 8, boot id 16,
 * process 16 bytes, path. */

#define SHM_ADDRESS_HEAD 56u

static void shm_store(uint8_t *to, uint64_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> (8 * i));
}

static uint64_t shm_load(const uint8_t *from, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << (8 * i);
    return value;
}

psc_status_t shm_ep_address(psc_ep_t *super, uint8_t *address, size_t *len_p)
{
    shm_ep_t *ep = shm_ep(super);
    shm_iface_t *iface = shm_ep_iface(ep);
    size_t path_len = strlen(iface->door.path);

    if (*len_p < SHM_ADDRESS_HEAD + path_len)
        return PSC_ERR_INVALID;
    shm_store(address, SHM_ADDRESS_MAGIC, 4);
    shm_store(address + 4, iface->uid, 4);
    shm_store(address + 8, (uint64_t)getpid(), 4);
    shm_store(address + 12, path_len, 4);
    shm_store(address + 16, ep->id, 8);
    memcpy(address + 24, iface->boot, SHM_ID_SIZE);
    memcpy(address + 40, iface->process, SHM_ID_SIZE);
    memcpy(address + SHM_ADDRESS_HEAD, iface->door.path, path_len);
    *len_p = SHM_ADDRESS_HEAD + path_len;
    return PSC_OK;
}

static bool shm_address_unpack(const uint8_t *from, size_t len,
                               shm_address_t *address)
{
    size_t path_len = len - SHM_ADDRESS_HEAD;

    if (len < SHM_ADDRESS_HEAD || shm_load(from, 4) != SHM_ADDRESS_MAGIC ||
        shm_load(from + 12, 4) != path_len || path_len == 0 ||
        path_len >= sizeof address->path || from[SHM_ADDRESS_HEAD] != '/' ||
        memchr(from + SHM_ADDRESS_HEAD, '\0', path_len) != NULL)
        return false;
    address->uid = (uint32_t)shm_load(from + 4, 4);
    address->pid = (uint32_t)shm_load(from + 8, 4);
    address->ep = shm_load(from + 16, 8);
    memcpy(address->boot, from + 24, SHM_ID_SIZE);
    memcpy(address->process, from + 40, SHM_ID_SIZE);
    memcpy(address->path, from + SHM_ADDRESS_HEAD, path_len);
    address->path[path_len] = '\0';
    return true;
}

/* ---- connecting ---- */

/* Maps both ends of one ring in one process; no trial is needed. */
static psc_status_t shm_ep_connect_self(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    int fd;
    psc_status_t status = shm_ring_create(&iface->geometry, &fd);

    if (status != PSC_OK)
        return status;
    status = shm_ring_map(&ep->tx.ring, &iface->geometry, fd);
    if (status == PSC_OK)
        status = shm_ring_map(&ep->rx.ring, &iface->geometry, fd);
    close(fd);
    if (status != PSC_OK)
        return status;
    ep->bell = fcntl(iface->bell.fd, F_DUPFD_CLOEXEC, 0);
    if (ep->bell < 0)
        return PSC_ERR_NO_MEMORY;
    ep->self = true;
    ep->fenced = !iface->expedited;
    ep->cma = iface->cma != SHM_CMA_OFF;
    shm_ep_enter(ep, SHM_EP_UP);
    return PSC_OK;
}

static void shm_ep_dial(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    shm_link_t *link = fd < 0 ? NULL : shm_link_create(iface, fd, true);

    if (link == NULL) {
        shm_ep_fail(ep, PSC_ERR_NO_MEMORY, "shm: no socket could be made: %s",
                    shm_link_why(errno));
        return;
    }
    ep->link = link;
    link->ep = ep;
    link->hello.target = ep->peer.ep;
    link->hello.source = ep->id;
    memcpy(link->hello.process, iface->process, SHM_ID_SIZE);
    memcpy(link->hello.nonce, psc_proof_hello(&ep->proof),
           PSC_PROOF_NONCE_SIZE);
    shm_trial_dial(link);
}

static bool shm_ep_reachable(shm_ep_t *ep)
{
    const shm_iface_t *iface = shm_ep_iface(ep);

    if (memcmp(ep->peer.boot, iface->boot, SHM_ID_SIZE) != 0)
        shm_ep_fail(ep, PSC_ERR_CONNECT, "shm: the peer runs on another node");
    else if (ep->peer.uid != iface->uid)
        shm_ep_fail(ep, PSC_ERR_CONNECT,
                    "shm: the peer belongs to user %lu, we to user %lu",
                    (unsigned long)ep->peer.uid, (unsigned long)iface->uid);
    return ep->state == SHM_EP_CONNECTING;
}

psc_status_t shm_ep_connect(psc_ep_t *super, const psc_connect_params_t *params)
{
    shm_ep_t *ep = shm_ep(super);

    if (ep->state != SHM_EP_NEW ||
        !shm_address_unpack(params->address, params->address_len, &ep->peer))
        return PSC_ERR_INVALID;
    ep->role = params->role;
    if (ep->role == PSC_ROLE_SELF)
        return ep->peer.ep == ep->id ? shm_ep_connect_self(ep)
                                     : PSC_ERR_INVALID;
    if (!psc_proof_begin(&ep->proof, ep->role, params->token, ep->id,
                         ep->peer.ep))
        return PSC_ERR_TRANSPORT;
    shm_ep_enter(ep, SHM_EP_CONNECTING);
    if (!shm_ep_reachable(ep))
        return PSC_INPROGRESS;
    if (ep->role == PSC_ROLE_CONNECTOR)
        shm_ep_dial(ep);
    else if (ep->link != NULL)
        shm_trial_challenge(ep->link);
    return PSC_INPROGRESS;
}

/* ---- closing ---- */

void shm_ep_close(psc_ep_t *super)
{
    shm_ep_t *ep = shm_ep(super);
    shm_packet_t packet = {.kind = SHM_PACKET_GOODBYE};

    shm_ep_enter(ep, SHM_EP_CLOSED);
    ep->status = PSC_ERR_CLOSED;
    if (ep->link == NULL || ep->link->stage == SHM_STAGE_PARTING)
        return;
    if (ep->link->stage == SHM_STAGE_OPEN)
        shm_link_part(ep->link, &packet);
    else
        shm_link_refuse(ep->link, "shm: the endpoint was closed");
}

psc_status_t shm_ep_stop(psc_ep_t *super)
{
    shm_ep_t *ep = shm_ep(super);

    return ep->link == NULL && psc_list_empty(&ep->shares) ? PSC_OK
                                                           : PSC_INPROGRESS;
}

void shm_ep_fini(psc_ep_t *super)
{
    shm_ep_t *ep = shm_ep(super);
    shm_iface_t *iface = shm_ep_iface(ep);

    shm_ep_enter(ep, SHM_EP_CLOSED);
    if (ep->link != NULL)
        shm_link_close(ep->link);
    if (ep->failing)
        iface->n_failing--;
    ep->failing = false;
    shm_share_drop(ep);
    ep->dead = true;
    iface->buried = true;
    shm_iface_bury(iface);
}

void shm_ep_free(shm_ep_t *ep)
{
    shm_ring_unmap(&ep->tx.ring);
    shm_ring_unmap(&ep->rx.ring);
    if (ep->bell >= 0)
        close(ep->bell);
    psc_proof_wipe(&ep->proof);
    shm_probe_drop(ep->probe, ep->probing);
    free(ep);
}
