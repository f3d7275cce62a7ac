/* How ranks of a job on one node connect by the rings and inboxes in a memory
 * file that they share, without a socket (inbox.h). */
#include "inbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory.h"
#include "pscompy/transport/kit/restart.h"

#ifndef SYS_pidfd_getfd /* older headers */
#define SYS_pidfd_getfd 438
#endif
#define SHM_RANKS_SIZE (SHM_INBOX_RANKS * sizeof(shm_ep_t *))

static void shm_segment_address_prove(const shm_segment_address_t *address,
                                      const uint8_t *key, uint8_t *proof)
{
    psc_siphash(key, address, offsetof(shm_segment_address_t, proof), proof);
}

/* ---- our own inbox ---- */

/* A rank has written to the pipe `connect_doorbell`, to ask for a connection;
 * the same pass of progress handles the rank's bit. */
static void shm_connect_doorbell_ready(shm_source_t *self, uint32_t events)
{
    shm_iface_t *iface = psc_container_of(self, shm_iface_t, connect_doorbell);

    (void)events;
    shm_source_drain(self);
    shm_inbox_listen(iface);
}

static uint64_t shm_inode(int fd)
{
    struct stat status;

    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

static void shm_inbox_write_address(shm_iface_t *iface)
{
    shm_segment_address_t *address = &iface->inbox->address;

    address->magic = SHM_SEGMENT_ADDRESS_MAGIC;
    address->rank = iface->rank;
    address->pid = getpid();
    address->doorbell = iface->doorbell.fd;
    address->doorbell_inode = shm_inode(iface->doorbell.fd);
    address->connect_doorbell = iface->connect_doorbell.fd;
    address->connect_doorbell_inode = shm_inode(iface->connect_doorbell.fd);
    address->cma = (uint8_t)iface->cma;
    address->expedited = iface->expedited;
    memcpy(address->process, iface->process, SHM_ID_SIZE);
    address->probe = (uintptr_t)address->process;
    shm_segment_address_prove(address, iface->key, address->proof);
    atomic_store(&iface->inbox->owned, SHM_OWNED_WITH_ADDRESS);
}

/* Creates the table of endpoints by rank (iface->ranks), of which only used
 * pages take memory. Returns NULL if no memory is left. */
static shm_ep_t **shm_ranks_create(void)
{
    void *ranks = mmap(NULL, SHM_RANKS_SIZE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return ranks == MAP_FAILED ? NULL : ranks;
}

/* Takes the inbox of our rank, which no process has taken before. */
static bool shm_inbox_own(shm_iface_t *iface)
{
    shm_inbox_t *inbox = shm_node_inbox(iface, iface->rank);
    uint32_t nobody = SHM_OWNED_BY_NOBODY;

    if (!atomic_compare_exchange_strong(&inbox->owned, &nobody, SHM_OWNED))
        return false;
    iface->inbox = inbox;
    return true;
}

psc_status_t shm_inbox_create(shm_iface_t *iface)
{
    iface->connect_doorbell.ready = shm_connect_doorbell_ready;
    iface->connect_doorbell.fd = shm_pipe_open();
    iface->ranks = shm_ranks_create();
    if (iface->connect_doorbell.fd < 0 || iface->ranks == NULL ||
        !shm_node_open(iface) || !shm_inbox_own(iface))
        return PSC_ERR_NO_MEMORY;
    shm_inbox_write_address(iface);
    return shm_source_watch(iface->peers.fd, &iface->connect_doorbell);
}

void shm_inbox_close(shm_iface_t *iface)
{
    shm_source_close(&iface->connect_doorbell);
    shm_node_close(iface);
    if (iface->ranks != NULL)
        munmap(iface->ranks, SHM_RANKS_SIZE);
    iface->inbox = NULL;
    iface->ranks = NULL;
}

/* ---- the inboxes of others ---- */

/* Another rank's inbox, while this process calls that rank. */
typedef struct shm_there {
    shm_inbox_t *inbox;
    /* copy of inbox->address, the data by which others reach the rank */
    shm_segment_address_t address;
} shm_there_t;

/* Opens a pipe of the rank's process for reading and writing: without a reader,
 * a write to it would raise SIGPIPE. `number` and `inode` are those of the pipe
 * in that process. `process` is a pidfd of the process, or -1. A descriptor is
 * duplicated by the pidfd if possible, which costs a fraction of opening it in
 * /proc, but needs the same permission as cross-memory attach. Returns -1 with
 * errno, which is ESRCH if something else was found there, because the process
 * has ended and its id now belongs to another process. */
static int shm_there_pipe(const shm_there_t *there, int process, int number,
                          uint64_t inode)
{
    char name[SHM_FD_PATH_SIZE];
    struct stat status;
    int fd =
        process < 0
            ? -1
            : (int)PSC_RESTART(syscall(SYS_pidfd_getfd, process, number, 0));

    if (fd < 0) {
        snprintf(name, sizeof name, SHM_FD_PATH, there->address.pid, number);
        fd =
            PSC_RESTART(open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    }
    if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode) ||
                    status.st_ino != inode)) {
        close(fd);
        errno = ESRCH;
        fd = -1;
    }
    return fd;
}

