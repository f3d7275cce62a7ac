/* Copies that two processes make together: of a message into a receive that its
 * sender has taken (adverts.c), and of a large get (memory.c).
 *
 * The kernel copies on the core of the process that calls it, while the other
 * process only waits for the result. Therefore the bytes are copied in pieces,
 * by whichever side calls progress. A cursor in shared memory holds how many
 * pages each side has taken, that is, copies or has copied. The side whose
 * buffer is filled takes pieces from the front and reads them from the other
 * process; the side that has the bytes takes pieces from the end and writes
 * them. So if the same buffers are used again, each core has its part of them
 * in its cache. A side advances the cursor before it copies a piece, and counts
 * the bytes in `copied` of the cursor when it has copied them. If one side is
 * computing and makes no progress, the other side copies all pieces.
 *
 * Either side stops the copy by a bit of the cursor. The side whose buffer is
 * filled has its memory back only when all pieces that were taken have been
 * counted, or when the other side's socket has ended, so a process that was
 * stopped just before it writes does not write to memory that has another use
 * by then. A sender that stops may reuse its buffer at once: the other side
 * checks the bit, or the seal of the memory, after it has read a piece.
 *
 * The owner of the memory that a get reads only helps: it needs no result, and
 * ends when no piece is left.
 *
 * Memory orders: `copied` is released after the copy and acquired by the other
 * side, and shm_ep_wake executes the fence that the flag `sleeping` needs. */
#include "memory.h"

/* A piece is half of the bytes that are left, within these bounds and in whole
 * pages, so that both sides finish at about the same time. A copy that is
 * shorter than two of the shortest pieces is halved, too. */
#define SHM_PIECE_MIN (32u << 10)
#define SHM_PIECE_MAX SHM_PUT_MAX
/* From its high bits on, `taken` of a cursor has the turn (the number of the
 * copy) and the number of pages that each side has taken. */
#define SHM_PAGES_MASK ((1ull << SHM_PAGES_BITS) - 1)
#define SHM_TURN_SHIFT (2 * SHM_PAGES_BITS)
/* bit of `taken`, below the turn: a side has stopped the copy */
#define SHM_STOP (1ull << SHM_TURN_SHIFT)
#define SHM_TURN_MASK (UINT64_MAX >> (SHM_TURN_SHIFT + 1))
/* value that is stored instead of a number of copied bytes if a side cannot
 * copy */
#define SHM_COPY_FAILED UINT64_MAX

_Static_assert(SHM_GET_MAX <= SHM_COPY_MAX, "pages can be counted");

/* ---- the cursor ---- */

uint64_t shm_cursor_turn(uint64_t number)
{
    return (number & SHM_TURN_MASK) << 1;
}

static uint64_t shm_pages(uint64_t len)
{
    return (len + SHM_COPY_PAGE - 1) / SHM_COPY_PAGE;
}

void shm_cursor_begin(shm_cursor_t *cursor, uint64_t turn, uint64_t own)
{
    atomic_store_explicit(&cursor->copied[SHM_FRONT], own,
                          memory_order_relaxed);
    atomic_store_explicit(&cursor->copied[SHM_BACK], 0, memory_order_relaxed);
    atomic_store_explicit(&cursor->taken,
                          turn << SHM_TURN_SHIFT | shm_pages(own),
                          memory_order_relaxed);
}

/* These functions return the number of pages that were taken from the front and
 * from the end. */
static uint64_t shm_cursor_fronts(uint64_t taken)
{
    return taken & SHM_PAGES_MASK;
}

static uint64_t shm_cursor_backs(uint64_t taken)
{
    return taken >> SHM_PAGES_BITS & SHM_PAGES_MASK;
}

/* Returns the offset below which the bytes were taken from the front. */
static uint64_t shm_cursor_front(uint64_t taken)
{
    return shm_cursor_fronts(taken) * SHM_COPY_PAGE;
}

/* Returns the offset from which on the bytes were taken from the end. */
static uint64_t shm_cursor_back(uint64_t taken, uint64_t len)
{
    uint64_t backs = shm_cursor_backs(taken);
    uint64_t pages = shm_pages(len);

    if (backs == 0)
        return len;
    return backs < pages ? (pages - backs) * SHM_COPY_PAGE : 0;
}

/* Returns how many of the `len` bytes neither side has taken. */
static uint64_t shm_cursor_left(uint64_t taken, uint64_t len)
{
    uint64_t front = shm_cursor_front(taken);
    uint64_t back = shm_cursor_back(taken, len);

    return front < back ? back - front : 0;
}

/* Returns true if all pages that the two sides have taken are copied. front,
 * back: the number of bytes that each side has copied. */
static bool shm_cursor_copied(uint64_t taken, uint64_t front, uint64_t back)
{
    return shm_pages(front) + shm_pages(back) >=
           shm_cursor_fronts(taken) + shm_cursor_backs(taken);
}

static uint64_t shm_piece(uint64_t left, uint64_t len)
{
    uint64_t least = len / 2 < SHM_PIECE_MIN ? len / 2 : SHM_PIECE_MIN;
    uint64_t piece = left / 2 < least ? least : left / 2;

    piece = shm_pages(piece) * SHM_COPY_PAGE;
    if (piece > SHM_PIECE_MAX)
        piece = SHM_PIECE_MAX;
    return piece < left ? piece : left;
}

