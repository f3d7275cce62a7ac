/* The base type Communicator: methods for messages like those of Connection
 * (connection_type.c), but with peers that are named by their rank. The part in
 * Python is pscompy/world/communicator.py. */
#include "connection.h"
#include "request.h"

/* ---- ranks ---- */

/* Called for an argument that is no rank: returns -1 with an exception that
 * names the argument. */
static int comm_refuse_rank(const psb_call_t *call, PyObject *object)
{
    const char *name = call->op.kind != PSB_SEND ? "source"
                       : call->buf               ? "dest"
                                                 : "rank";

    if (!PyErr_ExceptionMatches(PyExc_TypeError))
        return -1;
    return psb_refuse(PyExc_TypeError, object,
                      "%s is the number of a rank, not %%U", name);
}

static int comm_refuse_closed(psb_communicator_t *self)
{
    psb_raise(self->worker->state, (PyObject *)self, PSC_ERR_CLOSED, 0);
    return -1;
}

static int comm_miss_rank(psb_communicator_t *self, PyObject *object)
{
    if (self->closed)
        return comm_refuse_closed(self);
    if (self->size == 1)
        return psb_refuse(PyExc_IndexError, object,
                          "no rank %%U: there is rank 0 only (pscompy run -n N "
                          "PROGRAM starts N ranks)");
    return psb_refuse(PyExc_IndexError, object,
                      "no rank %%U: the ranks are 0 to %zd", self->size - 1);
}

/* Sets call->connection to the connection to the rank `object`, and leaves it
 * NULL if any source is meant. */
static int comm_find_peer(psb_communicator_t *self, PyObject *object,
                          psb_call_t *call)
{
    long long rank;
    int overflow;

    if (!object)
        return 0;
    rank = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (PSB_UNLIKELY(rank < 0 || rank >= self->n_open)) {
        if (rank == -1 && !overflow && PyErr_Occurred())
            return comm_refuse_rank(call, object);
        return rank == PSB_ANY_SOURCE ? 0 : comm_miss_rank(self, object);
    }
    call->connection = psb_communicator_peer(self, (Py_ssize_t)rank);
    return call->connection ? 0 : -1;
}

/* Fills a call without rank: a receive or a probe from any source. */
static int comm_address_any(psb_communicator_t *self, psb_call_t *call)
{
    if (call->op.kind == PSB_SEND) {
        PyErr_SetString(PyExc_IndexError, "a message goes to one rank");
        return -1;
    }
    if (PSB_UNLIKELY(self->closed))
        return comm_refuse_closed(self);
    call->op.origin = (PyObject *)self;
    return 0;
}

static int comm_check_bound(const psb_communicator_t *self)
{
    if (PSB_LIKELY(self->worker != NULL))
        return 0;
    PyErr_SetString(PyExc_TypeError, "this Communicator was not opened");
    return -1;
}

/* Makes the rank the peer of the call. A receive without a rank receives from
 * any rank. */
static int comm_address(psb_communicator_t *self, PyObject *rank,
                        psb_call_t *call)
{
    psb_op_t *op = &call->op;

    if (comm_check_bound(self) < 0 || comm_find_peer(self, rank, call) < 0)
        return -1;
    op->worker = self->worker;
    op->context = self->context;
    op->origin = (PyObject *)call->connection;
    return call->connection ? 0 : comm_address_any(self, call);
}

static PyObject *comm_connection(psb_communicator_t *self, PyObject *rank)
{
    psb_call_t call;

    psb_call_begin(&call, PSB_SEND);
    if (comm_address(self, rank, &call) < 0)
        return NULL;
    return Py_NewRef(call.connection);
}

/* ---- messages ---- */

static PyObject *comm_run(psb_communicator_t *self, const psb_verb_t *verb,
                          psb_runner_t run, PyObject *const *args,
                          Py_ssize_t n_args, PyObject *kwnames)
{
    psb_call_t call;
    PyObject *rank;

    if (psb_verb_parse(verb, args, n_args, kwnames, &call, &rank) < 0 ||
        comm_address(self, rank, &call) < 0)
        return NULL;
    return run(&call);
}

