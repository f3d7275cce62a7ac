/* Declarations that the files share: the state of MPI in this process,
 * communicators, types, requests, and how a function returns an error. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "host.h"
#include "objects.h"

/* ---- the state of MPI (environment.c) ---- */

typedef struct psc_mpi {
    psc_mpi_host_t host;
    /* the connections to the ranks of the job, by rank; NULL until first used
     */
    _Atomic(psc_conn_t *) *conns;
    atomic_bool initialized, finalized;
    atomic_bool exits; /* finalized, because the process exits */
    atomic_int n_waiting; /* threads that wait in the core */
} psc_mpi_t;

extern psc_mpi_t psc_mpi;

/* Whether messages can be sent and received. */
static inline bool psc_mpi_running(void)
{
    return atomic_load_explicit(&psc_mpi.initialized, memory_order_acquire) &&
           !atomic_load_explicit(&psc_mpi.finalized, memory_order_relaxed);
}

/* Call before a thread waits in the core, and afterwards. If the first one
 * returns false, MPI has ended, and the thread must not enter the core. The
 * second one does not return if the process exits. */
bool psc_mpi_wait_begin(void);
void psc_mpi_wait_end(void);

/* ---- Python (interpreter.c) ---- */

/* Whether this process has an interpreter. */
bool psc_mpi_interpreter_runs(void);
/* Start an interpreter if the program is not Python. Returns false with a
 * reason in `text` (room bytes) if there is none. */
bool psc_mpi_interpreter_start(char *text, size_t room);

/* ---- buffers of MPI_Bsend (buffered.c) ---- */

typedef struct psc_mpi_copy psc_mpi_copy_t;

/* A buffer that the program has attached: the copies of messages that are being
 * sent count against it, and stand in memory of their own. */
typedef struct psc_mpi_space {
    void *base;
    MPI_Count size, used;
    psc_mpi_copy_t *copies;
} psc_mpi_space_t;

/* Detach the buffer of a communicator that ends: the copies whose messages were
 * sent are freed, the others later. */
void psc_mpi_space_free(psc_mpi_space_t *space);

/* ---- communicators (communicator.c) ---- */

/* The ranks of both groups of an inter-communicator, those of one group behind
 * those of the other, in the same order on all of them. */
typedef struct psc_mpi_both {
    int rank, size;
    int first_peer; /* the first rank of the other group */
    int32_t members[]; /* the rank in the job of each rank */
} psc_mpi_both_t;

/* The peers of a rank, with which it exchanges messages, are the ranks of its
 * group; in an inter-communicator those of the other group. */
typedef struct psc_mpi_comm {
    psc_mpi_object_t head;
    MPI_Comm handle; /* as the program knows it */
    uint32_t context;
    int rank, size; /* in this process's group */
    int n_peers;
    int32_t *members; /* the rank in the job of each peer; NULL: the same */
    int32_t *ranks; /* which peer each of the job is, or -1; NULL: the same */
    psc_mpi_both_t *both; /* NULL: no inter-communicator */
    _Atomic MPI_Errhandler errhandler;
    /* the program, and requests; the last one that lets go ends it */
    atomic_int holders;
    /* For collectives that block, and for all others, from the first one on: a
     * rank may begin one that blocks while others have begun one that does not.
     */
    psc_group_t *groups[2];
    psc_mpi_space_t space; /* of MPI_Comm_attach_buffer */
} psc_mpi_comm_t;

/* Returns NULL if there is no such communicator, or MPI does not run. */
psc_mpi_comm_t *psc_mpi_comm_find(MPI_Comm comm);
MPI_Comm psc_mpi_comm_create(const psc_mpi_comm_args_t *args);
/* Let it use another context than the one that it was created with. */
void psc_mpi_comm_move(MPI_Comm comm, uint32_t context);
/* The program has freed it: the handle finds nothing from now on. */
void psc_mpi_comm_destroy(MPI_Comm comm);
void psc_mpi_comm_hold(psc_mpi_comm_t *comm);
void psc_mpi_comm_let_go(psc_mpi_comm_t *comm);

