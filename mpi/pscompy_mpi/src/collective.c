/* Collectives in their three forms: called, with a request, and persistent. */
#include "sides.h"

#include <stdlib.h>

/* ---- starting and ending ---- */

static int coll_status(int status)
{
    if (status == PSC_ERR_UNSUPPORTED)
        return MPI_ERR_OP;
    return psc_mpi_error_of(status, -1);
}

static int group_of(psc_mpi_comm_t *comm, psc_mpi_form_t form,
                    psc_group_t **group_p)
{
    static const uint32_t classes[] = {PSC_CONTEXT_OBJECTS, PSC_CONTEXT_CHUNKS};
    int which = form != PSC_MPI_BLOCKING;
    const psc_mpi_both_t *both = comm->both;
    const psc_group_args_t args = {.context = comm->context | classes[which],
                                   .rank = both ? both->rank : comm->rank,
                                   .size = both ? both->size : comm->size,
                                   .members =
                                       both ? both->members : comm->members};
    psc_status_t status = PSC_OK;

    if (!comm->groups[which])
        status = psc_mpi.host.api->group_create(psc_mpi.host.worker, &args,
                                                &comm->groups[which]);
    *group_p = comm->groups[which];
    return status == PSC_OK ? MPI_SUCCESS : psc_mpi_error_of(status, -1);
}

/* Open the connection that the collective lacks. */
static psc_status_t coll_connect(psc_mpi_comm_t *comm, psc_group_t *group)
{
    const psc_api_t *api = psc_mpi.host.api;
    int rank = api->group_wanted(group);
    int member = psc_mpi_comm_participant(comm, rank);
    psc_conn_t *conn = member < 0 ? NULL : psc_mpi_conn(member);

    return conn ? api->group_connect(group, rank, conn) : PSC_ERR_CONNECT;
}

int psc_mpi_coll_start(psc_mpi_comm_t *comm, psc_mpi_coll_t *coll,
                       psc_request_t **core_p)
{
    const psc_api_t *api = psc_mpi.host.api;
    psc_status_t status;

    psc_mpi_side_pack(&coll->out);
    if (coll->packs_in)
        psc_mpi_side_pack(&coll->in);
    coll->landed = false;
    do {
        status = api->coll_start(coll->group, &coll->args, core_p);
    } while (status == PSC_ERR_NO_RESOURCE &&
             coll_connect(comm, coll->group) == PSC_OK);
    return status >= PSC_OK ? MPI_SUCCESS : coll_status(status);
}

int psc_mpi_coll_land(const psc_mpi_comm_t *comm, psc_mpi_coll_t *coll,
                      const psc_result_t *result)
{
    int code = MPI_SUCCESS;

    if (result->status != PSC_OK)
        return psc_mpi_error_of(result->status,
                                psc_mpi_comm_participant(comm, result->rank));
    if (!coll->landed) {
        psc_mpi_side_unpack(&coll->in);
        code = psc_mpi_fold(&coll->fold, coll->in.memory);
    }
    coll->landed = true;
    return code;
}

void psc_mpi_coll_release(const psc_mpi_coll_t *coll, psc_request_t *core)
{
    if (coll->args.flags & PSC_FLAG_NOTIFY)
        psc_mpi.host.call_free(core);
    else
        psc_mpi.host.api->request_free(core);
}

void psc_mpi_coll_free(psc_mpi_coll_t *coll)
{
    if (!coll || coll->in_use)
        return;
    if (coll->args.persistent)
        psc_mpi.host.api->coll_free(coll->args.persistent);
    psc_mpi_side_free(&coll->out);
    psc_mpi_side_free(&coll->in);
    psc_mpi_data_free(&coll->fold.result);
    free(coll);
}

/* ---- the three forms ---- */

static int blocking(psc_mpi_comm_t *comm, psc_mpi_coll_t *coll)
{
    psc_result_t result = {.status = PSC_OK};
    psc_request_t *core = NULL;
    int code = psc_mpi_coll_start(comm, coll, &core);

    while (code == MPI_SUCCESS && core &&
           psc_request_state(core) != PSC_REQUEST_DONE) {
        code = psc_mpi_wait(&core, 1, PSC_WAIT_ALL);
        if (psc_request_state(core) == PSC_REQUEST_MATCHED)
            psc_mpi.host.api->coll_call(core);
    }
    if (code != MPI_SUCCESS) {
        coll->in_use = core != NULL;
        return code;
    }
    if (core) {
        result = core->result;
        psc_mpi.host.api->request_free(core);
    }
    return psc_mpi_coll_land(comm, coll, &result);
}

static int describe(psc_mpi_coll_t *coll)
{
    psc_status_t status = psc_mpi.host.api->coll_init(coll->group, &coll->args,
                                                      &coll->args.persistent);

    return status == PSC_OK ? MPI_SUCCESS : coll_status(status);
}

static int with_request(const psc_mpi_collective_t *call, psc_mpi_comm_t *comm,
                        psc_mpi_coll_t *coll)
{
    psc_mpi_request_t *request = psc_mpi_request_create(comm);
    int code;

    if (!request)
        return MPI_ERR_NO_MEM;
    if (coll->args.combine) /* any wait or test may call it */
        coll->args.flags |= PSC_FLAG_NOTIFY;
    request->persistent = call->form == PSC_MPI_PERSISTENT;
    request->active = !request->persistent;
    if (request->persistent)
        code = describe(coll);
    else
        code = psc_mpi_coll_start(comm, coll, &request->core);
    if (code != MPI_SUCCESS) {
        psc_mpi_request_free(request);
        return code;
    }
    request->coll = coll;
    *call->request = psc_mpi_object_handle(request);
    return MPI_SUCCESS;
}

int psc_mpi_collective(const psc_mpi_collective_t *call)
{
    psc_mpi_comm_t *comm = psc_mpi_comm_find(call->comm);
    psc_mpi_coll_t *coll;
    int code;

    if (!comm)
        return psc_mpi_raise(NULL, MPI_ERR_COMM);
    coll = calloc(1, sizeof *coll);
    code = coll ? group_of(comm, call->form, &coll->group) : MPI_ERR_NO_MEM;
    if (code == MPI_SUCCESS)
        code = psc_mpi_coll_fill(coll, call, comm);
    if (code == MPI_SUCCESS)
        code = call->form == PSC_MPI_BLOCKING ? blocking(comm, coll)
                                              : with_request(call, comm, coll);
    if (code != MPI_SUCCESS || call->form == PSC_MPI_BLOCKING)
        psc_mpi_coll_free(coll);
    psc_mpi_requests_sweep();
    return code == MPI_SUCCESS ? code : psc_mpi_raise(comm, code);
}