#define COMM_VERB(...) PSB_VERB(comm, psb_communicator_t, __VA_ARGS__)
COMM_VERB(send, psb_call_run, "bDtd", 2, PSB_SEND, false)
COMM_VERB(isend, psb_call_run, "bDtl", 2, PSB_SEND, true)
COMM_VERB(ssend, psb_call_run, "bDtd", 2, PSB_SEND, false, PSC_FLAG_SYNC)
COMM_VERB(issend, psb_call_run, "bDtl", 2, PSB_SEND, true, PSC_FLAG_SYNC)
COMM_VERB(recv, psb_call_run, "bStd", 0, PSB_RECV_INTO, false)
COMM_VERB(irecv, psb_call_run, "bSt", 0, PSB_RECV_INTO, true)
COMM_VERB(send_init, psb_call_init, "bDt", 2, PSB_SEND, true)
COMM_VERB(recv_init, psb_call_init, "bSt", 1, PSB_RECV_INTO, true)
COMM_VERB(recv_status, psb_call_run, "Std", 0, PSB_RECV_STATUS, false)
COMM_VERB(recv_view, psb_call_view, "Stdys", 0, PSB_RECV_VIEW, false)
COMM_VERB(probe, psb_call_run, "Std", 0, PSB_PROBE, false)
COMM_VERB(iprobe, psb_call_iprobe, "St", 0, PSB_PROBE, false)
COMM_VERB(mprobe, psb_call_run, "Std", 0, PSB_MATCH, false)
COMM_VERB(improbe, psb_call_improbe, "St", 0, PSB_MATCH, false)

static PyObject *comm_sendrecv(psb_communicator_t *self, PyObject *const *args,
                               Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {"sendrecv",
                                              2,
                                              7,
                                              {"sendbuf", "dest", "recvbuf",
                                               "source", "sendtag", "recvtag",
                                               "timeout"}};
    psb_call_t send, recv;
    PyObject *given[7];

    psb_call_begin(&send, PSB_SEND);
    psb_call_begin(&recv, PSB_RECV_INTO);
    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0)
        return NULL;
    send.buf = given[0];
    send.timeout = given[6];
    recv.buf = given[2] == Py_None ? NULL : given[2];
    if (psb_arg_tag(given[4], false, &send.op.tag) < 0 ||
        psb_arg_tag(given[5], true, &recv.op.tag) < 0 ||
        psb_arg_deadline(given[6], &send.deadline) < 0 ||
        comm_address(self, given[1], &send) < 0 ||
        comm_address(self, given[3], &recv) < 0)
        return NULL;
    return psb_call_sendrecv(&send, &recv);
}

static void comm_forget_peers(psb_communicator_t *self)
{
    psb_connection_t **peers = self->peers;
    Py_ssize_t size = self->size;

    self->peers = NULL;
    self->size = self->n_open = 0;
    for (Py_ssize_t i = 0; peers && i < size; i++)
        Py_XDECREF(peers[i]);
    PyMem_Free(peers);
}

static PyObject *comm_bind(psb_communicator_t *self, PyTypeObject *type,
                           PyObject *const *args, Py_ssize_t n_args,
                           PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "_bind", 3, 3, {"worker", "size", "context"}};
    psb_state_t *state = PyType_GetModuleState(type);
    uint64_t size = 0, context = 0;
    PyObject *given[3];

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        psb_arg_u64(given[1], "size", INT32_MAX, &size) < 0 ||
        psb_arg_u64(given[2], "context", UINT32_MAX, &context) < 0)
        return NULL;
    if (!Py_IS_TYPE(given[0], state->worker_type))
        return PyErr_Format(PyExc_TypeError, "_bind() needs a Worker");
    comm_forget_peers(self);
    self->peers = PyMem_Calloc(size ? size : 1, sizeof *self->peers);
    if (!self->peers)
        return PyErr_NoMemory();
    self->size = self->n_open = (Py_ssize_t)size;
    self->context = (uint32_t)context;
    Py_INCREF(given[0]);
    Py_XSETREF(self->worker, (psb_worker_t *)given[0]);
    Py_RETURN_NONE;
}