static inline int psc_mpi_comm_member(const psc_mpi_comm_t *comm, int rank)
{
    return comm->members ? comm->members[rank] : rank;
}

/* Returns the peer that a rank of the job is. */
static inline int psc_mpi_comm_rank_of(const psc_mpi_comm_t *comm, int member)
{
    return comm->ranks && member >= 0 ? comm->ranks[member] : member;
}

/* Returns the rank in the job of the peer that an error is about, or -1. */
static inline int psc_mpi_comm_peer(const psc_mpi_comm_t *comm, int rank)
{
    return rank < 0 ? -1 : psc_mpi_comm_member(comm, rank);
}

/* Returns the rank in the job of a rank in collectives. */
static inline int psc_mpi_comm_participant(const psc_mpi_comm_t *comm, int rank)
{
    return comm->both && rank >= 0 ? comm->both->members[rank]
                                   : psc_mpi_comm_peer(comm, rank);
}

/* Returns the connection to a rank of the job, or to a peer, which has begun to
 * connect; NULL if that is not possible. */
psc_conn_t *psc_mpi_conn(int member);

static inline psc_conn_t *psc_mpi_comm_conn(const psc_mpi_comm_t *comm,
                                            int rank)
{
    return psc_mpi_conn(psc_mpi_comm_member(comm, rank));
}

void psc_mpi_comm_set_handler(psc_mpi_comm_t *comm, MPI_Errhandler handler);

/* ---- windows (window.c) ---- */

typedef struct psc_mpi_win {
    psc_mpi_object_t head;
    MPI_Win handle; /* as the program knows it */
    MPI_Comm comm; /* the window's own, for barriers */
    int size; /* of the communicator */
    int file; /* with a byte for each rank, which is locked for its part */
    _Atomic MPI_Errhandler errhandler;
    _Atomic unsigned char *held; /* held_t of window.c for each rank's part */
} psc_mpi_win_t;

/* Returns NULL if there is no such window, or MPI does not run. */
psc_mpi_win_t *psc_mpi_win_find(MPI_Win win);
/* See psc_mpi_library_t. */
MPI_Win psc_mpi_win_create(MPI_Comm comm, int size, int file);
void psc_mpi_win_destroy(MPI_Win win);

/* ---- types (types.c) ---- */

#define PSC_MPI_DIMS 4 /* DIMS of layouts.py */

/* Runs of bytes at equal distances, or one run if there are no dimensions. */
typedef struct psc_mpi_block {
    MPI_Aint offset; /* from the beginning of the item */
    size_t run;
    uint32_t n_dims;
    psc_dim_t dims[PSC_MPI_DIMS]; /* the outermost first */
} psc_mpi_block_t;

/* `n` basic elements of `size` bytes */
typedef struct psc_mpi_element {
    MPI_Count size, n;
} psc_mpi_element_t;

typedef struct psc_mpi_type {
    MPI_Datatype handle;
    bool committed, made; /* made: by the program */
    MPI_Count size; /* bytes of data of one item */
    MPI_Count lb, extent; /* of one item; extent: distance of two items */
    MPI_Count true_lb, true_extent;
    /* where the data of an item is; none: items are contiguous */
    size_t n_blocks;
    const psc_mpi_block_t *blocks;
    uint64_t n_runs; /* in all blocks */
    /* what the data is, `times` times; none: one element */
    size_t n_elements;
    MPI_Count times;
    const psc_mpi_element_t *elements;
} psc_mpi_type_t;

/* Returns NULL if there is no such type. */
const psc_mpi_type_t *psc_mpi_type_find(MPI_Datatype type);
/* A type that is held stays although the program frees it. */
void psc_mpi_type_hold(const psc_mpi_type_t *type);
void psc_mpi_type_let_go(const psc_mpi_type_t *type);
/* bounds: size, lb, extent, true lb and true extent. Returns MPI_DATATYPE_NULL
 * if no memory is left. */
