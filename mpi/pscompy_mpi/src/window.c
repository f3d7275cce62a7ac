/* Windows: how the ranks of a node take turns with memory that they share.
 * windows.py makes the memory, and says which part of it is whose.
 *
 * A rank locks bytes of a file that all of them have opened, one byte for each
 * rank's part of the memory. The kernel wakes the ranks that wait for a lock,
 * and releases the locks of a process that has died. */
#include "library.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* Whether this rank has locked the part of a rank, and by which call. */
typedef enum held {
    FREE,
    HELD_ALONE, /* by MPI_Win_lock */
    HELD_WITH_ALL, /* by MPI_Win_lock_all */
    BEING_RELEASED
} held_t;

static psc_mpi_table_t windows = PSC_MPI_TABLE(PSC_MPI_WIN, psc_mpi_win_t, 0);

psc_mpi_win_t *psc_mpi_win_find(MPI_Win win)
{
    return psc_mpi_running() ? psc_mpi_object_find(&windows, win) : NULL;
}

/* ---- creating and ending ---- */

MPI_Win psc_mpi_win_create(MPI_Comm comm, int size, int file)
{
    psc_mpi_comm_t *own = psc_mpi_comm_find(comm);
    psc_mpi_win_t *win = own ? psc_mpi_object_create(&windows) : NULL;

    if (!win)
        return MPI_WIN_NULL;
    win->held = calloc((size_t)size, sizeof *win->held);
    if (!win->held) {
        psc_mpi_object_free(&windows, win);
        return MPI_WIN_NULL;
    }
    win->handle = psc_mpi_object_handle(win);
    win->comm = comm;
    win->size = size;
    win->file = file;
    atomic_store(&win->errhandler, MPI_ERRORS_ARE_FATAL);
    psc_mpi_comm_set_handler(own, MPI_ERRORS_RETURN);
    return win->handle;
}

void psc_mpi_win_destroy(MPI_Win handle)
{
    psc_mpi_win_t *win = psc_mpi_win_find(handle);

    if (!win)
        return;
    psc_mpi_handler_set(&win->errhandler, MPI_ERRORS_RETURN);
    close(win->file);
    free(win->held);
    psc_mpi_object_free(&windows, win);
}

static int done(psc_mpi_win_t *win, int code)
{
    return code == MPI_SUCCESS ? code : psc_mpi_raise_win(win, code);
}

/* ---- waiting for a lock ---- */

/* A lock that others have: a thread sleeps until it can be had, while the
 * caller waits for `event` and so goes on receiving. */
typedef struct turn {
    int file;
    struct flock lock;
    psc_request_t *event;
} turn_t;

static void *turn_sleep(void *arg)
{
    turn_t *turn = arg;
    bool locked = fcntl(turn->file, F_OFD_SETLKW, &turn->lock) == 0;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL);
    psc_mpi.host.api->event_complete(turn->event,
                                     locked ? PSC_OK : PSC_ERR_NO_RESOURCE);
    return NULL;
}

