/* Connecting two endpoints: the peer's address, the socket to the peer, and the
 * packets that arrive there. trial.c defines the packets' meaning. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "shm.h"

static bool shm_address_unpack(const uint8_t *from, size_t len,
                               shm_address_t *address)
{
    if (len <= SHM_ADDRESS_HEAD || len >= SHM_ADDRESS_HEAD + SHM_PATH_MAX)
        return false;
    *address = (shm_address_t){0};
    memcpy(address, from, len);
    return address->magic == SHM_ADDRESS_MAGIC &&
           address->path_len == len - SHM_ADDRESS_HEAD &&
           address->path[0] == '/' &&
           strlen(address->path) == address->path_len;
}

/* Connects an endpoint to itself: maps both ends of one ring in one process. No
 * trial (trial.c) is needed. */
static psc_status_t shm_ep_connect_self(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    int fd;
    psc_status_t status = shm_ring_create(&iface->geometry, &fd);

    if (status != PSC_OK)
        return status;
    status = shm_ring_map_own(&ep->tx.ring, &iface->geometry, fd);
    if (status == PSC_OK)
        status = shm_ring_map_own(&ep->rx.ring, &iface->geometry, fd);
    close(fd);
    if (status != PSC_OK)
        return status;
    ep->doorbell = fcntl(iface->doorbell.fd, F_DUPFD_CLOEXEC, 0);
    if (ep->doorbell < 0)
        return PSC_ERR_NO_MEMORY;
    ep->self = true;
    ep->fenced = !iface->expedited;
    ep->cma = iface->cma != SHM_CMA_OFF;
    shm_ep_enter(ep, SHM_EP_UP);
    return PSC_OK;
}

/* Connects the socket to the peer. If the peer's backlog is full, every tick of
 * the timer tries again. */
void shm_socket_dial(shm_socket_t *sock)
{
    shm_ep_t *ep = sock->ep;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    shm_packet_t packet = {.kind = SHM_PACKET_HELLO};
    char reason[PSC_REASON_MAX];

    strcpy(address.sun_path, ep->peer.path);
    if (connect(sock->socket.fd, (struct sockaddr *)&address, sizeof address) !=
        0) {
        if (errno == EAGAIN || errno == EINTR)
            shm_socket_enter(sock, SHM_SOCKET_DIAL);
        else
            shm_ep_fail(ep, PSC_ERR_CONNECT,
                        "shm: process %u cannot be reached at %s (%s): it has "
                        "closed, or sees other folders than we do",
                        ep->peer.pid, ep->peer.path, strerror(errno));
        return;
    }
    if (shm_socket_identify(sock, reason) != PSC_OK) {
        shm_ep_fail(ep, PSC_ERR_CONNECT, "shm: %s", reason);
        return;
    }
    packet.u.hello = sock->hello;
    shm_socket_enter(sock, SHM_SOCKET_CHALLENGE);
    shm_trial_check(sock, shm_socket_send(sock, &packet, NULL, 0));
}

static void shm_ep_dial(shm_ep_t *ep)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    shm_socket_t *sock = fd < 0 ? NULL : shm_socket_create(iface, fd);

    if (sock == NULL) {
        shm_ep_fail(ep, PSC_ERR_NO_MEMORY, "shm: no socket could be made: %s",
                    shm_socket_why(errno));
        return;
    }
    ep->sock = sock;
    sock->ep = ep;
    sock->hello.target = ep->peer.ep;
    sock->hello.source = ep->id;
    memcpy(sock->hello.process, iface->process, SHM_ID_SIZE);
    memcpy(sock->hello.nonce, psc_proof_hello(&ep->proof),
           PSC_PROOF_NONCE_SIZE);
    shm_socket_dial(sock);
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
    if (shm_ep_identify(ep) != PSC_OK ||
        !psc_proof_begin(&ep->proof, ep->role, params->token, ep->id,
                         ep->peer.ep))
        return PSC_ERR_TRANSPORT;
    shm_ep_enter(ep, SHM_EP_CONNECTING);
    if (!shm_ep_reachable(ep))
        return PSC_INPROGRESS;
    if (ep->role == PSC_ROLE_CONNECTOR)
        shm_ep_dial(ep);
    else if (ep->sock != NULL)
        shm_trial_challenge(ep->sock);
    return PSC_INPROGRESS;
}

/* ---- packets that arrive ---- */

static bool shm_packet_valid(const shm_packet_t *packet, ssize_t len)
{
    return len == (ssize_t)sizeof *packet && packet->magic == SHM_PACKET_MAGIC;
}

/* Receives and processes one packet. Returns false if there is none, or if the
 * link was closed. */
static bool shm_socket_step(shm_socket_t *sock)
{
    shm_packet_t packet;
    int fds[SHM_MAX_FDS] = {-1, -1, -1};
    bool cut;
    ssize_t n = shm_socket_recv(sock, &packet, fds, &cut);

    /* ECONNRESET is reported once, before the packets that arrived earlier. */
    if (n < 0 && errno == ECONNRESET)
        n = shm_socket_recv(sock, &packet, fds, &cut);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (cut && sock->ep != NULL)
        shm_ep_fail(sock->ep, PSC_ERR_CONNECT, "shm: " SHM_EXHAUSTED);
    else if (n <= 0)
        shm_trial_hangup(sock);
    else
        shm_trial_receive(sock, shm_packet_valid(&packet, n) ? &packet : NULL,
                          fds);
    for (size_t i = 0; i < SHM_MAX_FDS; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return !sock->dead;
}

void shm_socket_ready(shm_source_t *socket, uint32_t events)
{
    (void)events;
    shm_socket_step(psc_container_of(socket, shm_socket_t, socket));
}

/* Processes the peer's letter (its last packet, in the control page of its
 * ring) like any packet. The socket ends with it. */
static void shm_letter_take(shm_socket_t *sock)
{
    shm_packet_t packet = {.version = SHM_PACKET_VERSION};
    int fds[SHM_MAX_FDS] = {-1, -1, -1};
    uint32_t kind = shm_socket_letter(sock);

    if (kind == 0)
        return;
    packet.kind = (uint16_t)kind;
    memcpy(packet.u.refusal, sock->ep->rx.ring.control->letter.text,
           sizeof packet.u.refusal);
    if (kind == SHM_LETTER)
        shm_trial_hangup(sock);
    else
        shm_trial_receive(sock, &packet, fds);
}

void shm_letters_take(shm_iface_t *iface)
{
    iface->mail = false;
    psc_list_for_each(sock, &iface->sockets, shm_socket_t, listed)
        shm_letter_take(sock);
}

/* The peer's process has ended; the packets, or the letter, that it sent before
 * are still processed. */
void shm_process_ready(shm_source_t *process, uint32_t events)
{
    shm_socket_t *sock = psc_container_of(process, shm_socket_t, process);

    (void)events;
    if (sock->ep != NULL && sock->ep->rank >= 0)
        shm_call_check(sock->ep);
    if (sock->by_mail)
        shm_letter_take(sock);
    else
        while (shm_socket_step(sock))
            continue;
    if (!sock->dead)
        shm_trial_hangup(sock);
}