MPI_Datatype psc_mpi_type_create(const MPI_Count bounds[5]);
/* Returns false if no memory is left. */
bool psc_mpi_type_commit(MPI_Datatype type, const psc_mpi_commit_args_t *args);
void psc_mpi_type_free(MPI_Datatype type);
/* Returns how many basic elements these bytes of items hold, or
 * MPI_UNDEFINED. */
MPI_Count psc_mpi_type_elements(const psc_mpi_type_t *type, MPI_Count nbytes);

/* ---- memory (data.c) ---- */

#define PSC_MPI_PIECES_MAX 64u

typedef enum psc_mpi_data_kind {
    PSC_MPI_PLAIN, /* contiguous */
    PSC_MPI_STRIDED, /* runs at equal distances */
    PSC_MPI_PIECES, /* up to PSC_MPI_PIECES_MAX other runs */
    PSC_MPI_PACKED /* all others, which are copied */
} psc_mpi_data_kind_t;

/* Items of the program's memory, and how the core takes them. It must not move:
 * `iov` may point to the other members. */
typedef struct psc_mpi_data {
    psc_mpi_data_kind_t kind;
    bool holds; /* `type` */
    bool spaced; /* the packed bytes have the items' gaps, too */
    bool landed; /* what was received has been unpacked */
    psc_iov_t iov[2];
    size_t n_iov;
    MPI_Count nbytes;
    void *base;
    MPI_Count count;
    const psc_mpi_type_t *type;
    void *packed; /* NULL until it is needed */
    psc_iov_t *pieces; /* the same; the core copies it */
    psc_layout_t layout;
    psc_dim_t dims[1 + PSC_MPI_DIMS];
} psc_mpi_data_t;

/* Describe items; psc_mpi_data_free ends that, also after an error. Returns the
 * code of an error if the arguments are wrong. */
int psc_mpi_data_of(psc_mpi_data_t *data, const void *buffer, MPI_Count count,
                    MPI_Datatype type);
void psc_mpi_data_free(psc_mpi_data_t *data);
/* From now on packed items are as far from each other as the items are, with
 * their gaps, which are zeros and are not unpacked. The items' data must be
 * within their extents. */
void psc_mpi_data_space(psc_mpi_data_t *data);
/* Returns the `n_iov` elements that the core gets. */
static inline const psc_iov_t *psc_mpi_data_iov(const psc_mpi_data_t *data)
{
    return data->kind == PSC_MPI_PIECES ? data->pieces : data->iov;
}

/* Call before psc_mpi_data_iov, each time. */
int psc_mpi_data_to_send(psc_mpi_data_t *data);
int psc_mpi_data_to_receive(psc_mpi_data_t *data);
/* Call when so many bytes were received; a second call does nothing. */
void psc_mpi_data_land(psc_mpi_data_t *data, MPI_Count nbytes);
/* Copy the bytes of all items to contiguous memory, or so many from there. */
void psc_mpi_data_pack(const psc_mpi_data_t *data, void *packed);
void psc_mpi_data_unpack(const psc_mpi_data_t *data, const void *packed,
                         MPI_Count nbytes);

/* ---- errors (error.c) ---- */

/* Return the code of an error of this communicator, after its error handler was
 * called. A communicator that is NULL has that of MPI_COMM_SELF. */
int psc_mpi_raise(psc_mpi_comm_t *comm, int code);
int psc_mpi_raise_win(psc_mpi_win_t *win, int code);
/* Replace the error handler of an object. */
void psc_mpi_handler_set(_Atomic MPI_Errhandler *place, MPI_Errhandler handler);
/* Returns the code for a status of the core; `rank`: the rank in the job of the
 * peer, or -1. The code's text has the reason. */
