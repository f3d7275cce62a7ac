/* The base type Connection: messages with one peer. The other methods of
 * Connection (state, explain, open, close) are in connection.py. */
#include "connection.h"
#include "request.h"

#include <structmember.h>

static PyObject *connection_bind(psb_connection_t *self, PyTypeObject *type,
                                 PyObject *const *args, Py_ssize_t n_args,
                                 PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "_bind", 3, 4, {"worker", "conn_address", "context", "keep"}};
    psb_state_t *state = PyType_GetModuleState(type);
    uint64_t address = 0, context = 0;
    PyObject *given[4];

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        psb_arg_u64(given[1], "conn_address", UINTPTR_MAX, &address) < 0 ||
        psb_arg_u64(given[2], "context", UINT32_MAX, &context) < 0)
        return NULL;
    if (!Py_IS_TYPE(given[0], state->worker_type)) {
        PyErr_SetString(PyExc_TypeError, "_bind() needs a Worker");
        return NULL;
    }
    self->core = (psc_conn_t *)(uintptr_t)address;
    self->context = (uint32_t)context;
    Py_INCREF(given[0]);
    Py_XSETREF(self->worker, (psb_worker_t *)given[0]);
    Py_XINCREF(given[3]);
    Py_XSETREF(self->keep, given[3]);
    Py_RETURN_NONE;
}

/* The default of the method _begin_open(): does nothing, for connections that
 * need no opening. */
static PyObject *connection_begin_open(psb_connection_t *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    Py_RETURN_NONE;
}

static PyObject *connection_exception(psb_connection_t *self,
                                      PyObject *const *args, Py_ssize_t n_args)
{
    psb_call_t call;

    if (psb_connection_address(self, &call) < 0)
        return NULL;
    return psb_default_exception(self->worker->state, args, n_args);
}

/* ---- messages ---- */

static PyObject *connection_run(psb_connection_t *self, const psb_verb_t *verb,
                                psb_runner_t run, PyObject *const *args,
                                Py_ssize_t n_args, PyObject *kwnames)
{
    PyObject *no_peer;
    psb_call_t call;

    if (psb_verb_parse(verb, args, n_args, kwnames, &call, &no_peer) < 0 ||
        psb_connection_address(self, &call) < 0)
        return NULL;
    return run(&call);
}

#define CONNECTION_VERB(...) PSB_VERB(connection, psb_connection_t, __VA_ARGS__)
CONNECTION_VERB(send, psb_call_run, "btd", 1, PSB_SEND, false)
CONNECTION_VERB(isend, psb_call_run, "btl", 1, PSB_SEND, true)
CONNECTION_VERB(ssend, psb_call_run, "btd", 1, PSB_SEND, false, PSC_FLAG_SYNC)
CONNECTION_VERB(issend, psb_call_run, "btl", 1, PSB_SEND, true, PSC_FLAG_SYNC)
CONNECTION_VERB(recv, psb_call_run, "btd", 0, PSB_RECV_INTO, false)
CONNECTION_VERB(irecv, psb_call_run, "bt", 0, PSB_RECV_INTO, true)
CONNECTION_VERB(send_init, psb_call_init, "bt", 1, PSB_SEND, true)
CONNECTION_VERB(recv_init, psb_call_init, "bt", 1, PSB_RECV_INTO, true)
CONNECTION_VERB(recv_status, psb_call_run, "td", 0, PSB_RECV_STATUS, false)
CONNECTION_VERB(recv_view, psb_call_view, "tdys", 0, PSB_RECV_VIEW, false)
CONNECTION_VERB(_recv_memory, psb_call_run, "t", 0, PSB_RECV_MEMORY, false)
CONNECTION_VERB(_irecv_memory, psb_call_run, "t", 0, PSB_RECV_MEMORY, true)
CONNECTION_VERB(probe, psb_call_run, "td", 0, PSB_PROBE, false)
CONNECTION_VERB(iprobe, psb_call_iprobe, "t", 0, PSB_PROBE, false)
CONNECTION_VERB(mprobe, psb_call_run, "td", 0, PSB_MATCH, false)
CONNECTION_VERB(improbe, psb_call_improbe, "t", 0, PSB_MATCH, false)

