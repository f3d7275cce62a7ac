/* Endpoints: creating, addresses, and orderly closing. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call.h"
#include "memory.h"

/* ---- creating ---- */

static psc_status_t shm_iface_add(shm_iface_t *iface, shm_ep_t *ep)
{
    if (iface->n_eps == iface->room) {
        uint32_t room = iface->room > 0 ? 2 * iface->room : 8;
        shm_ep_t **eps = realloc(iface->eps, room * sizeof *eps);
        shm_ep_t **active = realloc(iface->active, room * sizeof *active);

        iface->eps = eps != NULL ? eps : iface->eps;
        iface->active = active != NULL ? active : iface->active;
        if (eps == NULL || active == NULL)
            return PSC_ERR_NO_MEMORY;
        iface->room = room;
    }
    iface->eps[iface->n_eps++] = ep;
    iface->n_connecting++;
    return PSC_OK;
}

shm_ep_t *shm_ep_find(shm_iface_t *iface, uint64_t id)
{
    for (uint32_t i = 0; i < iface->n_eps; i++)
        if (!iface->eps[i]->dead && id != 0 && iface->eps[i]->id == id)
            return iface->eps[i];
    return NULL;
}

int shm_ep_called(const psc_ep_t *super, int *process_p)
{
    const shm_ep_t *ep = (const shm_ep_t *)super;

    *process_p = (int)ep->pid;
    return ep->state == SHM_EP_CONNECTING ? shm_call_taken(ep)
                                          : ep->role == PSC_ROLE_ACCEPTOR;
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
    ep->doorbell = -1;
    ep->bit = ep->peer_bit = SHM_NO_BIT;
    ep->rank = SHM_NO_RANK;
    psc_list_init(&ep->copies);
    psc_list_init(&ep->unasked);
    for (uint32_t i = 0; i < SHM_HELPED_GETS; i++)
        psc_list_init(&ep->helps[i].listed);
    status = shm_iface_add(iface, ep);
    if (status != PSC_OK) {
        free(ep);
        return status;
    }
    *ep_p = &ep->super;
    return PSC_OK;
}

psc_status_t shm_ep_identify(shm_ep_t *ep)
{
    return ep->id != 0 ? PSC_OK : shm_random(&ep->id, sizeof ep->id);
}

psc_status_t shm_ep_address(psc_ep_t *super, uint8_t *address, size_t *len_p)
{
    shm_ep_t *ep = shm_ep(super);
    shm_iface_t *iface = shm_ep_iface(ep);
    shm_address_t own = {.magic = SHM_ADDRESS_MAGIC,
                         .uid = iface->uid,
                         .pid = (uint32_t)getpid(),
                         .path_len = (uint32_t)strlen(iface->listener.path)};

    if (*len_p < SHM_ADDRESS_HEAD + own.path_len)
        return PSC_ERR_INVALID;
    if (shm_ep_identify(ep) != PSC_OK)
        return PSC_ERR_TRANSPORT;
    own.ep = ep->id;
    memcpy(own.boot, iface->boot, SHM_ID_SIZE);
    memcpy(own.process, iface->process, SHM_ID_SIZE);
    memcpy(own.path, iface->listener.path, own.path_len);
    *len_p = SHM_ADDRESS_HEAD + own.path_len;
    memcpy(address, &own, *len_p);
    return PSC_OK;
}

/* ---- closing ---- */

void shm_ep_close(psc_ep_t *super)
{
    shm_ep_t *ep = shm_ep(super);
    shm_packet_t packet = {.kind = SHM_PACKET_GOODBYE};

    shm_ep_enter(ep, SHM_EP_CLOSED);
    ep->status = PSC_ERR_CLOSED;
    shm_adverts_close(ep);
    if (ep->sock == NULL || ep->sock->state == SHM_SOCKET_PARTING)
        return;
    if (ep->sock->state == SHM_SOCKET_OPEN)
        shm_socket_part(ep->sock, &packet);
    else
        shm_socket_refuse(ep->sock, "shm: the endpoint was closed");
}

psc_status_t shm_ep_stop(psc_ep_t *super)
{
    shm_ep_t *ep = shm_ep(super);

    return ep->sock == NULL && psc_list_empty(&ep->copies) ? PSC_OK
                                                           : PSC_INPROGRESS;
}

static void shm_ep_free(shm_ep_t *ep)
{
    shm_ring_unmap(&ep->tx.ring);
    shm_ring_unmap(&ep->rx.ring);
    if (ep->rank < 0)
        shm_bitmap_unmap(ep->peer_bitmap);
    if (ep->doorbell >= 0)
        close(ep->doorbell);
    psc_proof_wipe(&ep->proof);
    shm_probe_drop(ep->probe, ep->probing);
    free(ep);
}

void shm_iface_bury(shm_iface_t *iface)
{
    uint32_t kept = 0;

    if (!iface->buried || iface->in_progress)
        return;
    iface->buried = false;
    psc_list_for_each(sock, &iface->sockets, shm_socket_t, listed)
        if (sock->dead)
            shm_socket_free(sock);
    for (uint32_t i = 0; i < iface->n_eps; i++) {
        if (iface->eps[i]->dead)
            shm_ep_free(iface->eps[i]);
        else
            iface->eps[kept++] = iface->eps[i];
    }
    iface->n_eps = kept;
}

void shm_ep_fini(psc_ep_t *super)
{
    shm_ep_t *ep = shm_ep(super);
    shm_iface_t *iface = shm_ep_iface(ep);

    shm_ep_enter(ep, SHM_EP_CLOSED);
    if (ep->sock != NULL)
        shm_socket_close(ep->sock);
    if (ep->failing)
        iface->n_failing--;
    ep->failing = false;
    shm_copies_drop(ep);
    free(ep->adverts);
    ep->adverts = NULL;
    shm_active_remove(ep);
    ep->dead = true;
    iface->buried = true;
    shm_iface_bury(iface);
}
