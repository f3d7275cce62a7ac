/* The socket of an NI: nid and pid are its IPv4 address and UDP port. */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <unistd.h>

#include "nic.h"
#include "pscompy/transport/kit/restart.h"

#define SOCKET_BUFFER                                                          \
    (4 << 20) /* requested size; the system may grant less                     \
               */

ptl_process_t psni_process(const struct sockaddr_in *address)
{
    return (ptl_process_t){
        .phys = {ntohl(address->sin_addr.s_addr), ntohs(address->sin_port)}};
}

/* Returns the IPv4 address of an interface: the number of the interface, but
 * the loopback address for PTL_IFACE_DEFAULT and for numbers of the network
 * 0.0.0.0/8, which no host has. */
static uint32_t psni_wire_host(ptl_interface_t iface)
{
    bool given = iface != PTL_IFACE_DEFAULT && (uint32_t)iface >> 24 != 0;

    return given ? (uint32_t)iface : INADDR_LOOPBACK;
}

/* Binds the socket to the port `pid`. Some versions of portals4.h define
 * PTL_PID_ANY as 65535, so the NI cannot use that port. */
static int psni_wire_bind(psni_ni_t *ni, ptl_pid_t pid)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_addr.s_addr = htonl(psni_wire_host(ni->iface)),
        .sin_port = htons(pid == PTL_PID_ANY ? 0 : (uint16_t)pid)};
    socklen_t size = sizeof(address);

    if (bind(ni->socket, (struct sockaddr *)&address, size) != 0)
        return errno == EADDRINUSE ? PTL_PID_IN_USE : PTL_FAIL;
    if (getsockname(ni->socket, (struct sockaddr *)&address, &size) != 0)
        return PTL_FAIL;
    ni->id = psni_process(&address);
    return ni->id.phys.pid == PTL_PID_ANY ? PTL_FAIL : PTL_OK;
}

/* Sets ni->room to three quarters of the socket's receive buffer; the rest is
 * for frames that no window counts, such as HELLO. */
static void psni_wire_size(psni_ni_t *ni)
{
    int wanted = SOCKET_BUFFER, got = 0;
    socklen_t size = sizeof(got);

    setsockopt(ni->socket, SOL_SOCKET, SO_RCVBUF, &wanted, sizeof(wanted));
    setsockopt(ni->socket, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof(wanted));
    getsockopt(ni->socket, SOL_SOCKET, SO_RCVBUF, &got, &size);
    ni->room = (uint64_t)(got > 0 ? got : 0) / 4 * 3;
}

int psni_wire_open(psni_ni_t *ni, ptl_pid_t pid)
{
    int one = 1, rc;

    ni->socket = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (ni->socket < 0)
        return PTL_FAIL;
    psni_wire_size(ni);
    rc = psni_wire_bind(ni, pid);
    if (rc == PTL_OK &&
        setsockopt(ni->socket, IPPROTO_IP, IP_RECVERR, &one, sizeof(one)) != 0)
        rc = PTL_FAIL;
    if (rc != PTL_OK)
        psni_wire_close(ni);
    return rc;
}

void psni_wire_close(psni_ni_t *ni)
{
    close(ni->socket);
    ni->socket = -1;
}

/* ---- refusals ---- */

static void psni_wire_refusal(psni_ni_t *ni, struct msghdr *message)
{
    struct sockaddr_in *to = message->msg_name;
    struct sock_extended_err *error;
    psni_peer_t *peer;

    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL;
         part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != IPPROTO_IP || part->cmsg_type != IP_RECVERR)
            continue;
        error = (struct sock_extended_err *)(void *)CMSG_DATA(part);
        peer = psni_peer_find(ni, psni_process(to));
        if (error->ee_errno == ECONNREFUSED && peer != NULL)
            psni_peer_refused(peer);
    }
}

/* Reads the errors of earlier datagrams from the socket's error queue. */
static void psni_wire_refusals(psni_ni_t *ni)
{
    uint8_t control[256];
    struct sockaddr_in to;

    for (;;) {
        struct msghdr message = {.msg_name = &to,
                                 .msg_namelen = sizeof(to),
                                 .msg_control = control,
                                 .msg_controllen = sizeof(control)};

        if (PSC_RESTART(recvmsg(ni->socket, &message, MSG_ERRQUEUE)) < 0)
            return;
        psni_wire_refusal(ni, &message);
    }
}

/* ---- datagrams ---- */

/* Handles the errno of a failed socket call. The error may belong to an earlier
 * datagram; then the call has done nothing, and the caller repeats it. */
bool psni_wire_again(psni_ni_t *ni, int error)
{
    if (error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS)
        return false;
    psni_wire_refusals(ni);
    return error == ECONNREFUSED || error == EHOSTUNREACH ||
           error == ENETUNREACH;
}

static unsigned psni_wire_send_faulty(psni_ni_t *ni,
                                      const struct sockaddr_in *to,
                                      psni_packet_t *packets, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!psni_faults_send(ni, to, &packets[i]) &&
            !(psni_wire_again(ni, errno) &&
              psni_faults_send(ni, to, &packets[i])))
            return i;
    return n;
}

unsigned psni_wire_send(psni_ni_t *ni, const struct sockaddr_in *to,
                        psni_packet_t *packets, unsigned n)
{
    struct mmsghdr messages[PSNI_BATCH];
    unsigned sent = 0;
    bool patient = true;

    if (ni->faulty)
        return psni_wire_send_faulty(ni, to, packets, n);
    for (unsigned i = 0; i < n; i++)
        messages[i] = (struct mmsghdr){
            .msg_hdr = {.msg_name = (void *)to,
                        .msg_namelen = sizeof(*to),
                        .msg_iov = packets[i].iov,
                        .msg_iovlen = (size_t)packets[i].n_iov}};
    while (sent < n) {
        int more = PSC_RESTART(
            sendmmsg(ni->socket, messages + sent, n - sent, MSG_NOSIGNAL));

        if (more > 0)
            sent += (unsigned)more;
        else if (!patient || !psni_wire_again(ni, errno))
            break;
        else
            patient = false;
    }
    ni->counters.frames_sent += sent;
    return sent;
}

void psni_wire_send_head(psni_peer_t *peer, size_t size)
{
    psni_packet_t *packet = &peer->ni->packets[0];

    packet->iov[0] = (struct iovec){.iov_base = packet->head, .iov_len = size};
    packet->n_iov = 1;
    psni_wire_send(peer->ni, &peer->address, packet, 1);
}
