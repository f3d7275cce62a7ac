/* The resources that two endpoints exchange while they connect (trial.c): the
 * ring that the sender of the resources writes, its doorbell (a pipe that wakes
 * it), its bitmap (bits that show which ring has a record), and a probe of
 * cross-memory attach (bytes that the receiver tries to read). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "memory.h"
#include "pscompy/transport/kit/page.h"

/* ---- rings and doorbells ---- */

psc_status_t shm_trial_send_resources(shm_socket_t *sock, const uint8_t *answer)
{
    shm_ep_t *ep = sock->ep;
    shm_iface_t *iface = sock->iface;
    shm_packet_t packet = {.kind = SHM_PACKET_RESOURCES};
    psc_status_t status;
    int fds[SHM_MAX_FDS] = {-1, iface->doorbell.fd, iface->bitmap_fd};

    shm_active_enrol(ep);
    shm_socket_guard(sock);
    ep->probe = shm_probe_create();
    status = ep->probe == NULL ? PSC_ERR_NO_MEMORY
                               : shm_ring_create(&iface->geometry, &fds[0]);
    if (status != PSC_OK) {
        shm_ep_fail(ep, status, "shm: no ring could be made: %s",
                    shm_socket_why(errno));
        return status;
    }
    packet.u.resources = (shm_resources_t){
        .geometry = iface->geometry,
        .probe = (uintptr_t)ep->probe->bytes,
        .echo = (uintptr_t)ep->probe->echo,
        .cma = (uint8_t)iface->cma,
        .expedited = iface->expedited,
        .guards = sock->process.fd >= 0,
        .verdict = sock->verdict,
        .bit = ep->bit,
    };
    memcpy(packet.u.resources.nonce, ep->probe->bytes, SHM_ID_SIZE);
    memcpy(packet.u.resources.process, iface->process, SHM_ID_SIZE);
    if (answer != NULL)
        memcpy(packet.u.resources.answer, answer, PSC_PROOF_SIZE);
    ep->probing = packet.u.resources.cma;
    status = shm_ring_map_own(&ep->tx.ring, &iface->geometry, fds[0]);
    if (status == PSC_OK)
        status = shm_socket_send(sock, &packet, fds, SHM_MAX_FDS);
    close(fds[0]);
    return status;
}

/* Checks the peer's doorbell. Accepts only a non-blocking pipe, because
 * shm_doorbell_ring() must not block, and only one that is open for reading
 * too, because a write without a reader raises SIGPIPE. */
static bool shm_doorbell_valid(int fd)
{
    char path[32], target[32];
    int flags = fcntl(fd, F_GETFL);
    ssize_t n;

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    n = readlink(path, target, sizeof target - 1);
    if (flags < 0 || (flags & O_NONBLOCK) == 0 ||
        (flags & O_ACCMODE) != O_RDWR || n < 0)
        return false;
    target[n] = '\0';
    return strncmp(target, "pipe:[", strlen("pipe:[")) == 0;
}

bool shm_trial_take_resources(shm_socket_t *sock,
                              const shm_resources_t *resources, int *fds)
{
    shm_ep_t *ep = sock->ep;
    psc_status_t status = PSC_ERR_PROTOCOL;

    shm_socket_guard(sock);
    if (shm_geometry_valid(&resources->geometry) &&
        shm_doorbell_valid(fds[1]) && resources->bit <= SHM_NO_BIT)
        status = shm_ring_map(&ep->rx.ring, &resources->geometry, fds[0]);
    if (status == PSC_OK)
        status = shm_bitmap_map(&ep->peer_bitmap, fds[2], psc_page_size());
    if (status != PSC_OK) {
        shm_ep_fail(ep, status, "shm: the peer's ring cannot be used: %s",
                    psc_status_string(status));
        return false;
    }
    /* set before the peer is up, so that the peer sets its bit on our bitmap
     * after its first record */
    atomic_store_explicit(&ep->rx.ring.control->sleeping, SHM_WAKE_BITMAP,
                          memory_order_relaxed);
    ep->peer_bit = resources->bit;
    ep->doorbell = fds[1];
    fds[1] = -1;
    ep->pid = sock->pid;
    memcpy(ep->peer.process, resources->process, SHM_ID_SIZE);
    sock->guarded = resources->guards != 0;
    sock->forced = resources->cma == SHM_CMA_FORCE;
    ep->fenced = !(sock->iface->expedited && resources->expedited);
    sock->verdict = shm_cma_prove(ep, resources);
    return true;
}

/* ---- the probe of cross-memory attach ---- */

/* A peer that was stopped between reading the probe and writing the echo writes
 * the echo when it continues. Therefore the probe of an abandoned trial is
 * never freed. */
static _Atomic(shm_probe_t *) shm_probes_kept;

shm_probe_t *shm_probe_create(void)
{
    shm_probe_t *probe = calloc(1, sizeof *probe);

    if (probe == NULL || shm_random(probe->bytes, SHM_ID_SIZE) == PSC_OK)
        return probe;
    free(probe);
    return NULL;
}

void shm_probe_drop(shm_probe_t *probe, bool probing)
{
    if (!probing) {
        free(probe);
        return;
    }
    probe->next = atomic_load(&shm_probes_kept);
    while (!atomic_compare_exchange_weak(&shm_probes_kept, &probe->next, probe))
        continue;
}