/* Finds the rank's inbox. Returns false if the rank has none. */
static bool shm_there_find(const shm_iface_t *iface, int rank,
                           shm_there_t *there)
{
    there->inbox = shm_node_inbox(iface, rank);
    if (atomic_load(&there->inbox->owned) != SHM_OWNED_WITH_ADDRESS)
        return false;
    memcpy(&there->address, &there->inbox->address, sizeof there->address);
    return true;
}

/* Checks the segment address (struct shm_segment_address) of the rank's inbox.
 * Returns NULL, or the reason why the rank cannot be connected. */
static const char *shm_segment_address_check(const shm_iface_t *iface, int rank,
                                             const shm_there_t *there)
{
    const shm_segment_address_t *address = &there->address;
    uint8_t proof[PSC_SIPHASH_SIZE];

    shm_segment_address_prove(address, iface->key, proof);
    if (address->magic != SHM_SEGMENT_ADDRESS_MAGIC || address->rank != rank)
        return "another version of pscompy, or another rank";
    if (!psc_siphash_equal(proof, address->proof))
        return "the rank does not hold the key of the job";
    return NULL;
}

/* Sets our bit on the bitmap of the rank's inbox, and wakes the thread of the
 * rank that looks at the bitmap, unless another rank has woken this thread
 * since it last looked. `process`: see shm_there_pipe(). */
static void shm_there_ring(const shm_iface_t *iface, const shm_there_t *there,
                           int process)
{
    int connect_doorbell;

    shm_bitmap_set(&there->inbox->bitmap, (uint32_t)iface->rank);
    if (atomic_exchange(&there->inbox->rung, 1) != 0)
        return;
    connect_doorbell =
        shm_there_pipe(there, process, there->address.connect_doorbell,
                       there->address.connect_doorbell_inode);
    if (connect_doorbell < 0) {
        atomic_store(&there->inbox->rung, 0);
        return;
    }
    shm_doorbell_ring(connect_doorbell);
    close(connect_doorbell);
}

/* ---- calls ---- */

void shm_call_check(shm_ep_t *ep)
{
    uint32_t was;

    if (ep->state != SHM_EP_CONNECTING)
        return;
    if (shm_call_step(&ep->rx.ring, SHM_CALL_TAKEN, &was))
        shm_trial_finish(ep->sock, (was & SHM_CALL_CMA) != 0);
    else if (shm_call_state(&ep->tx.ring) == SHM_CALL_REFUSED ||
             shm_call_state(&ep->rx.ring) >= SHM_CALL_REFUSED)
        shm_ep_fail(ep, PSC_ERR_CONNECT, "shm: rank %d refuses this connection",
                    ep->rank);
}

/* Refuses the call of a rank for which this process has no endpoint: sets our
 * bit on the bitmap of the rank's inbox, and wakes the rank. Does nothing if no
 * such rank exists, because any bit of our own bitmap may be set. */
static void shm_call_refuse(shm_iface_t *iface, int rank)
{
    shm_ring_t tx, rx;
    shm_there_t there;
    uint32_t was;

    if (rank == iface->rank || !shm_there_find(iface, rank, &there) ||
        !shm_node_rings(iface, rank, &tx, &rx) ||
        !shm_call_step(&rx, SHM_CALL_REFUSED, &was))
        return;
    if (shm_segment_address_check(iface, rank, &there) == NULL)
        shm_there_ring(iface, &there, -1);
}

/* ---- calling ---- */

/* Watches the process of the rank that `ep` calls, and then opens that
 * process's doorbell (the pipe that wakes it). No other process has this
 * doorbell, so if it can be opened, no other process had the id when the watch
 * began. Returns NULL, or the reason of a failure. */
static const char *shm_call_watch(shm_ep_t *ep, const shm_there_t *there)
{
    const shm_segment_address_t *address = &there->address;

    ep->sock->pid = ep->pid = address->pid;
    shm_socket_guard(ep->sock);
    ep->doorbell = shm_there_pipe(there, ep->sock->process.fd,
                                  address->doorbell, address->doorbell_inode);
    if (ep->doorbell < 0)
        return errno == ESRCH || errno == ENOENT ? "the rank has ended"
                                                 : shm_socket_why(errno);
    return ep->sock->process.fd < 0
               ? "the process of the rank cannot be watched"
               : NULL;
}

