/* Calls between the ranks of a job: inbox.h. */
#include "inbox.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory.h"
#include "pscompy/transport/kit/page.h"

static size_t shm_inbox_at(const shm_geometry_t *geometry, int rank)
{
    return psc_page_size() + (size_t)rank * shm_ring_file_size(geometry);
}

static size_t shm_inbox_size(const shm_geometry_t *geometry)
{
    return shm_inbox_at(geometry, SHM_INBOX_RANKS);
}

static void shm_card_prove(const shm_card_t *card, const uint8_t *key,
                           uint8_t *proof)
{
    psc_siphash(key, card, offsetof(shm_card_t, proof), proof);
}

/* ---- our own inbox ---- */

static void shm_knock_ready(shm_source_t *self, uint32_t events)
{
    (void)events;
    shm_source_drain(self);
}

static void shm_inbox_write_card(shm_iface_t *iface)
{
    shm_card_t *card = &iface->inbox->card;

    card->magic = SHM_CARD_MAGIC;
    card->rank = iface->rank;
    card->pid = getpid();
    card->bell = iface->bell.fd;
    card->knock = iface->knock.fd;
    card->inbox = iface->inbox_fd;
    card->geometry = iface->geometry;
    card->cma = (uint8_t)iface->cma;
    card->expedited = iface->expedited;
    memcpy(card->process, iface->process, SHM_ID_SIZE);
    card->probe = (uintptr_t)card->process;
    shm_card_prove(card, iface->key, card->proof);
}

psc_status_t shm_inbox_create(shm_iface_t *iface)
{
    size_t size = shm_inbox_size(&iface->geometry);
    shm_board_t *board;

    iface->knock.ready = shm_knock_ready;
    iface->knock.fd = shm_pipe_open();
    iface->ranks = calloc(SHM_INBOX_RANKS, sizeof(shm_ep_t *));
    if (iface->rank >= (int)SHM_INBOX_RANKS || iface->knock.fd < 0 ||
        iface->ranks == NULL ||
        shm_file_create("pscompy-inbox", size, &iface->inbox_fd) != PSC_OK ||
        shm_board_map(&board, iface->inbox_fd, size) != PSC_OK)
        return PSC_ERR_NO_MEMORY;
    iface->inbox = (shm_inbox_t *)(void *)board;
    shm_inbox_write_card(iface);
    return shm_source_watch(iface->peers.fd, &iface->knock);
}

void shm_inbox_close(shm_iface_t *iface)
{
    shm_source_close(&iface->knock);
    if (iface->inbox != NULL)
        shm_board_unmap(&iface->inbox->board);
    if (iface->inbox_fd >= 0)
        close(iface->inbox_fd);
    free(iface->ranks);
    iface->inbox = NULL;
    iface->inbox_fd = -1;
    iface->ranks = NULL;
}

/* ---- the inboxes of others ---- */

bool shm_inbox_name(const shm_iface_t *iface, int rank, char *name)
{
    return (size_t)snprintf(name, SHM_PATH_MAX, "%s/" SHM_INBOX "%d",
                            iface->listener.job, rank) < SHM_PATH_MAX;
}

/* True if this descriptor of the process is the inbox. */
static bool shm_process_holds(int process, int number, int inbox_fd)
{
    struct stat here, there;
    char name[24];

    snprintf(name, sizeof name, "fd/%d", number);
    return fstat(inbox_fd, &here) == 0 &&
           fstatat(process, name, &there, 0) == 0 &&
           here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/* Opens the folder in /proc of the process that has the inbox. Once it has
 * ended, its id may be another process's, but not this folder: nothing can be
 * opened there any more. Returns -1 with errno if no such process is there. */
static int shm_card_open_process(const shm_card_t *card, int inbox_fd)
{
    char path[24];
    int process;

    snprintf(path, sizeof path, "/proc/%d", (int)card->pid);
    process = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (process >= 0 && !shm_process_holds(process, card->inbox, inbox_fd)) {
        close(process);
        errno = ESRCH;
        return -1;
    }
    return process;
}

/* Opens a pipe of the process for reading and writing: without a reader, a
 * write to it would raise SIGPIPE. */
static int shm_process_open_pipe(int process, int number)
{
    struct stat status;
    char name[24];
    int fd;

    snprintf(name, sizeof name, "fd/%d", number);
    fd = openat(process, name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd >= 0 && (fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode))) {
        close(fd);
        errno = EPROTO;
        fd = -1;
    }
    return fd;
}

