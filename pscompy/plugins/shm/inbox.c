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

static void shm_card_prove(const shm_card_t *card, const uint8_t *key,
                           uint8_t *proof)
{
    psc_siphash(key, card, offsetof(shm_card_t, proof), proof);
}

/* ---- our own inbox ---- */

/* A rank has written to the pipe `knock`, to ask for a connection; the same
 * pass of progress handles the rank's bit. */
static void shm_knock_ready(shm_source_t *self, uint32_t events)
{
    shm_iface_t *iface = psc_container_of(self, shm_iface_t, knock);

    (void)events;
    shm_source_drain(self);
    shm_inbox_listen(iface);
}

static uint64_t shm_inode(int fd)
{
    struct stat status;

    return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

static void shm_inbox_write_card(shm_iface_t *iface)
{
    shm_card_t *card = &iface->inbox->card;

    card->magic = SHM_CARD_MAGIC;
    card->rank = iface->rank;
    card->pid = getpid();
    card->bell = iface->bell.fd;
    card->bell_inode = shm_inode(iface->bell.fd);
    card->knock = iface->knock.fd;
    card->knock_inode = shm_inode(iface->knock.fd);
    card->cma = (uint8_t)iface->cma;
    card->expedited = iface->expedited;
    memcpy(card->process, iface->process, SHM_ID_SIZE);
    card->probe = (uintptr_t)card->process;
    shm_card_prove(card, iface->key, card->proof);
    atomic_store(&iface->inbox->owned, SHM_OWNED_WITH_CARD);
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
    iface->knock.ready = shm_knock_ready;
    iface->knock.fd = shm_pipe_open();
    iface->ranks = shm_ranks_create();
    if (iface->knock.fd < 0 || iface->ranks == NULL || !shm_node_open(iface) ||
        !shm_inbox_own(iface))
        return PSC_ERR_NO_MEMORY;
    shm_inbox_write_card(iface);
    return shm_source_watch(iface->peers.fd, &iface->knock);
}

void shm_inbox_close(shm_iface_t *iface)
{
    shm_source_close(&iface->knock);
    shm_node_close(iface);
    if (iface->ranks != NULL)
        munmap(iface->ranks, SHM_RANKS_SIZE);
    iface->inbox = NULL;
    iface->ranks = NULL;
}

/* ---- the inboxes of others ---- */

/* Another rank's inbox, while this process offers that rank a connection. */
typedef struct shm_there {
    shm_inbox_t *inbox;
    /* copy of inbox->card, the data by which others reach the rank */
    shm_card_t card;
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
    char name[SHM_PLACE_SIZE];
    struct stat status;
    int fd =
        process < 0
            ? -1
            : (int)PSC_RESTART(syscall(SYS_pidfd_getfd, process, number, 0));

    if (fd < 0) {
        snprintf(name, sizeof name, SHM_PLACE, there->card.pid, number);
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
    if (atomic_load(&there->inbox->owned) != SHM_OWNED_WITH_CARD)
        return false;
    memcpy(&there->card, &there->inbox->card, sizeof there->card);
    return true;
}

/* Checks the card (struct shm_card) of the rank's inbox. Returns NULL, or the
 * reason why the rank cannot be connected. */
static const char *shm_card_check(const shm_iface_t *iface, int rank,
                                  const shm_there_t *there)
{
    const shm_card_t *card = &there->card;
    uint8_t proof[PSC_SIPHASH_SIZE];

    shm_card_prove(card, iface->key, proof);
    if (card->magic != SHM_CARD_MAGIC || card->rank != rank)
        return "another version of pscompy, or another rank";
    if (!psc_siphash_equal(proof, card->proof))
        return "the rank does not hold the key of the job";
    return NULL;
}

/* Sets our bit on the board of the rank's inbox, and wakes the thread of the
 * rank that looks at the board, unless another rank has woken this thread since
 * it last looked. `process`: see shm_there_pipe(). */
static void shm_there_knock(const shm_iface_t *iface, const shm_there_t *there,
                            int process)
{
    int knock;

    shm_board_set(&there->inbox->board, (uint32_t)iface->rank);
    if (atomic_exchange(&there->inbox->knocked, 1) != 0)
        return;
    knock = shm_there_pipe(there, process, there->card.knock,
                           there->card.knock_inode);
    if (knock < 0) {
        atomic_store(&there->inbox->knocked, 0);
        return;
    }
    shm_bell_ring(knock);
    close(knock);
}

/* ---- offers ---- */

void shm_call_check(shm_ep_t *ep)
{
    uint32_t was;

    if (ep->state != SHM_EP_CONNECTING)
        return;
    if (shm_offer_step(&ep->rx.ring, SHM_CALL_TAKEN, &was))
        shm_trial_finish(ep->link, (was & SHM_CALL_CMA) != 0);
    else if (shm_offer_state(&ep->tx.ring) == SHM_CALL_REFUSED ||
             shm_offer_state(&ep->rx.ring) >= SHM_CALL_REFUSED)
        shm_ep_fail(ep, PSC_ERR_CONNECT, "shm: rank %d refuses this connection",
                    ep->rank);
}

/* Refuses the offer of a rank for which this process has no endpoint: sets our
 * bit on the board of the rank's inbox, and wakes the rank. Does nothing if no
 * such rank exists, because any bit of our own board may be set. */
static void shm_call_refuse(shm_iface_t *iface, int rank)
{
    shm_ring_t tx, rx;
    shm_there_t there;
    uint32_t was;

    if (rank == iface->rank || !shm_there_find(iface, rank, &there) ||
        !shm_node_rings(iface, rank, &tx, &rx) ||
        !shm_offer_step(&rx, SHM_CALL_REFUSED, &was))
        return;
    if (shm_card_check(iface, rank, &there) == NULL)
        shm_there_knock(iface, &there, -1);
}

/* ---- calling ---- */

/* Watches the process of the rank that `ep` calls, and then opens that
 * process's bell (the pipe that wakes it). No other process has this bell, so
 * if it can be opened, no other process had the id when the watch began.
 * Returns NULL, or the reason of a failure. */
static const char *shm_call_watch(shm_ep_t *ep, const shm_there_t *there)
{
    const shm_card_t *card = &there->card;

    ep->link->pid = ep->pid = card->pid;
    shm_link_guard(ep->link);
    ep->bell = shm_there_pipe(there, ep->link->process.fd, card->bell,
                              card->bell_inode);
    if (ep->bell < 0)
        return errno == ESRCH || errno == ENOENT ? "the rank has ended"
                                                 : shm_link_why(errno);
    return ep->link->process.fd < 0
               ? "the process of the rank cannot be watched"
               : NULL;
}

/* Prepares the endpoint for the rank that it calls: watches the rank's process,
 * opens the bell (the pipe that wakes the rank), and tries cross-memory attach.
 * Returns NULL, or the reason of a failure. */
static const char *shm_call_prepare(shm_ep_t *ep, const shm_there_t *there)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    const shm_card_t *card = &there->card;
    const char *why = shm_card_check(iface, ep->rank, there);

    if (why != NULL)
        return why;
    ep->link = shm_link_create(iface, -1);
    if (ep->link == NULL)
        return "no memory is left";
    ep->link->ep = ep;
    why = shm_call_watch(ep, there);
    if (why != NULL)
        return why;
    ep->link->guarded = true;
    ep->link->forced = card->cma == SHM_CMA_FORCE;
    ep->fenced = !(iface->expedited && card->expedited);
    ep->peer_board = &there->inbox->board;
    ep->peer_bit = (uint32_t)iface->rank;
    memcpy(ep->peer.process, card->process, SHM_ID_SIZE);
    ep->link->verdict =
        shm_cma_reads(ep, card->cma, card->probe, card->process);
    return NULL;
}

/* Offers the connection to the rank. If the rank has made an offer before, the
 * next pass of progress takes that offer; else the rank is woken, to take
 * ours. */
static void shm_call_offer(shm_ep_t *ep, const shm_there_t *there)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    uint32_t offer = SHM_CALL_OFFERED, none = SHM_CALL_NONE;

    if (ep->link->verdict)
        offer |= SHM_CALL_CMA;
    atomic_store(&ep->rx.ring.control->sleeping,
                 SHM_WAKE_BOARD | SHM_WAKE_BELL);
    if (!atomic_compare_exchange_strong(&ep->tx.ring.control->offer, &none,
                                        offer)) {
        shm_ep_fail(ep, PSC_ERR_CONNECT,
                    "shm: rank %d was connected before and needs a link",
                    ep->rank);
    } else if (shm_offer_state(&ep->rx.ring) == SHM_CALL_NONE) {
        shm_there_knock(iface, there, ep->link->process.fd);
    } else {
        shm_ep_tell(ep);
        shm_board_set(&iface->inbox->board, (uint32_t)ep->rank);
        /* so that the next pass of progress reads the board of our inbox */
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
        shm_link_enter(ep->link, SHM_STAGE_VERDICT);
        shm_call_offer(ep, &there);
    }
    return PSC_INPROGRESS;
}

/* ---- bits of the board ---- */

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
        shm_active_take(iface, &iface->inbox->board, shm_inbox_take);
}