/* Prepares the endpoint for the rank that it calls: watches the rank's process,
 * opens the doorbell (the pipe that wakes the rank), and tries cross-memory
 * attach. Returns NULL, or the reason of a failure. */
static const char *shm_call_prepare(shm_ep_t *ep, const shm_there_t *there)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    const shm_segment_address_t *address = &there->address;
    const char *why = shm_segment_address_check(iface, ep->rank, there);

    if (why != NULL)
        return why;
    ep->sock = shm_socket_create(iface, -1);
    if (ep->sock == NULL)
        return "no memory is left";
    ep->sock->ep = ep;
    why = shm_call_watch(ep, there);
    if (why != NULL)
        return why;
    ep->sock->guarded = true;
    ep->sock->forced = address->cma == SHM_CMA_FORCE;
    ep->fenced = !(iface->expedited && address->expedited);
    ep->peer_bitmap = &there->inbox->bitmap;
    ep->peer_bit = (uint32_t)iface->rank;
    memcpy(ep->peer.process, address->process, SHM_ID_SIZE);
    ep->sock->verdict =
        shm_cma_reads(ep, address->cma, address->probe, address->process);
    return NULL;
}

/* Calls the rank. If the rank has made a call before, the
 * next pass of progress takes that call; else the rank is woken, to take
 * ours. */
static void shm_call_make(shm_ep_t *ep, const shm_there_t *there)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    uint32_t call = SHM_CALL_MADE, none = SHM_CALL_NONE;

    if (ep->sock->verdict)
        call |= SHM_CALL_CMA;
    atomic_store(&ep->rx.ring.control->sleeping,
                 SHM_WAKE_BITMAP | SHM_WAKE_DOORBELL);
    if (!atomic_compare_exchange_strong(&ep->tx.ring.control->call, &none,
                                        call)) {
        shm_ep_fail(ep, PSC_ERR_CONNECT,
                    "shm: rank %d was connected before and needs a socket",
                    ep->rank);
    } else if (shm_call_state(&ep->rx.ring) == SHM_CALL_NONE) {
        shm_there_ring(iface, there, ep->sock->process.fd);
    } else {
        shm_ep_signal(ep);
        shm_bitmap_set(&iface->inbox->bitmap, (uint32_t)ep->rank);
        /* so that the next pass of progress reads the bitmap of our inbox */
        iface->idle_polls = UINT32_MAX - 1;
    }
}

psc_status_t shm_ep_call(psc_ep_t *super, int rank)
{
    shm_ep_t *ep = shm_ep(super);
    shm_iface_t *iface = shm_ep_iface(ep);
    shm_there_t there;
    const char *why;

    if (ep->state != SHM_EP_NEW || iface->inbox == NULL || rank < 0 ||
        rank >= (int)SHM_INBOX_RANKS || rank == iface->rank ||
        iface->ranks[rank] != NULL)
        return PSC_ERR_INVALID;
    if (!shm_there_find(iface, rank, &there))
        return PSC_ERR_CONNECT;
    if (!shm_node_rings(iface, rank, &ep->tx.ring, &ep->rx.ring))
        return PSC_ERR_NO_MEMORY;
    ep->rank = rank;
    ep->role = iface->rank < rank ? PSC_ROLE_CONNECTOR : PSC_ROLE_ACCEPTOR;
    ep->bit = (uint32_t)rank;
    iface->ranks[rank] = ep;
    shm_ep_enter(ep, SHM_EP_CONNECTING);
    why = shm_call_prepare(ep, &there);
    if (why != NULL) {
        shm_ep_fail(ep, PSC_ERR_CONNECT, "shm: rank %d: %s", rank, why);
    } else {
        shm_socket_enter(ep->sock, SHM_SOCKET_VERDICT);
        shm_call_make(ep, &there);
    }
    return PSC_INPROGRESS;
}

/* ---- bits of the bitmap ---- */

static void shm_inbox_take(shm_iface_t *iface, uint32_t rank)
{
    shm_ep_t *ep = iface->ranks[rank];

    if (ep == NULL) {
        if ((int)rank == iface->rank ||
            iface->super.up->rank_calls(&iface->super, (int)rank) != PSC_OK)
            shm_call_refuse(iface, (int)rank);
    } else if (ep->state == SHM_EP_CONNECTING) {
        shm_call_check(ep);
    } else {
        shm_active_notice(ep);
    }
}

void shm_inbox_collect(shm_iface_t *iface)
{
    if (iface->inbox != NULL)
        shm_active_take(iface, &iface->inbox->bitmap, shm_inbox_take);
}
