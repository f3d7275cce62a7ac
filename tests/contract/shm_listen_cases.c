/* Cases of shm alone: unwanted callers at the listening socket. */
#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include "shm_cases.h"

#define NOBODY 65534

/* ---- callers at the listening socket ---- */

static int call(ct_side_t *side)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    strcpy(address.sun_path, side_iface(side)->listener.path);
    ct_check(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0,
             "connect: %s", strerror(errno));
    return fd;
}

/* Calls progress until the other end closes the socket. Stores its last
 * packet. */
static void call_ends(ct_pair_t *pair, int fd, shm_packet_t *said)
{
    ssize_t n = -1;

    memset(said, 0, sizeof(*said));
    ct_until(pair, (n = recv(fd, said, sizeof(*said), MSG_DONTWAIT)) >= 0 ||
                       errno != EAGAIN);
    if (n > 0)
        ct_until(pair, (n = recv(fd, (char[1]){0}, 1, MSG_DONTWAIT)) >= 0 ||
                           errno != EAGAIN);
    ct_check(n <= 0, "still open");
    close(fd);
}

CASE(strangers_are_turned_away)
{
    ct_pair_t pair;
    shm_packet_t packet, said;
    dice_t dice = {7};

    ct_pair_up(&pair);
    for (size_t len = 1; len < 2 * sizeof(packet); len += 7) {
        char noise[2 * sizeof(packet)];
        int fd = call(pair.b);

        for (size_t i = 0; i < sizeof(noise); i++)
            noise[i] = (char)dice_roll(&dice);
        ct_check(send(fd, noise, len, 0) == (ssize_t)len, "send");
        call_ends(&pair, fd, &said);
    }
    for (uint16_t kind = 0; kind < 10; kind++) {
        int fd = call(pair.b);

        memset(&packet, 0, sizeof(packet));
        packet.magic = SHM_PACKET_MAGIC;
        packet.version = SHM_PACKET_VERSION;
        packet.kind = kind;
        /* the endpoint is up already */
        packet.u.hello.target = end_ep(&pair.y)->id;
        ct_check(send(fd, &packet, sizeof(packet), 0) > 0, "send");
        call_ends(&pair, fd, &said);
        if (kind == SHM_PACKET_HELLO)
            ct_check(said.kind == SHM_PACKET_REFUSAL, "not refused");
    }
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 10, 1);
    ct_pair_down(&pair);
}

/* The caller knows the endpoint's id, but is not the expected peer. */
CASE(impostor_is_refused)
{
    ct_pair_t pair;
    shm_packet_t packet = {.magic = SHM_PACKET_MAGIC,
                           .version = SHM_PACKET_VERSION,
                           .kind = SHM_PACKET_HELLO};
    shm_packet_t said;
    int fd;

    ct_pair_open(&pair);
    ct_end_join(&pair.y, &pair.x, PSC_ROLE_ACCEPTOR);
    fd = call(pair.b);
    packet.u.hello.target = end_ep(&pair.y)->id;
    packet.u.hello.source = end_ep(&pair.x)->id + 1;
    ct_check(send(fd, &packet, sizeof(packet), 0) > 0, "send");
    call_ends(&pair, fd, &said);
    ct_check(said.kind == SHM_PACKET_REFUSAL, "not refused");
    ct_check(!pair.y.failed, "%s", pair.y.reason);
    ct_end_join(&pair.x, &pair.y, PSC_ROLE_CONNECTOR);
    ct_until(&pair, pair.x.up && pair.y.up);
    ct_pair_down(&pair);
}

/* Sends resources like the connector's, with three descriptors. */
static void send_offer(int fd, const uint8_t *answer)
{
    shm_packet_t packet = {.magic = SHM_PACKET_MAGIC,
                           .version = SHM_PACKET_VERSION,
                           .kind = SHM_PACKET_RESOURCES};
    enum { ROOM = CMSG_SPACE(SHM_MAX_FDS * sizeof(int)) };
    _Alignas(struct cmsghdr) char control[ROOM] = {0};
    struct iovec iov = {&packet, sizeof(packet)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *header = (struct cmsghdr *)(void *)control;
    const int fds[SHM_MAX_FDS] = {fd, fd, fd};

    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(fds));
    memcpy(CMSG_DATA(header), fds, sizeof(fds));
    memcpy(packet.u.resources.answer, answer, PSC_PROOF_SIZE);
    ct_check(sendmsg(fd, &message, 0) > 0, "sendmsg");
}

/* The caller sends correct packets, but does not hold the token: the acceptor's
 * own proof is not accepted as the answer. */
CASE(unproved_resources_are_refused)
{
    ct_pair_t pair;
    shm_packet_t packet = {.magic = SHM_PACKET_MAGIC,
                           .version = SHM_PACKET_VERSION,
                           .kind = SHM_PACKET_HELLO};
    ssize_t n = -1;
    int fd;

    ct_pair_open(&pair);
    ct_end_join(&pair.y, &pair.x, PSC_ROLE_ACCEPTOR);
    fd = call(pair.b);
    packet.u.hello.target = end_ep(&pair.y)->id;
    packet.u.hello.source = end_ep(&pair.x)->id;
    memcpy(packet.u.hello.process, side_iface(pair.a)->process, SHM_ID_SIZE);
    ct_check(send(fd, &packet, sizeof(packet), 0) > 0, "send");
    ct_until(&pair, (n = recv(fd, &packet, sizeof(packet), MSG_DONTWAIT)) > 0);
    ct_check(packet.kind == SHM_PACKET_CHALLENGE, "kind %u", packet.kind);
    send_offer(fd, packet.u.challenge + PSC_PROOF_NONCE_SIZE);
    ct_until(&pair, pair.y.failed);
    ct_check(!pair.y.up && pair.y.status == PSC_ERR_CONNECT, "%d",
             pair.y.status);
    ct_check(strstr(pair.y.reason, "token"), "%s", pair.y.reason);
    close(fd);
    ct_pair_down(&pair);
}

