/* A socket to one peer, used until both endpoints are up. It
 * carries whole packets with descriptors beside them. trial.c defines the
 * packets' meaning.
 *
 * If each side watches a pidfd of the other's process, their socket (a
 * descriptor on each side) is closed once both endpoints are up. The last
 * packet (a goodbye, a refusal, or the end of the socket) is then written as a
 * letter into the control page of the ring that its sender writes, and the
 * sender writes to the peer's doorbell (a pipe), to wake the peer. A side
 * writes one letter only; later packets are dropped. A process that has drained
 * its doorbell always checks the letters, so none is missed. */
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

bool shm_socket_exhausted(int error)
{
    return error == EMFILE || error == ENFILE;
}

const char *shm_socket_why(int error)
{
    return shm_socket_exhausted(error) ? SHM_EXHAUSTED : strerror(error);
}

/* ---- sending ---- */

/* Returns true if the last packet may be written as a letter (see the head of
 * this file). Before the last packet of the trial only the socket is used;
 * after that packet the peer may have closed its socket. */
static bool shm_letter_usable(const shm_socket_t *sock)
{
    return sock->ep != NULL && sock->ep->doorbell >= 0 &&
           (sock->state == SHM_SOCKET_VERDICT ||
            sock->state == SHM_SOCKET_OPEN);
}

/* Writes the packet as a letter (into the ring's control page) too, because the
 * peer may have closed its socket. */
static void shm_letter_post(shm_socket_t *sock, const shm_packet_t *packet)
{
    shm_letter_t *letter;

    if (!shm_letter_usable(sock) || sock->posted)
        return;
    sock->posted = true;
    letter = &sock->ep->tx.ring.control->letter;
    memcpy(letter->text, packet->u.refusal, sizeof letter->text);
    atomic_store_explicit(&letter->kind, SHM_LETTER | packet->kind,
                          memory_order_release);
    shm_doorbell_ring(sock->ep->doorbell);
}

psc_status_t shm_socket_send(shm_socket_t *sock, shm_packet_t *packet,
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
        shm_letter_post(sock, packet);
    if (sock->by_mail)
        return PSC_OK;
    if (PSC_RESTART(sendmsg(sock->socket.fd, &message,
                            MSG_DONTWAIT | MSG_NOSIGNAL)) < 0)
        return PSC_ERR_PEER_LOST;
    return PSC_OK;
}

void shm_socket_part(shm_socket_t *sock, shm_packet_t *packet)
{
    shm_socket_send(sock, packet, NULL, 0);
    if (sock->state == SHM_SOCKET_OPEN && sock->ep->cma)
        shm_socket_enter(sock, SHM_SOCKET_PARTING);
    else
        shm_socket_close(sock);
}

/* Sends the peer the reason of the refusal. The caller must not use the socket
 * afterwards. */
void shm_socket_refuse(shm_socket_t *sock, const char *reason)
{
    shm_packet_t packet = {.kind = SHM_PACKET_REFUSAL};

    snprintf(packet.u.refusal, sizeof packet.u.refusal, "%s", reason);
    shm_socket_part(sock, &packet);
}

/* ---- receiving ---- */

/* Takes the descriptors out of the message. Unused entries of `fds` stay -1;
 * descriptors beyond SHM_MAX_FDS are closed. */
static void shm_socket_take_fds(struct msghdr *message, int *fds)
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

ssize_t shm_socket_recv(shm_socket_t *sock, shm_packet_t *packet, int *fds,
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
        PSC_RESTART(recvmsg(sock->socket.fd, &message,
                            MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_TRUNC));

    if (n >= 0)
        shm_socket_take_fds(&message, fds);
    *cut_p = n >= 0 && (message.msg_flags & MSG_CTRUNC) != 0;
    return n;
}

/* ---- creating and closing ---- */