/* Opens the rank's inbox and maps its first page. Returns the descriptor, or -1
 * with errno. */
static int shm_inbox_open(const shm_iface_t *iface, int rank,
                          shm_inbox_t **inbox_p)
{
    char name[SHM_PATH_MAX];
    shm_board_t *board;
    int fd;

    shm_inbox_name(iface, rank, name);
    fd = open(name, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return -1;
    if (shm_board_map(&board, fd, shm_inbox_size(&iface->geometry)) == PSC_OK) {
        *inbox_p = (shm_inbox_t *)(void *)board;
        return fd;
    }
    close(fd);
    errno = EPROTO;
    return -1;
}

/* Returns NULL, or the reason why no connection by this card is possible. */
static const char *shm_card_check(const shm_iface_t *iface, int rank,
                                  const shm_card_t *card)
{
    uint8_t proof[PSC_SIPHASH_SIZE];

    shm_card_prove(card, iface->key, proof);
    if (card->magic != SHM_CARD_MAGIC || card->rank != rank)
        return "another version of pscompy, or another rank";
    if (!psc_siphash_equal(proof, card->proof))
        return "the rank does not hold the key of the job";
    if (memcmp(&card->geometry, &iface->geometry, sizeof card->geometry) != 0)
        return "the rank has rings of another size (PSP_SHM_BUFFER_SIZE, "
               "PSP_SHM_RECVQ_SIZE)";
    return NULL;
}

/* Makes the rank's control thread, or whoever polls there, look at its board.
 * `fd` is the inbox. */
static void shm_inbox_knock(const shm_iface_t *iface, shm_inbox_t *inbox,
                            int fd, const shm_card_t *card)
{
    int process = shm_card_open_process(card, fd), knock;

    shm_board_set(&inbox->board, (uint32_t)iface->rank);
    if (process < 0)
        return;
    knock = shm_process_open_pipe(process, card->knock);
    close(process);
    if (knock < 0)
        return;
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

/* Makes a rank whose call was refused look at its board. */
static void shm_call_tell(shm_iface_t *iface, int rank)
{
    shm_inbox_t *there;
    shm_card_t card;
    int fd = shm_inbox_open(iface, rank, &there);

    if (fd < 0)
        return;
    memcpy(&card, &there->card, sizeof card);
    if (shm_card_check(iface, rank, &card) == NULL)
        shm_inbox_knock(iface, there, fd, &card);
    shm_board_unmap(&there->board);
    close(fd);
}

/* Refuse the call of a rank to which no endpoint leads. */
static void shm_call_refuse(shm_iface_t *iface, int rank)
{
    shm_ring_t ring = {0};
    uint32_t was;

    if (shm_ring_map_own(&ring, &iface->geometry, iface->inbox_fd,
                         shm_inbox_at(&iface->geometry, rank)) != PSC_OK)
        return;
    if (shm_offer_step(&ring, SHM_CALL_REFUSED, &was))
        shm_call_tell(iface, rank);
    shm_ring_unmap(&ring);
}

/* ---- calling ---- */

/* Watches the rank's process and opens its bell, in this order: the bell opens
 * only if the process has not ended, so no other one can have had its id when
 * the watch began. Returns NULL, or the reason of a failure. */
static const char *shm_call_watch(shm_ep_t *ep, int fd, const shm_card_t *card)
{
    const char *why = NULL;
    int process = shm_card_open_process(card, fd);

    if (process < 0)
        return shm_link_why(errno);
    ep->link->pid = ep->pid = card->pid;
    shm_link_guard(ep->link);
    ep->bell = shm_process_open_pipe(process, card->bell);
    if (ep->bell < 0)
        why = shm_link_why(errno);
    else if (ep->link->process.fd < 0)
        why = "the process of the rank cannot be watched";
    close(process);
    return why;
}

/* Maps both rings, and everything else that the endpoint needs of the rank.
 * Takes ownership of `there`. Returns NULL, or the reason of a failure. */
static const char *shm_call_map(shm_ep_t *ep, shm_inbox_t *there, int fd,
                                const shm_card_t *card)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    const shm_geometry_t *geometry = &iface->geometry;
    const char *why = shm_card_check(iface, ep->rank, card);

    ep->peer_board = &there->board;
    if (why != NULL)
        return why;
    ep->link = shm_link_create(iface, -1);
    if (ep->link == NULL)
        return "no memory is left";
    ep->link->ep = ep;
    why = shm_call_watch(ep, fd, card);
    if (why != NULL)
        return why;
    if (shm_ring_map_own(&ep->tx.ring, geometry, fd,
                         shm_inbox_at(geometry, iface->rank)) != PSC_OK ||
        shm_ring_map_own(&ep->rx.ring, geometry, iface->inbox_fd,
                         shm_inbox_at(geometry, ep->rank)) != PSC_OK)
        return shm_link_why(errno);
    ep->link->guarded = true;
    ep->link->forced = card->cma == SHM_CMA_FORCE;
    ep->fenced = !(iface->expedited && card->expedited);
    ep->peer_bit = (uint32_t)iface->rank;
    memcpy(ep->peer.process, card->process, SHM_ID_SIZE);
    ep->link->verdict =
        shm_cma_reads(ep, card->cma, card->probe, card->process);
    return NULL;
}

/* Offers the connection. If the rank has called before, the next pass takes its
 * offer; else it is called. */
static void shm_call_offer(shm_ep_t *ep, int fd, const shm_card_t *card)
{
    shm_iface_t *iface = shm_ep_iface(ep);
    shm_inbox_t *there = (shm_inbox_t *)(void *)ep->peer_board;
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
        shm_inbox_knock(iface, there, fd, card);
    } else {
        shm_ep_tell(ep);
        shm_board_set(&iface->inbox->board, (uint32_t)ep->rank);
        iface->idle_polls = UINT32_MAX - 1; /* the next pass looks */
    }
}