/* Start the thread, which takes no signals: they are to end the wait. */
static bool turn_start(turn_t *turn, pthread_t *thread)
{
    sigset_t all, before;
    bool started;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(thread, NULL, turn_sleep, turn) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static void unlock(int file, int first, int n)
{
    struct flock range = {
        .l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = first, .l_len = n};

    fcntl(file, F_OFD_SETLK, &range);
}

/* End the thread of a wait that was interrupted; it may have the lock. */
static void turn_give_up(turn_t *turn, pthread_t thread)
{
    void *ended = NULL;

    pthread_cancel(thread);
    pthread_join(thread, &ended);
    if (ended == PTHREAD_CANCELED)
        psc_mpi.host.api->event_complete(turn->event, PSC_ERR_CANCELLED);
    unlock(turn->file, (int)turn->lock.l_start, (int)turn->lock.l_len);
}

static int turn_wait(turn_t *turn)
{
    const psc_mpi_host_t *host = &psc_mpi.host;
    pthread_t thread;
    int code = MPI_ERR_NO_MEM;

    if (host->api->event_create(host->worker, 0, NULL, &turn->event) != PSC_OK)
        return code;
    if (!turn_start(turn, &thread)) {
        host->api->event_complete(turn->event, PSC_ERR_CANCELLED);
    } else {
        code = psc_mpi_wait(&turn->event, 1, PSC_WAIT_ALL);
        if (code != MPI_SUCCESS)
            turn_give_up(turn, thread);
        else
            pthread_join(thread, NULL);
    }
    if (code == MPI_SUCCESS && turn->event->result.status != PSC_OK)
        code = psc_mpi_error_of(turn->event->result.status, -1);
    host->api->request_free(turn->event);
    return code;
}

/* Lock the parts of `n` ranks from the first one on. */
static int lock(const psc_mpi_win_t *win, int kind, int first, int n)
{
    turn_t turn = {
        .file = win->file,
        .lock = {.l_type = kind == MPI_LOCK_SHARED ? F_RDLCK : F_WRLCK,
                 .l_whence = SEEK_SET,
                 .l_start = first,
                 .l_len = n}};

    if (fcntl(win->file, F_OFD_SETLK, &turn.lock) == 0)
        return MPI_SUCCESS;
    return turn_wait(&turn);
}

/* ---- what this rank holds ---- */

/* Mark the parts of `n` ranks, whose mark must be `from`. */
static int mark(psc_mpi_win_t *win, int first, int n, held_t from, held_t to)
{
    for (int i = first; i < first + n; i++) {
        unsigned char expected = (unsigned char)from;

        if (!atomic_compare_exchange_strong(win->held + i, &expected,
                                            (unsigned char)to)) {
            mark(win, first, i - first, to, from);
            return MPI_ERR_RMA_SYNC;
        }
    }
    return MPI_SUCCESS;
}

static int win_lock(psc_mpi_win_t *win, int kind, int first, int n, held_t held,
                    int assertion)
{
    int code = mark(win, first, n, FREE, held);

    if (code != MPI_SUCCESS)
        return code;
    if (!(assertion & MPI_MODE_NOCHECK))
        code = lock(win, kind, first, n);
    if (code != MPI_SUCCESS)
        mark(win, first, n, held, FREE);
    atomic_thread_fence(memory_order_seq_cst);
    return code;
}

static int win_unlock(psc_mpi_win_t *win, int first, int n, held_t held)
{
    int code = mark(win, first, n, held, BEING_RELEASED);

    if (code != MPI_SUCCESS)
        return code;
    atomic_thread_fence(memory_order_seq_cst);
    unlock(win->file, first, n);
    return mark(win, first, n, BEING_RELEASED, FREE);
}

/* ---- functions ---- */

static bool has_rank(const psc_mpi_win_t *win, int rank)
{
    return rank >= 0 && rank < win->size;
}

int MPI_Win_lock(int kind, int rank, int assertion, MPI_Win handle)
{
    psc_mpi_win_t *win = psc_mpi_win_find(handle);

    if (!win)
        return psc_mpi_raise(NULL, MPI_ERR_WIN);
    if (kind != MPI_LOCK_EXCLUSIVE && kind != MPI_LOCK_SHARED)
        return psc_mpi_raise_win(win, MPI_ERR_LOCKTYPE);
    if (rank == MPI_PROC_NULL)
        return MPI_SUCCESS;
    if (!has_rank(win, rank))
        return psc_mpi_raise_win(win, MPI_ERR_RANK);
    return done(win, win_lock(win, kind, rank, 1, HELD_ALONE, assertion));
}

int MPI_Win_unlock(int rank, MPI_Win handle)
{
    psc_mpi_win_t *win = psc_mpi_win_find(handle);

    if (!win)
        return psc_mpi_raise(NULL, MPI_ERR_WIN);
    if (rank == MPI_PROC_NULL)
        return MPI_SUCCESS;
    if (!has_rank(win, rank))
        return psc_mpi_raise_win(win, MPI_ERR_RANK);
    return done(win, win_unlock(win, rank, 1, HELD_ALONE));
}

int MPI_Win_lock_all(int assertion, MPI_Win handle)
{
    psc_mpi_win_t *win = psc_mpi_win_find(handle);

    if (!win)
        return psc_mpi_raise(NULL, MPI_ERR_WIN);
    return done(win, win_lock(win, MPI_LOCK_SHARED, 0, win->size, HELD_WITH_ALL,
                              assertion));
}

int MPI_Win_unlock_all(MPI_Win handle)
{
    psc_mpi_win_t *win = psc_mpi_win_find(handle);

    if (!win)
        return psc_mpi_raise(NULL, MPI_ERR_WIN);
    return done(win, win_unlock(win, 0, win->size, HELD_WITH_ALL));
}

int MPI_Win_sync(MPI_Win handle)
{
    if (!psc_mpi_win_find(handle))
        return psc_mpi_raise(NULL, MPI_ERR_WIN);
    atomic_thread_fence(memory_order_seq_cst);
    return MPI_SUCCESS;
}

int MPI_Win_fence(int assertion, MPI_Win handle)
{
    psc_mpi_win_t *win = psc_mpi_win_find(handle);
    int code;

    (void)assertion;
    if (!win)
        return psc_mpi_raise(NULL, MPI_ERR_WIN);
    atomic_thread_fence(memory_order_seq_cst);
    code = MPI_Barrier(win->comm);
    atomic_thread_fence(memory_order_seq_cst);
    return done(win, code);
}