int psc_mpi_error_of(int status, int rank);
/* Returns a new code of this class, with this text. */
int psc_mpi_error_add(int class, const char *text);
/* Returns the latest code that the program has added. */
int psc_mpi_error_last(void);

/* ---- waiting (wait.c) ---- */

/* Wait until all of the core's requests, or any, have ended or matched. Returns
 * the code of an error if a handler of a signal has raised an exception. */
int psc_mpi_wait(psc_request_t *const *requests, size_t n,
                 psc_wait_mode_t mode);

/* ---- operations (operation.c) and collectives (collective.c) ---- */

typedef struct psc_mpi_function_of_op {
    MPI_User_function *narrow;
    MPI_User_function_c *wide; /* or NULL */
} psc_mpi_function_of_op_t;

/* The arguments of a function of the program besides the operands. */
typedef struct psc_mpi_combine {
    psc_mpi_function_of_op_t function;
    MPI_Datatype type;
} psc_mpi_combine_t;

/* Say how a collective combines elements; `combine` stays until its end.
 * Returns the code of an error if there is no such operation for the type. */
int psc_mpi_op_fill(psc_coll_args_t *args, psc_mpi_combine_t *combine,
                    MPI_Op op, MPI_Datatype type);

/* A collective that was called, and its memory. */
typedef struct psc_mpi_coll psc_mpi_coll_t;

int psc_mpi_coll_start(psc_mpi_comm_t *comm, psc_mpi_coll_t *coll,
                       psc_request_t **core_p);
/* The operation has ended: put the result where the program wants it, once.
 * Returns the code of its error. */
int psc_mpi_coll_land(const psc_mpi_comm_t *comm, psc_mpi_coll_t *coll,
                      const psc_result_t *result);
/* Free the core's request of the operation. */
void psc_mpi_coll_release(const psc_mpi_coll_t *coll, psc_request_t *core);
void psc_mpi_coll_free(psc_mpi_coll_t *coll);

/* ---- requests (request.c) ---- */

/* A message that is to be sent or received. */
typedef struct psc_mpi_transfer {
    const void *buffer;
    MPI_Count count;
    MPI_Datatype type;
    int peer, tag;
    MPI_Comm comm;
    uint32_t flags; /* PSC_FLAG_SYNC */
    bool receives;
    bool buffered; /* a copy is sent */
} psc_mpi_transfer_t;

typedef struct psc_mpi_request psc_mpi_request_t;

struct psc_mpi_request {
    psc_mpi_object_t head;
    psc_mpi_comm_t *comm; /* NULL: a generalised request */
    /* Of the operation that is in flight; NULL: it has ended, or the persistent
     * request is inactive. The second is the send of a combined send and
     * receive. */
    psc_request_t *core, *second;
    int second_peer;
    psc_result_t result; /* of one that has ended at once */
    bool receives, persistent, active;
    bool no_peer; /* MPI_PROC_NULL */
    psc_mpi_data_t data;
    psc_mpi_transfer_t transfer; /* of a persistent request */
    psc_mpi_coll_t *coll; /* of a collective; else NULL */
    void *copy; /* of what is sent, freed with the request; or NULL */
    psc_mpi_request_t *next_left; /* in the list of request.c; or NULL */
    int code; /* of the error of what a thread of Python has done */
    /* of a generalised request */
    void *state;
    atomic_bool let_go; /* freed by the program before it has ended */
    MPI_Grequest_query_function *query_fn;
    MPI_Grequest_free_function *free_fn;
    MPI_Grequest_cancel_function *cancel_fn;
};

/* Returns NULL if no memory is left. */
psc_mpi_request_t *psc_mpi_request_create(psc_mpi_comm_t *comm);
/* Returns NULL if there is no such request, or MPI does not run. */
psc_mpi_request_t *psc_mpi_request_find(MPI_Request request);
/* Create a request for what a thread of Python does, and end it with the code
 * of its error. Returns MPI_REQUEST_NULL if no memory is left. */
