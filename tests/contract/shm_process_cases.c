/* Cases of shm alone: two real processes, in other name spaces, killed, and
 * asleep. */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_cases.h"

/* ---- processes in unlike circumstances ---- */

static void namespace_child(other_t *other)
{
    static ct_pair_t pair;
    pid_t inner;
    int status;

    if (unshare(CLONE_NEWPID) != 0)
        _exit(2);
    inner = fork();
    if (inner != 0) {
        waitpid(inner, &status, 0);
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    other_connect(other, &pair);
    ct_check(!end_ep(&pair.x)->cma, "cross-memory attach to process 0");
    ct_until(&pair, pair.x.failed);
    _exit(pair.x.status == PSC_ERR_CLOSED && pair.x.received == 1 ? 0 : 1);
}

/* Our process id is not visible to the other process: messages work, put does
 * not. */
CASE(other_pid_namespace)
{
    static ct_pair_t pair;
    other_t other;
    ct_send_t send;

    if (geteuid() != 0)
        ct_skip("only root can make a pid name space");
    if (other_fork(&other))
        namespace_child(&other);
    other_connect(&other, &pair);
    ct_check(!end_ep(&pair.x)->cma, "cross-memory attach one way only");
    ct_send(&pair, &pair.x, CT_BCOPY, 100, 1, &send);
    ct_send_finish(&pair, &send);
    ct_pair_down(&pair);
    other_check(&other);
}

static void orphan_child(other_t *other)
{
    static ct_pair_t pair;

    pid_t heir;

    other_connect(other, &pair);
    heir = fork();
    if (heir == 0) {
        alarm(4 * CT_PATIENCE_S);
        /* the parent must not wait for output of this process */
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
        pause(); /* keeps copies of all other descriptors open */
        _exit(0);
    }
    ct_check(send(other->link, &heir, sizeof(heir), 0) == sizeof(heir), "heir");
    raise(SIGKILL);
}

/* A child of the dead process has inherited its sockets. */
CASE(death_shows_despite_heirs)
{
    static ct_pair_t pair;
    other_t other;
    pid_t heir;

    if (other_fork(&other))
        orphan_child(&other);
    other_connect(&other, &pair);
    ct_check(recv(other.link, &heir, sizeof(heir), 0) == sizeof(heir), "heir");
    other_wait(&other);
    ct_until(&pair, pair.x.failed);
    ct_check(pair.x.status == PSC_ERR_PEER_LOST, "%s", pair.x.reason);
    ct_check(kill(heir, SIGKILL) == 0, "noticed only when the heir ended");
    ct_pair_down(&pair);
}

/* ---- killed at every state ---- */

/* The two processes alternate, so that no state can pass while only one makes
 * progress. */
static bool state_turn(const other_t *other)
{
    char turn = 0;

    return send(other->link, &turn, 1, MSG_NOSIGNAL) == 1 &&
           recv(other->link, &turn, 1, 0) == 1;
}

static void state_child(other_t *other, psc_role_t role,
                        shm_socket_state_t state)
{
    static ct_pair_t pair;

    other_begin(other, &pair, role);
    while (!pair.x.up) {
        psc_list_for_each(sock, &side_iface(pair.a)->sockets, shm_socket_t,
                          listed)
            if (sock->state == state)
                raise(SIGKILL);
        ct_side_progress(pair.a);
        ct_check(state_turn(other), "nobody is there");
    }
    if (state == SHM_SOCKET_OPEN)
        raise(SIGKILL);
    _exit(0); /* this role never enters that state */
}

/* Returns true if the other process was in that state. */
static bool state_kill(psc_role_t role, shm_socket_state_t state)
{
    static ct_pair_t pair;
    other_t other;
    int status;

    if (other_fork(&other))
        state_child(&other, role, state);
    other_begin(&other, &pair,
                role == PSC_ROLE_ACCEPTOR ? PSC_ROLE_CONNECTOR
                                          : PSC_ROLE_ACCEPTOR);
    while (state_turn(&other))
        ct_side_progress(pair.a);
    ct_until(&pair, pair.x.failed);
    status = other_wait(&other);
    ct_pair_down(&pair);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        return false;
    printf("%s killed in %s: %s\n",
           role == PSC_ROLE_ACCEPTOR ? "acceptor" : "connector",
           shm_socket_state_name(state), pair.x.reason);
    return true;
}

CASE(killed_in_every_stage)
{
    const unsigned expected[2] = {
        [PSC_ROLE_CONNECTOR] = 1u << SHM_SOCKET_CHALLENGE |
                               1u << SHM_SOCKET_RESOURCES |
                               1u << SHM_SOCKET_OPEN,
        [PSC_ROLE_ACCEPTOR] = 1u << SHM_SOCKET_PROOF |
                              1u << SHM_SOCKET_VERDICT | 1u << SHM_SOCKET_OPEN,
    };

    for (psc_role_t role = PSC_ROLE_CONNECTOR; role <= PSC_ROLE_ACCEPTOR;
         role++) {
        unsigned seen = 0;

        for (unsigned state = 0; state < SHM_N_SOCKET_STATES; state++)
            if (state_kill(role, (shm_socket_state_t)state))
                seen |= 1u << state;
        ct_check(seen == expected[role], "role %d was in stages 0x%x", role,
                 seen);
    }
}

/* ---- sleeping, between processes ---- */

#define NAPS 100000u

static unsigned n_naps;

static void nap(ct_side_t *side)
{
    struct pollfd fd = {.fd = ct_ops->event_fd(side->iface), .events = POLLIN};

    if (ct_side_progress(side) > 0 || ct_ops->arm(side->iface) != PSC_OK)
        return;
    ct_check(poll(&fd, 1, CT_PATIENCE_S * 1000) == 1, "a wake-up was lost");
    n_naps++;
}

static void nap_send(ct_end_t *end)
{
    ct_header_t header = {end->sent, 0, end->sent * 17};

    while (ct_ops->am_short(end->ep, CT_AM_ID, &header, sizeof(header), NULL,
                            0) == PSC_ERR_NO_RESOURCE)
        nap(end->side);
    end->sent++;
}

/* Some messages are sent at once, some while the other side falls asleep, some
 * later. */
static void nap_ping_pong(ct_pair_t *pair, bool first)
{
    dice_t dice = {first};

    for (unsigned i = 1; i <= NAPS; i++) {
        if (first)
            nap_send(&pair->x);
        while (pair->x.received < i)
            nap(pair->a);
        for (volatile uint64_t wait = dice_roll(&dice) % 8000; wait > 0;)
            wait--;
        if (!first)
            nap_send(&pair->x);
    }
}

CASE(naps_between_processes)
{
    static ct_pair_t pair;
    other_t other;

    if (other_fork(&other)) {
        other_connect(&other, &pair);
        nap_ping_pong(&pair, false);
        ct_until(&pair, pair.x.failed);
        _exit(0);
    }
    other_connect(&other, &pair);
    nap_ping_pong(&pair, true);
    printf("slept %u times in %u exchanges\n", n_naps, NAPS);
    ct_check(n_naps > NAPS / 100, "hardly ever slept");
    ct_pair_down(&pair);
    other_check(&other);
}