/* Takes ownership of `fd`, also if the function fails. */
shm_socket_t *shm_socket_create(shm_iface_t *iface, int fd)
{
    shm_socket_t *sock = calloc(1, sizeof *sock);

    if (sock == NULL) {
        close(fd);
        return NULL;
    }
    sock->iface = iface;
    sock->state = SHM_SOCKET_OVER;
    sock->socket = (shm_source_t){iface->socket_ready, fd, -1};
    sock->process = (shm_source_t){iface->process_ready, -1, -1};
    psc_list_push(&iface->sockets, &sock->listed);
    return sock;
}

/* All changes of a socket's state are made here, with the counters that depend
 * on the state. */
void shm_socket_enter(shm_socket_t *sock, shm_socket_state_t state)
{
    shm_iface_t *iface = sock->iface;
    bool ticked =
        sock->state == SHM_SOCKET_DIAL || sock->state == SHM_SOCKET_ANONYMOUS;
    bool ticks = state == SHM_SOCKET_DIAL || state == SHM_SOCKET_ANONYMOUS;

    iface->n_anonymous -= sock->state == SHM_SOCKET_ANONYMOUS;
    iface->n_anonymous += state == SHM_SOCKET_ANONYMOUS;
    if (ticks != ticked)
        shm_timer_run(iface, ticks ? +1 : -1);
    sock->state = state;
}

/* Asks the kernel for the peer's user and process, then watches the socket. The
 * process id is 0 if the process is not visible in our name space. */
psc_status_t shm_socket_identify(shm_socket_t *sock, char *reason)
{
    struct ucred peer;
    socklen_t len = sizeof peer;

    if (getsockopt(sock->socket.fd, SOL_SOCKET, SO_PEERCRED, &peer, &len)) {
        snprintf(reason, PSC_REASON_MAX, "SO_PEERCRED: %s", strerror(errno));
        return PSC_ERR_CONNECT;
    }
    if (peer.uid != sock->iface->uid) {
        snprintf(reason, PSC_REASON_MAX,
                 "process %ld belongs to user %lu, we to user %lu",
                 (long)peer.pid, (unsigned long)peer.uid,
                 (unsigned long)sock->iface->uid);
        return PSC_ERR_CONNECT;
    }
    sock->pid = peer.pid;
    if (shm_source_watch(sock->iface->epoll, &sock->socket) != PSC_OK) {
        snprintf(reason, PSC_REASON_MAX, "epoll: %s", strerror(errno));
        return PSC_ERR_NO_MEMORY;
    }
    return PSC_OK;
}

/* Opens a pidfd of the peer's process and watches it. If the peer answers after
 * this call, its process id had not been reused when the pidfd was opened, so
 * the pidfd denotes the peer. */
void shm_socket_guard(shm_socket_t *sock)
{
    if (sock->pid <= 0 || sock->process.fd >= 0)
        return;
    sock->process.fd = (int)syscall(SYS_pidfd_open, sock->pid, 0);
    if (sock->process.fd >= 0 &&
        shm_source_watch(sock->iface->peers.fd, &sock->process) != PSC_OK) {
        close(sock->process.fd);
        sock->process.fd = -1;
    }
}

/* May be called from the socket's own handler, because the structure stays
 * until progress returns. */
void shm_socket_close(shm_socket_t *sock)
{
    static const shm_packet_t end = {.kind = SHM_PACKET_NONE};

    if (sock->dead)
        return;
    shm_letter_post(sock, &end);
    if (sock->state == SHM_SOCKET_VERDICT && sock->ep->rank >= 0)
        shm_call_withdraw(sock->ep);
    shm_socket_enter(sock, SHM_SOCKET_OVER);
    shm_source_close(&sock->socket);
    shm_source_close(&sock->process);
    if (sock->ep != NULL)
        sock->ep->sock = NULL;
    sock->ep = NULL;
    sock->by_mail = false;
    sock->dead = true;
    sock->iface->buried = true;
}

void shm_socket_free(shm_socket_t *sock)
{
    psc_list_remove(&sock->listed);
    free(sock);
}
