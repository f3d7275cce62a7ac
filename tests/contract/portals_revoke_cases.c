/* A peer stops in the middle of a put of many frames: whatever the owner of the
 * memory does, until the peer has ended no call reports that the memory is
 * free. */
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "portals_cases.h"

#define PUT ((size_t)4 << 20)
#define LARGE 4096u /* the bytes are part of the put's frame */

/* ---- where the peer stops ---- */

static bool stopping;
static unsigned n_large;

static bool is_large(const struct msghdr *message)
{
    size_t len = 0;

    for (size_t i = 0; i < message->msg_iovlen; i++)
        len += message->msg_iov[i].iov_len;
    return len >= LARGE;
}

/* Replaces the C library's function: only the first frame of the put is
 * sent. */
int sendmmsg(int fd, struct mmsghdr *messages, unsigned n, int flags)
{
    if (stopping && n > 0 && is_large(&messages[0].msg_hdr)) {
        n = 1;
        if (n_large++ == 1)
            raise(SIGSTOP);
    }
    return (int)syscall(SYS_sendmmsg, fd, messages, n, flags);
}

/* ---- two processes ---- */

typedef struct owner {
    pid_t peer;
    int link;
    ct_side_t side;
    ct_end_t end;
    psc_mem_t *mem;
} owner_t;

static char target[PUT];

static void end_up(ct_side_t *side, ct_end_t *end, int link, psc_role_t role)
{
    int64_t deadline = ct_deadline();

    ct_side_open(side);
    ct_end_create(end, side);
    ct_end_join_over(end, link, role);
    while (!end->up) {
        ct_side_progress(side);
        ct_check(psc_clock_now() < deadline, "not up");
    }
}

static void peer_run(int link)
{
    static char bytes[PUT];
    uint8_t packed[PSC_RKEY_MAX];
    psc_rkey_t *rkey;
    ct_side_t side;
    ct_end_t end;
    ct_send_t put;
    ssize_t n;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    end_up(&side, &end, link, PSC_ROLE_ACCEPTOR);
    n = read(link, packed, sizeof(packed));
    ct_check(n > 0 && ct_ops->rkey_unpack(end.ep, packed, (size_t)n, &rkey) ==
                          PSC_OK,
             "rkey_unpack");
    memset(bytes, 7, PUT);
    stopping = true;
    ct_send_make(&put);
    ct_ops->put(end.ep, bytes, PUT, NULL, rkey, 0, &put.comp);
    for (;;)
        ct_side_progress(&side); /* the process stops here until it is killed */
}

static void await_stop(const owner_t *owner)
{
    int status;

    ct_check(waitpid(owner->peer, &status, WUNTRACED) == owner->peer &&
                 WIFSTOPPED(status),
             "the peer ended with status %x", (unsigned)status);
}

/* Sets up a put that has begun, and a peer that has stopped. */
static void owner_up(owner_t *owner)
{
    uint8_t packed[PSC_RKEY_MAX];
    size_t len = sizeof(packed);
    int64_t deadline = ct_deadline();
    int links[2];

    memset(target, 0, PUT);
    set_number("RNDV_FRAGMENT_SIZE", INT64_MAX);
    set_number("KEEPALIVE", 0); /* no other clock wakes the owner */
    ct_check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, links) == 0, "socketpair");
    fflush(NULL);
    owner->peer = fork();
    if (owner->peer == 0)
        peer_run(links[1]);
    close(links[1]);
    owner->link = links[0];
    end_up(&owner->side, &owner->end, owner->link, PSC_ROLE_CONNECTOR);
    ct_check(ct_ops->mem_register(owner->side.iface, owner->end.ep, target, PUT,
                                  &owner->mem) == PSC_OK &&
                 ct_ops->rkey_pack(owner->side.iface, owner->mem, packed,
                                   &len) == PSC_OK,
             "mem_register");
    ct_check(write(owner->link, packed, len) == (ssize_t)len, "write");
    await_stop(owner);
    while (target[0] != 7) {
        ct_side_progress(&owner->side);
        ct_check(psc_clock_now() < deadline, "the put has not begun");
    }
    ct_check(target[PUT - 1] == 0, "the put has ended");
}