static PyObject *connection_sendrecv(psb_connection_t *self,
                                     PyObject *const *args, Py_ssize_t n_args,
                                     PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "sendrecv",
        1,
        5,
        {"sendbuf", "recvbuf", "sendtag", "recvtag", "timeout"}};
    psb_call_t send, recv;
    PyObject *given[5];

    psb_call_begin(&send, PSB_SEND);
    psb_call_begin(&recv, PSB_RECV_INTO);
    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        psb_arg_tag(given[2], false, &send.op.tag) < 0 ||
        psb_arg_tag(given[3], true, &recv.op.tag) < 0 ||
        psb_arg_deadline(given[4], &send.deadline) < 0 ||
        psb_connection_address(self, &send) < 0 ||
        psb_connection_address(self, &recv) < 0)
        return NULL;
    send.buf = given[0];
    send.timeout = given[4];
    recv.buf = given[1] == Py_None ? NULL : given[1];
    return psb_call_sendrecv(&send, &recv);
}

static int connection_traverse(psb_connection_t *self, visitproc visit,
                               void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->worker);
    Py_VISIT(self->keep);
    Py_VISIT(self->objects);
    Py_VISIT(self->heads);
    return 0;
}

static int connection_clear(psb_connection_t *self)
{
    self->core = NULL;
    Py_CLEAR(self->keep);
    Py_CLEAR(self->objects);
    Py_CLEAR(self->heads);
    Py_CLEAR(self->worker);
    return 0;
}

