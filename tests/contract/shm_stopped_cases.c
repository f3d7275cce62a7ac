/* Cases of shm alone: a peer that copies into our memory is stopped between the
 * decision to write and the write. Until it has continued or ended, no call may
 * report that the memory is free. */
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shm_cases.h"

#define LEN (4u << 20)
#define PUT 5000u

/* ---- where the peer stops ---- */

static bool stop_before_writing;

/* Replaces the C library's function. */
ssize_t process_vm_writev(pid_t pid, const struct iovec *local,
                          unsigned long n_local, const struct iovec *remote,
                          unsigned long n_remote, unsigned long flags)
{
    if (stop_before_writing) {
        stop_before_writing = false;
        raise(SIGSTOP);
    }
    return syscall(SYS_process_vm_writev, pid, local, n_local, remote, n_remote,
                   flags);
}

static bool has_stopped(const other_t *other)
{
    int status;

    return waitpid(other->pid, &status, WUNTRACED | WNOHANG) == other->pid &&
           WIFSTOPPED(status);
}

static void await_stop(const other_t *other)
{
    int64_t deadline = ct_deadline();

    while (!has_stopped(other)) {
        ct_check(psc_clock_now() < deadline, "the peer does not write");
        usleep(1000);
    }
}

/* Waits long enough for a call that would end by mistake. */
static void pass_time(ct_pair_t *pair)
{
    for (int i = 0; i < 200; i++) {
        /* poll the sockets in the next pass */
        side_iface(pair->a)->idle_polls = UINT32_MAX - 1;
        ct_side_progress(pair->a);
        usleep(200);
    }
}

typedef enum how { CONTINUES, IS_KILLED, N_HOWS } how_t;

static void let_go(const other_t *other, how_t how)
{
    ct_check(kill(other->pid, how == CONTINUES ? SIGCONT : SIGKILL) == 0,
             "kill");
}