static void owner_down(owner_t *owner)
{
    kill(owner->peer, SIGKILL);
    waitpid(owner->peer, NULL, 0);
    close(owner->link);
    ct_end_abandon(&owner->end);
    ct_side_close(&owner->side);
}

/* ---- what the owner does ---- */

static psc_status_t owner_revoke(const owner_t *owner)
{
    ct_check(ct_ops->mem_revoke, "portals has no mem_revoke");
    return ct_ops->mem_revoke(owner->side.iface, owner->mem);
}

static void await_wakeup(ct_side_t *side)
{
    struct pollfd fd = {.fd = ct_ops->event_fd(side->iface), .events = POLLIN};

    ct_check(poll(&fd, 1, CT_PATIENCE_S * 1000) == 1, "not woken");
}

static void arm(ct_side_t *side)
{
    int64_t deadline = ct_deadline();

    while (ct_ops->arm(side->iface) != PSC_OK) {
        ct_side_progress(side);
        ct_check(psc_clock_now() < deadline, "cannot sleep");
    }
}

static void revoke_asleep(owner_t *owner)
{
    int64_t deadline = ct_deadline();

    while (owner_revoke(owner) != PSC_OK) {
        arm(&owner->side);
        await_wakeup(&owner->side);
        ct_side_progress(&owner->side);
        ct_check(psc_clock_now() < deadline, "not revoked");
    }
}

/* Waits longer than a late frame takes, and checks the memory. */
static void nothing_is_written(owner_t *owner)
{
    int64_t end = psc_clock_deadline(CT_SECOND / 5);

    memset(target, 1, PUT);
    while (psc_clock_now() < end)
        ct_side_progress(&owner->side);
    for (size_t i = 0; i < PUT; i++)
        ct_check(target[i] == 1, "byte %zu was written late", i);
}

CASE(a_put_that_has_stopped_is_awaited)
{
    static const int signals[] = {SIGCONT, SIGKILL};

    for (int i = 0; i < 2; i++) {
        owner_t owner = {0};

        owner_up(&owner);
        ct_check(owner_revoke(&owner) == PSC_INPROGRESS, "revoked at once");
        for (int j = 0; j < 3; j++) {
            arm(&owner.side);
            ct_check(owner_revoke(&owner) == PSC_INPROGRESS, "too early");
            await_wakeup(&owner.side);
            ct_side_progress(&owner.side);
        }
        kill(owner.peer, signals[i]);
        revoke_asleep(&owner);
        ct_check(owner_revoke(&owner) == PSC_OK, "not revoked any more");
        ct_check(target[PUT - 1] == (signals[i] == SIGCONT ? 7 : 0), "the put");
        nothing_is_written(&owner);
        ct_ops->mem_deregister(owner.side.iface, owner.mem);
        owner_down(&owner);
    }
}

static unsigned n_logged;

static void count_log(psc_iface_t *iface, int level, const char *line)
{
    (void)iface;
    printf("log %d: %s\n", level, line);
    n_logged += level == 1 && strstr(line, "4194304 bytes") != NULL;
}

/* The region is closed without having been revoked. Closing waits in vain for
 * the peer's access, and the entry is taken back when the peer continues. */
CASE(an_entry_that_was_closed_in_use_is_taken_back)
{
    owner_t owner = {0};
    int64_t deadline = ct_deadline();
    psptl_device_t *device;
    psc_upcalls_t up;

    owner_up(&owner);
    up = *owner.side.iface->up;
    up.log = count_log;
    owner.side.iface->up = &up;
    device = portals_iface(owner.side.iface)->device;
    ct_ops->mem_deregister(owner.side.iface, owner.mem);
    ct_check(n_logged == 1, "%u lines tell of it", n_logged);
    ct_check(!psc_list_empty(&device->busy_regions), "forgotten");
    kill(owner.peer, SIGCONT);
    while (!psc_list_empty(&device->busy_regions)) {
        arm(&owner.side);
        /* arm() makes progress, which may take the entry back */
        if (!psc_list_empty(&device->busy_regions))
            await_wakeup(&owner.side);
        ct_side_progress(&owner.side);
        ct_check(psc_clock_now() < deadline, "not taken back");
    }
    nothing_is_written(&owner);
    owner_down(&owner);

    owner_up(&owner); /* the interface closes before that */
    ct_ops->mem_deregister(owner.side.iface, owner.mem);
    owner_down(&owner);
}