MPI_Request psc_mpi_request_promise(MPI_Comm comm);
void psc_mpi_request_keep(MPI_Request request, int code);
/* Free a request, whose operation goes on if it has not ended. */
void psc_mpi_request_free(psc_mpi_request_t *request);
/* End freed requests whose operations have ended, which delivers what they have
 * received. Called when the program learns that something else has ended. */
void psc_mpi_requests_sweep(void);
/* Returns the core's request that must end first, or NULL if the request has
 * ended or is inactive. */
psc_request_t *psc_mpi_request_pending(const psc_mpi_request_t *request);
/* Wait for a request that the program has no handle of. If the wait ends by an
 * error, the request's operations are given up, and it is freed. */
int psc_mpi_request_finish(MPI_Request handle, MPI_Status *status);
/* The same without the wait. */
void psc_mpi_request_give_up(psc_mpi_request_t *request);
/* Report a request that has ended, or is inactive: fill in the status. Returns
 * the code of its error. */
int psc_mpi_request_report(psc_mpi_request_t *request, MPI_Status *status);
/* Report it, and make it inactive, or free it and replace the handle. */
int psc_mpi_request_take(MPI_Request *handle, psc_mpi_request_t *request,
                         MPI_Status *status);

/* ---- statuses (status.c) ---- */

void psc_mpi_status_set(MPI_Status *status, int source, int tag,
                        MPI_Count nbytes);
void psc_mpi_status_cancelled(MPI_Status *status, bool cancelled);
MPI_Count psc_mpi_status_nbytes(const MPI_Status *status);
/* The status of what has not received anything, or of MPI_PROC_NULL. */
void psc_mpi_status_empty(MPI_Status *status);
void psc_mpi_status_proc_null(MPI_Status *status);
/* Fill in the status of a receive or probe in a communicator. */
void psc_mpi_status_of(MPI_Status *status, const psc_mpi_comm_t *comm,
                       const psc_result_t *result);

/* ---- messages (message.c) ---- */

/* A result of starting a message besides MPI_SUCCESS and codes of errors: the
 * peer is MPI_PROC_NULL. */
#define PSC_MPI_NO_PEER (-1)

/* Fill in what a receive or probe from this rank takes. */
int psc_mpi_recv_args(const psc_mpi_comm_t *comm, int source, int tag,
                      psc_recv_args_t *args);
/* Start a message; `data` was filled in. If the message is not done, *core_p is
 * the core's request, else NULL. */
int psc_mpi_send_start(psc_mpi_comm_t *comm, const psc_mpi_transfer_t *transfer,
                       psc_mpi_data_t *data, psc_request_t **core_p);
int psc_mpi_recv_start(psc_mpi_comm_t *comm, const psc_mpi_transfer_t *transfer,
                       psc_mpi_data_t *data, psc_result_t *result,
                       psc_request_t **core_p);
/* Start what the request's `transfer` says. */
int psc_mpi_request_start(psc_mpi_request_t *request);
/* Fill in the status of a receive from `peer`, which has ended; returns the
 * code of its error. */
int psc_mpi_recv_report(const psc_mpi_comm_t *comm, int peer,
                        const psc_result_t *result, psc_mpi_data_t *data,
                        MPI_Status *status);
/* End a core's request, or NULL, whose wait has failed: afterwards the core
 * does not use its memory. Cancels it; one that has gone too far for that ends
 * with its transfer, or with the connection to the peer. Signals wait. */
void psc_mpi_give_up(psc_request_t *core);
/* Wait for a core's request, take its result, and free it. If the wait
 * ends by an error, the request is given up. */
int psc_mpi_finish(psc_request_t *core, psc_result_t *result);

/* ---- buffers of MPI_Bsend ---- */

/* Send a copy, which counts against the buffer of the communicator or the
 * process. */
int psc_mpi_send_buffered(psc_mpi_comm_t *comm,
                          const psc_mpi_transfer_t *transfer,
                          psc_mpi_data_t *data);