static bool all(const char *bytes, size_t len, char value)
{
    for (size_t i = 0; i < len; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

/* ---- puts ---- */

typedef struct target {
    ct_pair_t pair;
    other_t other;
    remote_t remote;
    char region[PUT];
} target_t;

static void putting_child(other_t *other)
{
    static ct_pair_t pair;
    static char bytes[PUT];
    psc_comp_t comp = {NULL};
    remote_t remote;
    psc_rkey_t *rkey;
    ssize_t n;

    memset(bytes, 7, sizeof bytes);
    other_connect(other, &pair);
    n = read(other->link, remote.packed, sizeof remote.packed);
    ct_check(n > 0 && ct_ops->rkey_unpack(pair.x.ep, remote.packed, (size_t)n,
                                          &rkey) == PSC_OK,
             "rkey_unpack");
    stop_before_writing = true;
    ct_ops->put(pair.x.ep, bytes, sizeof bytes, NULL, rkey, 0, &comp);
    for (;;)
        ct_side_progress(pair.a); /* until this process is killed */
}

/* Sets up a peer that has read the seal and is about to put. */
static void target_up(target_t *target)
{
    memset(target, 0, sizeof *target);
    if (other_fork(&target->other))
        putting_child(&target->other);
    other_connect(&target->other, &target->pair);
    remote_make(&target->pair.x, target->region, PUT, &target->remote);
    ct_check(write(target->other.link, target->remote.packed,
                   target->remote.len) > 0,
             "link");
    await_stop(&target->other);
}

static void target_down(target_t *target)
{
    kill(target->other.pid, SIGKILL);
    other_wait(&target->other);
    ct_pair_down(&target->pair);
}

/* The memory has not changed since it was reported as free. */
static void target_is_ours(target_t *target, how_t how)
{
    char found = target->region[0];

    ct_check(all(target->region, PUT, found), "half a put");
    ct_check(how == CONTINUES || found == 0, "a dead process wrote");
    memset(target->region, 1, PUT);
    pass_time(&target->pair);
    ct_check(all(target->region, PUT, 1), "a late put");
}

static psc_status_t target_revoke(target_t *target)
{
    return ct_ops->mem_revoke(target->pair.a->iface, target->remote.mem);
}

CASE(stopped_put_and_region, .caps = PSC_CAP_PUT)
{
    static target_t target;

    for (how_t how = 0; how < N_HOWS; how++) {
        target_up(&target);
        ct_check(target_revoke(&target) == PSC_INPROGRESS, "revoked at once");
        pass_time(&target.pair);
        ct_check(target_revoke(&target) == PSC_INPROGRESS, "revoked");
        let_go(&target.other, how);
        ct_until(&target.pair, target_revoke(&target) == PSC_OK);
        ct_ops->mem_deregister(target.pair.a->iface, target.remote.mem);
        target_is_ours(&target, how);
        target_down(&target);
    }
}

/* Another registration is not affected. */
CASE(stopped_put_and_other_region, .caps = PSC_CAP_PUT)
{
    static target_t target;
    remote_t other;
    char bytes[8];

    target_up(&target);
    remote_make(&target.pair.x, bytes, sizeof bytes, &other);
    ct_check(ct_ops->mem_revoke(target.pair.a->iface, other.mem) == PSC_OK,
             "it waits for a put into something else");
    ct_ops->mem_deregister(target.pair.a->iface, other.mem);
    let_go(&target.other, IS_KILLED);
    ct_ops->mem_deregister(target.pair.a->iface, target.remote.mem);
    target_down(&target);
}

static void stop_when_closed(ct_end_t *end)
{
    ct_ops->ep_close(end->ep);
}

static void stop_when_failed(ct_end_t *end)
{
    shm_ep_fail(end_ep(end), PSC_ERR_PROTOCOL, "shm: for the test");
}

/* The endpoint is closed on our side: it must not stop before the peer's put
 * has ended. */
static void stopped_put_and_end(void (*end)(ct_end_t *end))
{
    static target_t target;

    for (how_t how = 0; how < N_HOWS; how++) {
        target_up(&target);
        end(&target.pair.x);
        pass_time(&target.pair);
        ct_check(ct_ops->ep_stop(target.pair.x.ep) == PSC_INPROGRESS,
                 "stopped");
        ct_check(target_revoke(&target) == PSC_INPROGRESS, "revoked");
        let_go(&target.other, how);
        ct_until(&target.pair, ct_ops->ep_stop(target.pair.x.ep) == PSC_OK);
        ct_check(target_revoke(&target) == PSC_OK, "not revoked");
        ct_ops->mem_deregister(target.pair.a->iface, target.remote.mem);
        target_is_ours(&target, how);
        target_down(&target);
    }
}

CASE(stopped_put_and_close, .caps = PSC_CAP_PUT)
{
    stopped_put_and_end(stop_when_closed);
}

CASE(stopped_put_and_failure, .caps = PSC_CAP_PUT)
{
    stopped_put_and_end(stop_when_failed);
}

static void sleep_once(ct_side_t *side)
{
    struct pollfd fd = {.fd = ct_ops->event_fd(side->iface), .events = POLLIN};

    if (ct_side_progress(side) == 0 && ct_ops->arm(side->iface) == PSC_OK)
        ct_check(poll(&fd, 1, CT_PATIENCE_S * 1000) == 1, "not woken");
}

/* The owner sleeps and is woken when the peer has ended its put. */
CASE(stopped_put_wakes_its_owner, .caps = PSC_CAP_PUT)
{
    static target_t target;
    int64_t deadline = ct_deadline();

    target_up(&target);
    ct_check(target_revoke(&target) == PSC_INPROGRESS, "revoked at once");
    let_go(&target.other, CONTINUES);
    while (target_revoke(&target) != PSC_OK) {
        ct_check(psc_clock_now() < deadline, "not woken");
        sleep_once(target.pair.a);
    }
    ct_ops->mem_deregister(target.pair.a->iface, target.remote.mem);
    target_down(&target);
}

/* ---- gets that the owner helps with ---- */

static void helping_child(other_t *other)
{
    static ct_pair_t pair;
    static char region[LEN];
    remote_t remote;

    memset(region, 7, LEN);
    other_connect(other, &pair);
    remote_make(&pair.x, region, LEN, &remote);
    ct_check(write(other->link, remote.packed, remote.len) > 0, "link");
    stop_before_writing = true;
    for (;;)
        ct_side_progress(pair.a);
}

static void stopped_helper(void (*end)(ct_end_t *end))
{
    static ct_pair_t pair;
    static char local[LEN];

    for (how_t how = 0; how < N_HOWS; how++) {
        other_t other;
        remote_t remote;
        psc_rkey_t *rkey;
        ct_send_t get;
        ssize_t n;

        memset(&pair, 0, sizeof pair);
        memset(local, 0, LEN);
        if (other_fork(&other))
            helping_child(&other);
        other_connect(&other, &pair);
        n = read(other.link, remote.packed, sizeof remote.packed);
        ct_check(n > 0 && ct_ops->rkey_unpack(pair.x.ep, remote.packed,
                                              (size_t)n, &rkey) == PSC_OK,
                 "rkey_unpack");
        ct_send_make(&get);
        ct_check(ct_ops->get(pair.x.ep, local, LEN, NULL, rkey, 0, &get.comp) ==
                     PSC_INPROGRESS,
                 "get");
        await_stop(&other);
        end(&pair.x);
        pass_time(&pair);
        ct_check(!get.done, "ended while the peer copies");
        let_go(&other, how);
        ct_until(&pair, get.done);
        ct_check(get.status < 0, "%s", psc_status_string(get.status));
        memset(local, 1, LEN);
        pass_time(&pair);
        ct_check(all(local, LEN, 1), "a late copy");
        ct_ops->rkey_release(pair.x.ep, rkey);
        kill(other.pid, SIGKILL);
        other_wait(&other);
        ct_pair_down(&pair);
    }
}

CASE(stopped_helper_and_close, .caps = PSC_CAP_GET)
{
    stopped_helper(stop_when_closed);
}

CASE(stopped_helper_and_failure, .caps = PSC_CAP_GET)
{
    stopped_helper(stop_when_failed);
}

/* ---- the trial ---- */

static void proving_child(other_t *other)
{
    static ct_pair_t pair;

    other_begin(other, &pair, PSC_ROLE_ACCEPTOR);
    stop_before_writing = true;
    for (;;)
        ct_side_progress(pair.a);
}

/* The trial is given up while the peer is about to write its echo. */
CASE(stopped_proof, .caps = PSC_CAP_PUT)
{
    static ct_pair_t pair;
    shm_probe_t *probe;
    int64_t deadline;
    other_t other;

    if (other_fork(&other))
        proving_child(&other);
    other_begin(&other, &pair, PSC_ROLE_CONNECTOR);
    deadline = ct_deadline();
    while (!has_stopped(&other)) {
        ct_check(psc_clock_now() < deadline, "no trial");
        ct_side_progress(pair.a);
    }
    probe = end_ep(&pair.x)->probe;
    ct_end_abandon(&pair.x);
    ct_side_progress(pair.a);
    let_go(&other, CONTINUES);
    for (deadline = ct_deadline();
         memcmp(probe->echo, probe->bytes, SHM_ID_SIZE) != 0;) {
        ct_check(psc_clock_now() < deadline, "no echo");
        usleep(1000);
    }
    kill(other.pid, SIGKILL);
    other_wait(&other);
    ct_side_close(pair.a);
}