/* Takes the next piece, and returns its length; 0 if none is left, if a side
 * has stopped the copy, or if the cursor belongs to another copy. */
static uint64_t shm_cursor_take(shm_copy_t *copy, uint64_t *at_p)
{
    _Atomic uint64_t *taken = &copy->cursor->taken;
    bool front = copy->side == SHM_FRONT;
    uint64_t now = atomic_load_explicit(taken, memory_order_acquire);
    uint64_t left, piece, end;

    do {
        left = shm_cursor_left(now, copy->len);
        if (now >> SHM_TURN_SHIFT != copy->turn || left == 0)
            return 0;
        piece = shm_piece(left, copy->len);
        end = shm_cursor_back(now, copy->len);
        *at_p = front ? shm_cursor_front(now)
                      : (end - piece) / SHM_COPY_PAGE * SHM_COPY_PAGE;
        if (!front)
            piece = end - *at_p;
    } while (!atomic_compare_exchange_weak(
        taken, &now, now + (shm_pages(piece) << (front ? 0 : SHM_PAGES_BITS))));
    return piece;
}

/* ---- one side of a copy ---- */

static uint64_t shm_copy_taken(const shm_copy_t *copy)
{
    return atomic_load_explicit(&copy->cursor->taken, memory_order_acquire);
}

/* Returns how many bytes the other side has copied. */
static uint64_t shm_copy_others(const shm_copy_t *copy)
{
    shm_side_t other = copy->side == SHM_FRONT ? SHM_BACK : SHM_FRONT;

    return atomic_load_explicit(&copy->cursor->copied[other],
                                memory_order_acquire);
}

void shm_copy_begin(shm_ep_t *ep, shm_copy_t *copy)
{
    psc_list_push(&ep->copies, &copy->listed);
    shm_ep_iface(ep)->n_copies++;
    shm_active_add(ep);
}

/* Takes no more pieces. A side that only helps leaves the rest to the other
 * side; otherwise neither side takes a piece from now on. While the side whose
 * buffer is filled waits for the other, progress checks with every tick of the
 * timer whether the copy has ended, because a closed endpoint is not woken. */
static void shm_copy_stop(shm_ep_t *ep, shm_copy_t *copy)
{
    if (copy->stopped)
        return;
    copy->stopped = true;
    if (copy->comp != NULL)
        atomic_fetch_or(&copy->cursor->taken, SHM_STOP);
    if (copy->side == SHM_FRONT)
        shm_timer_run(shm_ep_iface(ep), +1);
}

void shm_copy_leave(shm_ep_t *ep, shm_copy_t *copy, psc_status_t status)
{
    if (copy->side == SHM_FRONT && copy->stopped)
        shm_timer_run(shm_ep_iface(ep), -1);
    psc_list_remove(&copy->listed);
    shm_ep_iface(ep)->n_copies--;
    if (copy->release != NULL)
        copy->release(ep, copy, status);
}

/* Returns false if this side must take no more pieces. */
static bool shm_copy_may(const shm_ep_t *ep, const shm_copy_t *copy)
{
    const _Atomic uint64_t *seal =
        (const _Atomic uint64_t *)(uintptr_t)copy->seal_address;

    return ep->state == SHM_EP_UP &&
           (copy->comp != NULL || atomic_load(seal) == copy->seal);
}

static psc_status_t shm_copy_read(shm_ep_t *ep, const shm_copy_t *copy,
                                  uint64_t at, uint64_t piece)
{
    const psc_rkey_t key = {.address = copy->there,
                            .len = copy->len,
                            .seal = copy->seal,
                            .seal_address = copy->seal_address};
    psc_status_t status;

    if (copy->seal_address != 0)
        return shm_cma_read(ep, copy->here + at, piece, &key, at);
    status = shm_cma_fetch(ep, copy->here + at, piece, copy->there + at);
    atomic_thread_fence(memory_order_seq_cst);
    if (status == PSC_OK && (atomic_load(&copy->cursor->taken) & SHM_STOP) != 0)
        status = PSC_ERR_PEER_LOST; /* the sender may have reused its buffer */
    return status;
}

/* Reports to the other side how many bytes this side has copied. */
static void shm_copy_report(shm_ep_t *ep, shm_copy_t *copy, psc_status_t status)
{
    atomic_store_explicit(&copy->cursor->copied[copy->side],
                          status == PSC_OK ? copy->own : SHM_COPY_FAILED,
                          memory_order_release);
    copy->status = status;
    if (status != PSC_OK)
        shm_copy_stop(ep, copy);
    shm_ep_wake(ep);
}

/* Copies the next piece, if there is one. Returns its length. */
static uint64_t shm_copy_piece(shm_ep_t *ep, shm_copy_t *copy)
{
    uint64_t at, piece = copy->stopped ? 0 : shm_cursor_take(copy, &at);

    copy->own += piece;
    if (piece > 0)
        shm_copy_report(
            ep, copy,
            copy->side == SHM_FRONT
                ? shm_copy_read(ep, copy, at, piece)
                : shm_cma_write(ep, copy->here + at, piece, copy->there + at));
    return piece;
}