static PyObject *comm_renumber(psb_communicator_t *self, PyObject *members)
{
    if (comm_check_bound(self) < 0)
        return NULL;
    self->renumbers = true;
    return psb_worker_renumber(self->worker, self->context, members);
}

/* A thread may still be in a call on one of the connections, so the
 * communicator keeps them. */
static PyObject *comm_unbind(psb_communicator_t *self, PyObject *unused)
{
    (void)unused;
    if (comm_check_bound(self) < 0)
        return NULL;
    self->closed = true;
    self->n_open = 0;
    for (Py_ssize_t i = 0; i < self->size; i++) {
        if (self->peers[i])
            psb_connection_unbind(self->peers[i]);
    }
    Py_RETURN_NONE;
}

static PyObject *comm_exception(psb_communicator_t *self, PyObject *const *args,
                                Py_ssize_t n_args)
{
    if (comm_check_bound(self) < 0)
        return NULL;
    return psb_default_exception(self->worker->state, args, n_args);
}

static int comm_traverse(psb_communicator_t *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->worker);
    for (Py_ssize_t i = 0; self->peers && i < self->size; i++)
        Py_VISIT(self->peers[i]);
    return 0;
}

static int comm_clear(psb_communicator_t *self)
{
    psb_group_end(self);
    comm_forget_peers(self);
    if (self->renumbers)
        psb_worker_forget_numbering(self->worker, self->context);
    self->renumbers = false;
    Py_CLEAR(self->worker);
    return 0;
}