static bool hung_up(int fd)
{
    char byte;

    return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/* Silent callers are bounded in number and time, and do not prevent
 * connections: the oldest is dropped for a new one. */
CASE(silent_callers_are_bounded)
{
    ct_pair_t pair;
    shm_iface_t *iface;
    int fds[SHM_ANONYMOUS_MAX + 20];
    const unsigned n = sizeof(fds) / sizeof(fds[0]);

    ct_pair_open(&pair);
    iface = side_iface(pair.b);
    for (unsigned i = 0; i < n; i++)
        fds[i] = call(pair.b);
    ct_until(&pair, hung_up(fds[19]));
    ct_check(!hung_up(fds[20]), "one too many has gone");
    ct_check(iface->n_anonymous == SHM_ANONYMOUS_MAX, "%u callers",
             iface->n_anonymous);
    ct_pair_connect(&pair);
    ct_exchange(&pair, &pair.x, &pair.y, CT_BCOPY, 100, 1);
    psc_list_for_each(sock, &iface->sockets, shm_socket_t, listed)
        sock->since -= SHM_ANONYMOUS_NS; /* as if the time had passed */
    ct_until(&pair, iface->n_anonymous == 0);
    for (unsigned i = 0; i < n; i++)
        close(fds[i]);
    ct_check(iface->n_ticking == 0, "the timer ticks on");
    ct_pair_down(&pair);
}

/* ---- other users ---- */

static void other_user_calls(other_t *other, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    int listener = open(path, O_PATH | O_CLOEXEC);
    /* shorter than the time limit of silent callers */
    const struct timeval soon = {3, 0};
    char byte;

    ct_check(setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
                 setresuid(NOBODY, NOBODY, NOBODY) == 0 &&
                 /* otherwise /proc/self belongs to root */
                 prctl(PR_SET_DUMPABLE, 1) == 0,
             "setuid");
    strcpy(address.sun_path, path);
    ct_check(connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 &&
                 errno == EACCES,
             "entered the folder");
    /* Assume that the other user can reach the socket in the folder. */
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d",
             listener);
    ct_check(connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0,
             "connect: %s", strerror(errno));
    errno = 0;
    ct_check(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof(soon)) == 0,
             "setsockopt");
    ct_check(recv(fd, &byte, 1, 0) <= 0 && errno != EAGAIN, "let in");
    ct_check(write(other->link, "x", 1) == 1, "link");
}

CASE(other_user_is_turned_away)
{
    ct_pair_t pair;
    other_t other;
    char byte;

    if (geteuid() != 0)
        ct_skip("only root can become another user");
    ct_pair_open(&pair);
    ct_check(chmod(side_iface(pair.b)->listener.path, 0777) == 0, "chmod");
    if (other_fork(&other)) {
        other_user_calls(&other, side_iface(pair.b)->listener.path);
        _exit(0);
    }
    ct_until(&pair, recv(other.link, &byte, 1, MSG_DONTWAIT) >= 0);
    other_check(&other);
    ct_pair_connect(&pair);
    ct_pair_down(&pair);
}

/* An address of another user, or of another machine. */
CASE(unreachable_is_told)
{
    ct_pair_t pair;
    uint8_t address[PSC_ADDRESS_MAX];
    size_t len = sizeof(address);

    ct_pair_open(&pair);
    ct_ops->ep_address(pair.y.ep, address, &len);
    address[4] ^= 1; /* the user id */
    ct_end_connect(&pair.x, PSC_ROLE_CONNECTOR, ct_token, address, len);
    address[24] ^= 1; /* the boot id */
    ct_end_connect(&pair.y, PSC_ROLE_ACCEPTOR, ct_token, address, len);
    ct_until(&pair, pair.x.failed && pair.y.failed);
    ct_check(pair.x.status == PSC_ERR_CONNECT && strstr(pair.x.reason, "user"),
             "%s", pair.x.reason);
    ct_check(pair.y.status == PSC_ERR_CONNECT && strstr(pair.y.reason, "node"),
             "%s", pair.y.reason);
    ct_pair_down(&pair);
}

/* The path in an address is longer than that of any socket, but not the
 * address. */
CASE(a_path_that_is_too_long)
{
    union {
        shm_address_t address;
        uint8_t bytes[PSC_ADDRESS_MAX];
    } it;
    ct_pair_t pair;
    ct_end_t end;
    size_t len = sizeof it.bytes;

    ct_pair_open(&pair);
    ct_ops->ep_address(pair.y.ep, it.bytes, &len);
    memset(it.address.path + 1, 'a', SHM_PATH_MAX - 1);
    for (len = SHM_ADDRESS_HEAD + SHM_PATH_MAX; len < sizeof it.bytes; len++) {
        it.bytes[len - 1] = 'a';
        it.address.path_len = (uint32_t)(len - SHM_ADDRESS_HEAD);
        ct_end_create(&end, pair.a);
        ct_check(ct_end_connect(&end, PSC_ROLE_CONNECTOR, ct_token, it.bytes,
                                len) < 0,
                 "a path of %u bytes", it.address.path_len);
        ct_end_destroy(&end, pair.b);
    }
    ct_pair_down(&pair);
}