psc_status_t shm_ep_call(psc_ep_t *super, int rank)
{
    shm_ep_t *ep = shm_ep(super);
    shm_iface_t *iface = shm_ep_iface(ep);
    shm_inbox_t *there;
    shm_card_t card;
    const char *why;
    int fd;

    if (ep->state != SHM_EP_NEW || iface->inbox == NULL || rank < 0 ||
        rank >= (int)SHM_INBOX_RANKS || rank == iface->rank ||
        iface->ranks[rank] != NULL)
        return PSC_ERR_INVALID;
    fd = shm_inbox_open(iface, rank, &there);
    if (fd < 0)
        return PSC_ERR_CONNECT;
    memcpy(&card, &there->card, sizeof card);
    ep->rank = rank;
    ep->role = iface->rank < rank ? PSC_ROLE_CONNECTOR : PSC_ROLE_ACCEPTOR;
    ep->bit = (uint32_t)rank;
    iface->ranks[rank] = ep;
    shm_ep_enter(ep, SHM_EP_CONNECTING);
    why = shm_call_map(ep, there, fd, &card);
    if (why != NULL) {
        shm_ep_fail(ep, PSC_ERR_CONNECT, "shm: rank %d: %s", rank, why);
    } else {
        shm_link_enter(ep->link, SHM_STAGE_VERDICT);
        shm_call_offer(ep, fd, &card);
    }
    close(fd);
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