static void comm_dealloc(psb_communicator_t *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    comm_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

#define ANY "-0x80000000"

static PyMethodDef comm_methods[] = {
    {"connection", PSB_FUNCTION(comm_connection), METH_O,
     "connection($self, rank, /)\n--\n\n"
     "The connection to a rank, which may be this rank itself; it is\n"
     "established at its first use. Raises IndexError if there is no such\n"
     "rank."},
    {"send", PSB_FUNCTION(comm_send), PSB_FAST,
     "send($self, buf, dest, tag=0, timeout=None)\n--\n\n"
     "Send one message to rank dest; see Connection.send."},
    {"isend", PSB_FUNCTION(comm_isend), PSB_FAST,
     "isend($self, buf, dest, tag=0, lend=False)\n--\n\n"
     "Like send, but returns a Request at once; see Connection.isend."},
    {"ssend", PSB_FUNCTION(comm_ssend), PSB_FAST,
     "ssend($self, buf, dest, tag=0, timeout=None)\n--\n\n"
     "Like send, but returns only after a receive has matched the message;\n"
     "see Connection.ssend."},
    {"issend", PSB_FUNCTION(comm_issend), PSB_FAST,
     "issend($self, buf, dest, tag=0, lend=False)\n--\n\n"
     "Like ssend, but returns a Request at once; see Connection.isend."},
    {"recv", PSB_FUNCTION(comm_recv), PSB_FAST,
     "recv($self, buf=None, source=" ANY ", tag=-1, timeout=None)\n--\n\n"
     "Receive one message from rank source, or from any; see\n"
     "Connection.recv."},
    {"irecv", PSB_FUNCTION(comm_irecv), PSB_FAST,
     "irecv($self, buf=None, source=" ANY ", tag=-1)\n--\n\n"
     "Like recv, but returns a Request at once."},
    {"send_init", PSB_FUNCTION(comm_send_init), PSB_FAST,
     "send_init($self, buf, dest, tag=0)\n--\n\n"
     "A PersistentRequest: each start() sends the current contents of buf,\n"
     "as isend would."},
    {"recv_init", PSB_FUNCTION(comm_recv_init), PSB_FAST,
     "recv_init($self, buf, source=" ANY ", tag=-1)\n--\n\n"
     "A PersistentRequest: each start() receives into buf, as irecv would."},
    {"recv_status", PSB_FUNCTION(comm_recv_status), PSB_FAST,
     "recv_status($self, source=" ANY ", tag=-1, timeout=None)\n--\n\n"
     "Receive into new memory; returns (bytearray, Status)."},
    {"recv_view", PSB_FUNCTION(comm_recv_view), PSB_FAST,
     "recv_view($self, source=" ANY ", tag=-1, timeout=None, dtype=None,"
     " shape=None)\n--\n\n"
     "Receive one message as a read-only array; see Connection.recv_view."},
    {"sendrecv", PSB_FUNCTION(comm_sendrecv), PSB_FAST,
     "sendrecv($self, sendbuf, dest, recvbuf=None, source=" ANY ", sendtag=0,"
     " recvtag=-1, timeout=None)\n--\n\n"
     "Send and receive at the same time; returns what recv returns."},
    {"probe", PSB_FUNCTION(comm_probe), PSB_FAST,
     "probe($self, source=" ANY ", tag=-1, timeout=None)\n--\n\n"
     "Wait for a message and return its Status, without receiving it."},
    {"iprobe", PSB_FUNCTION(comm_iprobe), PSB_FAST,
     "iprobe($self, source=" ANY ", tag=-1)\n--\n\n"
     "Returns the Status of the message that recv would return, or None if\n"
     "there is none."},
    {"mprobe", PSB_FUNCTION(comm_mprobe), PSB_FAST,
     "mprobe($self, source=" ANY ", tag=-1, timeout=None)\n--\n\n"
     "Wait for a message and take it off the queue: returns a Message, which\n"
     "no other receive can match."},
    {"improbe", PSB_FUNCTION(comm_improbe), PSB_FAST,
     "improbe($self, source=" ANY ", tag=-1)\n--\n\n"
     "Like mprobe if a message has arrived; otherwise returns None."},
    {"_bind", PSB_FUNCTION(comm_bind), METH_METHOD | PSB_FAST,
     "_bind($self, worker, size, context)\n--\n\n"
     "Bind this object to a worker; _peer(rank) returns the Connection of a\n"
     "rank."},
    {"_renumber", PSB_FUNCTION(comm_renumber), METH_O,
     "_renumber($self, members, /)\n--\n\n"
     "Let Status.source of messages of this context be the index in\n"
     "`members` of the rank that sent them, as long as this object lives."},
    {"_unbind", PSB_FUNCTION(comm_unbind), METH_NOARGS,
     "_unbind($self)\n--\n\n"
     "Let calls on this object and on its connections raise Closed."},
    {"_collective", PSB_FUNCTION(psb_collective), PSB_FAST,
     "_collective($self, coll, rank, members, modules, check, send, recv, "
     "count, counts, recv_counts,"
     " size, op, type, combine, commutes, root, algorithm, finish, read, how, "
     "timeout)\n--\n\n"
     "Start a collective operation of all ranks; its result is that of\n"
     "finish(status, nbytes, rank). read() is called before each start of a\n"
     "persistent one, unless it is None."},
    {"_plain", PSB_FUNCTION(psb_collective_plain), METH_FASTCALL,
     "_plain($self, coll, sendbuf, recvbuf, op, root, timeout, /)\n--\n\n"
     "Run a collective of numpy arrays that need no preparation. Returns its\n"
     "result, or NotImplemented if _collective() is to do it."},
    {"_explain", PSB_FUNCTION(psb_collective_explain), METH_FASTCALL,
     "_explain($self, coll, rank, members, modules, check, nbytes, algorithm,"
     " /)\n--\n\n"
     "The algorithms of a collective, the one that is used first."},
    {"_differs", PSB_FUNCTION(psb_collective_differs), METH_NOARGS,
     "_differs($self)\n--\n\n"
     "What rank 0 and another rank have called when ranks last called\n"
     "different things: two tuples (coll, root, op, type, algorithm, nbytes,\n"
     "counts)."},
    {"_exception", PSB_FUNCTION(comm_exception), METH_FASTCALL,
     "_exception($self, status, nbytes, /)\n--\n\n"
     "The exception for a status of the core, when no peer is involved."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot comm_slots[] = {
    {Py_tp_doc, "Messages with the ranks of a communicator."},
    {Py_tp_dealloc, comm_dealloc},
    {Py_tp_traverse, comm_traverse},
    {Py_tp_clear, comm_clear},
    {Py_tp_methods, comm_methods},
    {0, NULL}};

PyType_Spec psb_communicator_spec = {
    .name = "pscompy.api.c._binding.Communicator",
    .basicsize = sizeof(psb_communicator_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = comm_slots,
};
