/* The last packet between two endpoints that are up: a goodbye, a refusal, or
 * the end of the link. If each side watches a pidfd of the other's process,
 * their socket (a descriptor on each side) is closed once they are up. The last
 * packet is then written as a letter into the control page of the ring that its
 * sender created, and the sender rings the bell.
 *
 * A side writes one letter only; later packets are dropped. After the bell was
 * drained the letters are always checked, so none is missed. */
#include <stdio.h>
#include <string.h>

#include "shm.h"

/* Before the last packet of the trial only the socket is used; after it the
 * peer may have closed its socket. */
static bool shm_mail_usable(const shm_link_t *link)
{
    return link->ep != NULL && link->ep->bell >= 0 &&
           (link->stage == SHM_STAGE_VERDICT || link->stage == SHM_STAGE_OPEN);
}

void shm_mail_post(shm_link_t *link, const shm_packet_t *packet)
{
    shm_letter_t *letter;

    if (!shm_mail_usable(link) || link->posted)
        return;
    link->posted = true;
    letter = &link->ep->tx.ring.control->letter;
    memcpy(letter->text, packet->u.refusal, sizeof letter->text);
    atomic_store_explicit(&letter->kind, SHM_LETTER | packet->kind,
                          memory_order_release);
    shm_bell_ring(link->ep->bell);
}

static uint32_t shm_mail_look(const shm_link_t *link)
{
    const shm_letter_t *letter = &link->ep->rx.ring.control->letter;

    return link->by_mail
               ? atomic_load_explicit(&letter->kind, memory_order_acquire)
               : 0;
}

bool shm_mail_waits(const shm_ep_t *ep)
{
    return ep->link != NULL && shm_mail_look(ep->link) != 0;
}

bool shm_mail_says_end(const shm_link_t *link)
{
    uint32_t kind = shm_mail_look(link);

    return kind != 0 && kind != (SHM_LETTER | SHM_PACKET_GOODBYE);
}

/* Processes the letter as the packet that it stands for. The link ends with
 * it. */
void shm_mail_take(shm_link_t *link)
{
    shm_packet_t packet = {.magic = SHM_PACKET_MAGIC,
                           .version = SHM_PACKET_VERSION};
    int fds[SHM_MAX_FDS] = {-1, -1};
    uint32_t kind = shm_mail_look(link);

    if (kind == 0)
        return;
    packet.kind = (uint16_t)kind;
    memcpy(packet.u.refusal, link->ep->rx.ring.control->letter.text,
           sizeof packet.u.refusal);
    if (kind == SHM_LETTER)
        shm_trial_hangup(link);
    else
        shm_trial_receive(link, &packet, fds);
}

void shm_mail_collect(shm_iface_t *iface)
{
    iface->mail = false;
    psc_list_for_each(link, &iface->links, shm_link_t, listed)
        if (link->by_mail && !link->dead)
            shm_mail_take(link);
}

/* From here on letters replace packets. A letter may be present already. The
 * socket stays if either side cannot watch the other's process (name spaces);
 * its hang-up then shows that the peer has ended. */
void shm_mail_begin(shm_link_t *link)
{
    if (link->process.fd < 0 || !link->guarded)
        return;
    shm_source_close(link->iface, &link->socket);
    link->by_mail = true;
    shm_mail_take(link);
}