static void connection_dealloc(psb_connection_t *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    connection_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *connection_set_objects(psb_connection_t *self,
                                        PyObject *const *args,
                                        Py_ssize_t n_args)
{
    if (psb_object_bind(self, args, n_args) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *connection_get_state(psb_connection_t *self, void *closure)
{
    bool alive = self->core && !self->closed && self->worker->core;

    (void)closure;
    return PyLong_FromLong(alive ? self->worker->api->conn_state(self->core)
                                 : PSC_CONN_CLOSED);
}

static PyGetSetDef connection_getset[] = {
    {"_state", (getter)connection_get_state, NULL,
     "psc_conn_state_t; CLOSED once the core's connection is gone, or the\n"
     "communicator is closed.",
     NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMemberDef connection_members[] = {
    {"_objects", T_OBJECT, offsetof(psb_connection_t, objects), READONLY,
     "The Objects that _set_objects has set, or None."},
    {"_worker", T_OBJECT, offsetof(psb_connection_t, worker), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyMethodDef connection_methods[] = {
    {"send", PSB_FUNCTION(connection_send), PSB_FAST,
     "send($self, buf, tag=0, timeout=None)\n--\n\n"
     "Send one message: a bytes-like object, or a list of contiguous ones.\n"
     "An array that is not contiguous is sent as a copy. Returns when\n"
     "buf may be changed again. After a Timeout (seconds) nothing was sent,\n"
     "unless the exception has a `request`: the message is then in flight,\n"
     "and the request still owns buf."},
    {"isend", PSB_FUNCTION(connection_isend), PSB_FAST,
     "isend($self, buf, tag=0, lend=False)\n--\n\n"
     "Like send, but returns a Request at once; buf must not be changed\n"
     "until the request completes. With lend the receiver reads the memory\n"
     "of buf in place, if buf is in the session's pool (empty, allocate) and\n"
     "the transport supports it: the request completes when the receiver has\n"
     "released its last view, and an array is read-only until then.\n"
     "Otherwise buf is sent like any other."},
    {"ssend", PSB_FUNCTION(connection_ssend), PSB_FAST,
     "ssend($self, buf, tag=0, timeout=None)\n--\n\n"
     "Like send, but synchronous: returns only after a receive of the peer\n"
     "has matched the message, even an empty one. The message is then in the\n"
     "receive's buffer, or on its way there."},
    {"issend", PSB_FUNCTION(connection_issend), PSB_FAST,
     "issend($self, buf, tag=0, lend=False)\n--\n\n"
     "Like ssend, but returns a Request at once; see isend."},
    {"recv", PSB_FUNCTION(connection_recv), PSB_FAST,
     "recv($self, buf=None, tag=-1, timeout=None)\n--\n\n"
     "Receive one message. With buf (a writable bytes-like object or a list\n"
     "of them) the message is stored there, and its Status is returned;\n"
     "without buf a new bytearray is returned. Raises Truncated if the\n"
     "message was longer than buf; the message is then lost. After a Timeout\n"
     "no message was taken, unless the exception has a `request`: it is then\n"
     "in flight."},
    {"irecv", PSB_FUNCTION(connection_irecv), PSB_FAST,
     "irecv($self, buf=None, tag=-1)\n--\n\n"
     "Like recv, but returns a Request at once; buf must not be used until\n"
     "the request completes."},
    {"send_init", PSB_FUNCTION(connection_send_init), PSB_FAST,
     "send_init($self, buf, tag=0)\n--\n\n"
     "A PersistentRequest: each start() sends the current contents of buf,\n"
     "as isend would."},
    {"recv_init", PSB_FUNCTION(connection_recv_init), PSB_FAST,
     "recv_init($self, buf, tag=-1)\n--\n\n"
     "A PersistentRequest: each start() receives into buf, as irecv would."},
    {"recv_status", PSB_FUNCTION(connection_recv_status), PSB_FAST,
     "recv_status($self, tag=-1, timeout=None)\n--\n\n"
     "Receive into new memory; returns (bytearray, Status)."},
    {"recv_view", PSB_FUNCTION(connection_recv_view), PSB_FAST,
     "recv_view($self, tag=-1, timeout=None, dtype=None, shape=None)\n--\n\n"
     "Receive one message as a read-only numpy array, by default of bytes\n"
     "and of one dimension; ValueError if the message has another number of\n"
     "bytes than dtype and shape; the message then stays in the queue. The\n"
     "array shows the sender's memory if the message was lent, else a copy.\n"
     "The loan ends when nothing refers to that memory any more. Until then\n"
     "the array does not change, even if the peer or the session has ended,\n"
     "unless the sender writes to memory that it has lent. In a child after\n"
     "a fork, that memory is kept only as long as the parent has the array."},
    {"sendrecv", PSB_FUNCTION(connection_sendrecv), PSB_FAST,
     "sendrecv($self, sendbuf, recvbuf=None, sendtag=0, recvtag=-1,"
     " timeout=None)\n--\n\n"
     "Send and receive at the same time; returns what recv returns."},
    {"probe", PSB_FUNCTION(connection_probe), PSB_FAST,
     "probe($self, tag=-1, timeout=None)\n--\n\n"
     "Wait for a message and return its Status, without receiving it."},
    {"iprobe", PSB_FUNCTION(connection_iprobe), PSB_FAST,
     "iprobe($self, tag=-1)\n--\n\n"
     "Returns the Status of the message that recv would return, or None if\n"
     "there is none."},
    {"mprobe", PSB_FUNCTION(connection_mprobe), PSB_FAST,
     "mprobe($self, tag=-1, timeout=None)\n--\n\n"
     "Wait for a message and take it off the queue: returns a Message, which\n"
     "no other receive can match."},
    {"improbe", PSB_FUNCTION(connection_improbe), PSB_FAST,
     "improbe($self, tag=-1)\n--\n\n"
     "Like mprobe if a message has arrived; otherwise returns None."},
    {"put", PSB_FUNCTION(psb_connection_put), PSB_FAST,
     "put($self, buf, rkey, offset=0)\n--\n\n"
     "Write buf at `offset` (bytes) of the peer's memory region; returns\n"
     "when the data is visible there."},
    {"get", PSB_FUNCTION(psb_connection_get), PSB_FAST,
     "get($self, buf, rkey, offset=0)\n--\n\n"
     "Fill buf from `offset` (bytes) of the peer's memory region."},
    {"am_send", PSB_FUNCTION(psb_connection_am_send), PSB_FAST,
     "am_send($self, id, header, payload)\n--\n\n"
     "Have the peer call its handler for this id (on_message) with header (a\n"
     "few bytes) and payload (any length)."},
    {"_bind", PSB_FUNCTION(connection_bind), METH_METHOD | PSB_FAST,
     "_bind($self, worker, conn_address, context, keep=None)\n--\n\n"
     "Bind this object to the core's connection at that address, which is\n"
     "valid as long as the object `keep` exists."},
    {"send_obj", PSB_FUNCTION(psb_object_send), PSB_FAST,
     "send_obj($self, obj, tag=0, timeout=None, lend=False)\n--\n\n"
     "Send any object that can be pickled; only recv_obj and irecv_obj\n"
     "receive it. Returns when the object may be changed again: at once, or,\n"
     "if it has long buffers (PSP_PARCEL_ZERO_COPY), which are sent from\n"
     "where they are, once these have been sent. With lend the receiver\n"
     "reads long buffers in the session's pool in place, read-only, and the\n"
     "call returns when the receiver has dropped its last reference to them.\n"
     "Raises the exceptions of pickling. After a Timeout (seconds) nothing\n"
     "was sent, unless the exception has a `request`: the object is then in\n"
     "flight."},
    {"recv_obj", PSB_FUNCTION(psb_object_recv), PSB_FAST,
     "recv_obj($self, tag=-1, timeout=None)\n--\n\n"
     "Receive one object. Its long buffers are memory of the session's pool.\n"
     "Raises ParcelError if the object cannot be reconstructed locally; it\n"
     "is then lost. Raises ProtocolError if the peer has sent something\n"
     "else. After a Timeout (seconds) nothing was taken, unless the\n"
     "exception has a `request`: the object is then in flight."},
    {"_set_objects", PSB_FUNCTION(connection_set_objects), METH_FASTCALL,
     "_set_objects($self, objects, heads, pickles, /)\n--\n\n"
     "Set the Objects and the connection `heads` that send_obj and recv_obj\n"
     "use; `pickles` tells whether the pickle module is enough for objects\n"
     "without buffers."},
    {"_recv_memory", PSB_FUNCTION(connection__recv_memory), PSB_FAST,
     "_recv_memory($self, tag=-1)\n--\n\n"
     "Receive one message into memory of the pool, or map the memory of its\n"
     "sender."},
    {"_irecv_memory", PSB_FUNCTION(connection__irecv_memory), PSB_FAST,
     "_irecv_memory($self, tag=-1)\n--\n\n"
     "A Request for one message in memory of the pool, or of its sender."},
    {"_offer", PSB_FUNCTION(psb_connection_offer), METH_O,
     "_offer($self, buffers, /)\n--\n\n"
     "Offer buffers to the peer: a Request, which completes when the peer has\n"
     "fetched them, and the bytes of the offer. Raises Unsupported if the\n"
     "connection is not up yet, or for too many buffers."},
    {"_fetch", PSB_FUNCTION(psb_connection_fetch), PSB_FAST,
     "_fetch($self, offer, buffers)\n--\n\n"
     "A Request for the buffers that the peer has offered; its result is the\n"
     "list `buffers`, which it fills. Raises ProtocolError if `offer` is no\n"
     "offer of buffers of these lengths. Without buffers, the offer is\n"
     "refused: the requests of both sides end with NoMemory."},
    {"_begin_open", PSB_FUNCTION(connection_begin_open), METH_NOARGS,
     "_begin_open($self)\n--\n\n"
     "Called at the first use of the connection; must not block."},
    {"_exception", PSB_FUNCTION(connection_exception), METH_FASTCALL,
     "_exception($self, status, nbytes, /)\n--\n\n"
     "The exception for a status of the core."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot connection_slots[] = {
    {Py_tp_doc, "Messages with one peer."}, {Py_tp_dealloc, connection_dealloc},
    {Py_tp_traverse, connection_traverse},  {Py_tp_clear, connection_clear},
    {Py_tp_methods, connection_methods},    {Py_tp_getset, connection_getset},
    {Py_tp_members, connection_members},    {0, NULL}};

PyType_Spec psb_connection_spec = {
    .name = "pscompy.api.c._binding.Connection",
    .basicsize = sizeof(psb_connection_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = connection_slots,
};
