/* A link: a Unix socket to one peer, used until both endpoints are up. It
 * carries whole packets with descriptors beside them. trial.c defines the
 * packets' meaning.
 *
 * If each side watches a pidfd of the other's process, their socket (a
 * descriptor on each side) is closed once both endpoints are up. The last
 * packet (a goodbye, a refusal, or the end of the link) is then written as a
 * letter into the control page of the ring that its sender writes, and the
 * sender writes to the peer's bell (a pipe), to wake the peer. A side writes
 * one letter only; later packets are dropped. A process that has drained its
 * bell always checks the letters, so none is missed. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "call.h"
#include "pscompy/transport/kit/restart.h"

#define SHM_CONTROL_SIZE CMSG_SPACE(SHM_MAX_FDS * sizeof(int))

bool shm_link_exhausted(int error)
{
    return error == EMFILE || error == ENFILE;
}

const char *shm_link_why(int error)
{
    return shm_link_exhausted(error) ? SHM_EXHAUSTED : strerror(error);
}

/* ---- sending ---- */

/* Returns true if the last packet may be written as a letter (see the head of
 * this file). Before the last packet of the trial only the socket is used;
 * after that packet the peer may have closed its socket. */
static bool shm_letter_usable(const shm_link_t *link)
{
    return link->ep != NULL && link->ep->bell >= 0 &&
           (link->stage == SHM_STAGE_VERDICT || link->stage == SHM_STAGE_OPEN);
}

/* Writes the packet as a letter (into the ring's control page) too, because the
 * peer may have closed its socket. */
static void shm_letter_post(shm_link_t *link, const shm_packet_t *packet)
{
    shm_letter_t *letter;

    if (!shm_letter_usable(link) || link->posted)
        return;
    link->posted = true;
    letter = &link->ep->tx.ring.control->letter;
    memcpy(letter->text, packet->u.refusal, sizeof letter->text);
    atomic_store_explicit(&letter->kind, SHM_LETTER | packet->kind,
                          memory_order_release);
    shm_bell_ring(link->ep->bell);
}

psc_status_t shm_link_send(shm_link_t *link, shm_packet_t *packet,
                           const int *fds, size_t n_fds)
{
    _Alignas(struct cmsghdr) char control[SHM_CONTROL_SIZE] = {0};
    struct iovec iov = {packet, sizeof *packet};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    packet->magic = SHM_PACKET_MAGIC;
    packet->version = SHM_PACKET_VERSION;
    if (n_fds > 0) {
        struct cmsghdr *header = (struct cmsghdr *)(void *)control;

        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(header), fds, n_fds * sizeof(int));
    }
    if (packet->kind == SHM_PACKET_GOODBYE ||
        packet->kind == SHM_PACKET_REFUSAL)
        shm_letter_post(link, packet);
    if (link->by_mail)
        return PSC_OK;
    if (PSC_RESTART(sendmsg(link->socket.fd, &message,
                            MSG_DONTWAIT | MSG_NOSIGNAL)) < 0)
        return PSC_ERR_PEER_LOST;
    return PSC_OK;
}

void shm_link_part(shm_link_t *link, shm_packet_t *packet)
{
    shm_link_send(link, packet, NULL, 0);
    if (link->stage == SHM_STAGE_OPEN && link->ep->cma)
        shm_link_enter(link, SHM_STAGE_PARTING);
    else
        shm_link_close(link);
}

/* Sends the peer the reason of the refusal. The caller must not use the link
 * afterwards. */
void shm_link_refuse(shm_link_t *link, const char *reason)
{
    shm_packet_t packet = {.kind = SHM_PACKET_REFUSAL};

    snprintf(packet.u.refusal, sizeof packet.u.refusal, "%s", reason);
    shm_link_part(link, &packet);
}

/* ---- receiving ---- */

/* Takes the descriptors out of the message. Unused entries of `fds` stay -1;
 * descriptors beyond SHM_MAX_FDS are closed. */
static void shm_link_take_fds(struct msghdr *message, int *fds)
{
    size_t n = 0;

    for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header != NULL;
         header = CMSG_NXTHDR(message, header)) {
        size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < here; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(header) + i * sizeof fd, sizeof fd);
            if (n < SHM_MAX_FDS)
                fds[n++] = fd;
            else
                close(fd);
        }
    }
}