/* Returns true if a piece is left that this side could copy. */
static bool shm_copy_has(const shm_copy_t *copy)
{
    uint64_t now = shm_copy_taken(copy);

    return !copy->stopped && now >> SHM_TURN_SHIFT == copy->turn &&
           shm_cursor_left(now, copy->len) > 0;
}

/* ---- the end of a copy ---- */

/* Returns true if all bytes have been copied, even if a side has set the bit
 * SHM_STOP. Sets *status_p to an error if some bytes will never be copied.
 * `others` is the number of bytes that the other side has copied. */
static bool shm_copy_whole(const shm_copy_t *copy, uint64_t others,
                           psc_status_t *status_p)
{
    *status_p = copy->status;
    if (others == SHM_COPY_FAILED && copy->status == PSC_OK)
        *status_p = PSC_ERR_TRANSPORT;
    else if (others != SHM_COPY_FAILED &&
             (others > copy->len || copy->own > copy->len - others))
        *status_p = PSC_ERR_PROTOCOL;
    return copy->own + others == copy->len;
}

/* Returns true if nobody accesses the buffer that is filled any more. */
static bool shm_copy_filled(const shm_ep_t *ep, const shm_copy_t *copy,
                            psc_status_t *status_p)
{
    uint64_t now = shm_copy_taken(copy), others = shm_copy_others(copy);

    if (shm_copy_whole(copy, others, status_p) ||
        *status_p == PSC_ERR_PROTOCOL || others == SHM_COPY_FAILED)
        return true;
    if (*status_p == PSC_OK)
        *status_p = ep->status < 0 ? ep->status : PSC_ERR_PEER_LOST;
    return ep->sock == NULL ||
           ((now & SHM_STOP) != 0 && shm_cursor_copied(now, copy->own, others));
}

/* Returns true if the sender needs neither the cursor nor the buffer of its
 * message any more. */
static bool shm_copy_sent(const shm_ep_t *ep, const shm_copy_t *copy,
                          psc_status_t *status_p)
{
    uint64_t now = shm_copy_taken(copy), others = shm_copy_others(copy);

    if (shm_copy_whole(copy, others, status_p) || *status_p != PSC_OK)
        return true;
    if ((now & ~SHM_STOP) >> SHM_TURN_SHIFT != copy->turn)
        *status_p = PSC_ERR_PROTOCOL;
    else if ((now & SHM_STOP) != 0)
        *status_p = ep->status < 0 ? ep->status : PSC_ERR_PEER_LOST;
    return *status_p != PSC_OK;
}

static bool shm_copy_over(const shm_ep_t *ep, const shm_copy_t *copy,
                          psc_status_t *status_p)
{
    if (copy->comp == NULL)
        return !shm_copy_has(copy);
    return copy->side == SHM_FRONT ? shm_copy_filled(ep, copy, status_p)
                                   : shm_copy_sent(ep, copy, status_p);
}

/* The other side must not touch this side's buffer after the upcall. */
static void shm_copy_end(shm_ep_t *ep, shm_copy_t *copy, psc_status_t status)
{
    psc_comp_t *comp = copy->comp;

    if (status != PSC_OK || copy->side == SHM_BACK)
        shm_copy_stop(ep, copy);
    shm_copy_leave(ep, copy, status);
    if (comp != NULL)
        comp->func(comp, status);
}

/* ---- all copies of an endpoint ---- */

/* Copies one piece, or completes a copy. Returns 0 if there was nothing to
 * do. */
static unsigned shm_copy_move(shm_ep_t *ep, shm_copy_t *copy)
{
    psc_status_t status = PSC_OK;
    uint64_t piece;

    if (!shm_copy_may(ep, copy))
        shm_copy_stop(ep, copy);
    piece = shm_copy_piece(ep, copy);
    if (!shm_copy_over(ep, copy, &status))
        return piece > 0;
    shm_copy_end(ep, copy, status);
    return 1;
}

/* An upcall may finalise the endpoint, so at most one upcall is made. */
unsigned shm_copies_poll(shm_ep_t *ep)
{
    psc_list_for_each(copy, &ep->copies, shm_copy_t, listed)
        if (shm_copy_move(ep, copy) > 0)
            return 1;
    return 0;
}

/* Called before this process sleeps, when its flags `sleeping` are set: a side
 * that copies the last piece after this check wakes the other side. */
bool shm_copies_pending(const shm_ep_t *ep)
{
    psc_status_t ignored;

    psc_list_for_each(copy, &ep->copies, shm_copy_t, listed)
        if ((ep->state != SHM_EP_UP && !copy->stopped) || shm_copy_has(copy) ||
            shm_copy_over(ep, copy, &ignored))
            return true;
    return false;
}

void shm_copies_drop(shm_ep_t *ep)
{
    psc_list_for_each(copy, &ep->copies, shm_copy_t, listed)
        shm_copy_leave(ep, copy, PSC_OK);
}