ssize_t shm_link_recv(shm_link_t *link, shm_packet_t *packet, int *fds,
                      bool *cut_p)
{
    _Alignas(struct cmsghdr) char control[SHM_CONTROL_SIZE];
    struct iovec iov = {packet, sizeof *packet};
    struct msghdr message = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control,
        .msg_controllen = sizeof control,
    };
    ssize_t n =
        PSC_RESTART(recvmsg(link->socket.fd, &message,
                            MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC));

    if (n >= 0)
        shm_link_take_fds(&message, fds);
    *cut_p = n >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
    return n;
}

/* ---- creating and closing ---- */

/* Takes ownership of `fd`, also if the function fails. */
shm_link_t *shm_link_create(shm_iface_t *iface, int fd)
{
    shm_link_t *link = calloc(1, sizeof *link);

    if (link == NULL) {
        close(fd);
        return NULL;
    }
    link->iface = iface;
    link->stage = SHM_STAGE_OVER;
    link->socket = (shm_source_t){iface->link_ready, fd, -1};
    link->process = (shm_source_t){iface->process_ready, -1, -1};
    psc_list_push(&iface->links, &link->listed);
    return link;
}

/* All changes of a link's stage are made here, with the counters that depend on
 * the stage. */
void shm_link_enter(shm_link_t *link, shm_stage_t stage)
{
    shm_iface_t *iface = link->iface;
    bool ticked =
        link->stage == SHM_STAGE_DIAL || link->stage == SHM_STAGE_ANONYMOUS;
    bool ticks = stage == SHM_STAGE_DIAL || stage == SHM_STAGE_ANONYMOUS;

    iface->n_anonymous -= link->stage == SHM_STAGE_ANONYMOUS;
    iface->n_anonymous += stage == SHM_STAGE_ANONYMOUS;
    if (ticks != ticked)
        shm_timer_run(iface, ticks ? +1 : -1);
    link->stage = stage;
}

/* Asks the kernel for the peer's user and process, then watches the socket. The
 * process id is 0 if the process is not visible in our name space. */
psc_status_t shm_link_identify(shm_link_t *link, char *reason)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    if (getsockopt(link->socket.fd, SOL_SOCKET, SO_PEERCRED, &peer, &len)) {
        snprintf(reason, PSC_REASON_MAX, "SO_PEERCRED: %s", strerror(errno));
        return PSC_ERR_CONNECT;
    }
    if (peer.uid != link->iface->uid) {
        snprintf(reason, PSC_REASON_MAX,
                 "process %ld belongs to user %lu, we to user %lu",
                 (long)peer.pid, (unsigned long)peer.uid,
                 (unsigned long)link->iface->uid);
        return PSC_ERR_CONNECT;
    }
    link->pid = peer.pid;
    if (shm_source_watch(link->iface->epoll, &link->socket) != PSC_OK) {
        snprintf(reason, PSC_REASON_MAX, "epoll: %s", strerror(errno));
        return PSC_ERR_NO_MEMORY;
    }
    return PSC_OK;
}

/* Opens a pidfd of the peer's process and watches it. If the peer answers after
 * this call, its process id had not been reused when the pidfd was opened, so
 * the pidfd denotes the peer. */
void shm_link_guard(shm_link_t *link)
{
    if (link->pid <= 0 || link->process.fd >= 0)
        return;
    link->process.fd = (int)syscall(SYS_pidfd_open, link->pid, 0);
    if (link->process.fd >= 0 &&
        shm_source_watch(link->iface->peers.fd, &link->process) != PSC_OK) {
        close(link->process.fd);
        link->process.fd = -1;
    }
}

/* May be called from the link's own handler, because the structure stays until
 * progress returns. */
void shm_link_close(shm_link_t *link)
{
    static const shm_packet_t end = {.kind = SHM_PACKET_NONE};

    if (link->dead)
        return;
    shm_letter_post(link, &end);
    if (link->stage == SHM_STAGE_VERDICT && link->ep->rank >= 0)
        shm_call_withdraw(link->ep);
    shm_link_enter(link, SHM_STAGE_OVER);
    shm_source_close(&link->socket);
    shm_source_close(&link->process);
    if (link->ep != NULL)
        link->ep->link = NULL;
    link->ep = NULL;
    link->by_mail = false;
    link->dead = true;
    link->iface->buried = true;
}

void shm_link_free(shm_link_t *link)
{
    psc_list_remove(&link->listed);
    free(link);
}
