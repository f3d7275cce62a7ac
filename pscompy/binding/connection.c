/* The base type Connection: messages with one peer. What is Python's (state,
 * explain, open, close) is in connection.py. */
#include "binding.h"

/* ---- the core's connection ---- */

int hot_connection_address(hot_connection_t *self, hot_call_t *call)
{
    if (HOT_UNLIKELY(!self->worker)) {
        PyErr_SetString(PyExc_TypeError,
                        "this connection belongs to no session: connections "
                        "come from connect(), accept() or a World");
        return -1;
    }
    call->worker = self->worker;
    call->connection = self;
    call->origin = (PyObject *)self;
    call->context = self->context;
    return 0;
}

psc_conn_t *hot_connection_enter(hot_connection_t *self)
{
    const psc_api_t *api = self->worker->api;
    PyObject *begun;

    if (HOT_UNLIKELY(self->core &&
                     api->conn_state(self->core) == PSC_CONN_LAZY)) {
        begun = PyObject_CallMethod((PyObject *)self, "_begin_open", NULL);
        if (!begun)
            return NULL;
        Py_DECREF(begun);
    }
    if (HOT_UNLIKELY(!self->core))
        hot_raise(self->worker->state, (PyObject *)self, PSC_ERR_CLOSED, 0);
    return self->core;
}

static PyObject *connection_bind(hot_connection_t *self, PyTypeObject *type,
                                 PyObject *const *args, Py_ssize_t n_args,
                                 PyObject *kwnames)
{
    static const hot_signature_t signature = {
        "_bind", 3, 4, {"worker", "conn_address", "context", "keep"}};
    hot_state_t *state = PyType_GetModuleState(type);
    uint64_t address = 0, context = 0;
    PyObject *given[4];

    if (hot_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        hot_arg_u64(given[1], "conn_address", UINTPTR_MAX, &address) < 0 ||
        hot_arg_u64(given[2], "context", UINT16_MAX, &context) < 0)
        return NULL;
    if (!Py_IS_TYPE(given[0], state->worker_type)) {
        PyErr_SetString(PyExc_TypeError, "_bind() needs a Worker");
        return NULL;
    }
    self->core = (psc_conn_t *)(uintptr_t)address;
    self->context = (uint32_t)context;
    Py_INCREF(given[0]);
    Py_XSETREF(self->worker, (hot_worker_t *)given[0]);
    Py_XINCREF(given[3]);
    Py_XSETREF(self->keep, given[3]);
    Py_RETURN_NONE;
}

/* For connections that come up by themselves. */
static PyObject *connection_begin_open(hot_connection_t *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    Py_RETURN_NONE;
}

static PyObject *connection_exception(hot_connection_t *self,
                                      PyObject *const *args, Py_ssize_t n_args)
{
    hot_call_t call;

    if (hot_connection_address(self, &call) < 0)
        return NULL;
    return hot_default_exception(self->worker->state, args, n_args);
}

/* ---- messages ---- */

static PyObject *connection_run(hot_connection_t *self, const hot_verb_t *verb,
                                hot_runner_t run, PyObject *const *args,
                                Py_ssize_t n_args, PyObject *kwnames)
{
    PyObject *no_peer;
    hot_call_t call;

    if (hot_verb_parse(verb, args, n_args, kwnames, &call, &no_peer) < 0 ||
        hot_connection_address(self, &call) < 0)
        return NULL;
    return run(&call);
}

#define CONNECTION_VERB(name, run, ...)                                        \
    static PyObject *connection_##name(hot_connection_t *self,                 \
                                       PyObject *const *args,                  \
                                       Py_ssize_t n_args, PyObject *kwnames)   \
    {                                                                          \
        static const hot_verb_t verb = __VA_ARGS__;                            \
                                                                               \
        return connection_run(self, &verb, run, args, n_args, kwnames);        \
    }

CONNECTION_VERB(send, hot_call_run,
                {{"send", 1, 3, {"buf", "tag", "timeout"}},
                 "btd", HOT_SEND, false})
CONNECTION_VERB(isend, hot_call_run,
                {{"isend", 1, 3, {"buf", "tag", "lend"}},
                 "btl", HOT_SEND, true})
CONNECTION_VERB(recv, hot_call_run,
                {{"recv", 0, 3, {"buf", "tag", "timeout"}},
                 "btd", HOT_RECV_INTO, false})
CONNECTION_VERB(irecv, hot_call_run,
                {{"irecv", 0, 2, {"buf", "tag"}}, "bt", HOT_RECV_INTO, true})
CONNECTION_VERB(send_init, hot_call_init,
                {{"send_init", 1, 2, {"buf", "tag"}}, "bt", HOT_SEND, true})
CONNECTION_VERB(recv_init, hot_call_init,
                {{"recv_init", 1, 2, {"buf", "tag"}},
                 "bt", HOT_RECV_INTO, true})
CONNECTION_VERB(recv_status, hot_call_run,
                {{"recv_status", 0, 2, {"tag", "timeout"}},
                 "td", HOT_RECV_STATUS, false})
CONNECTION_VERB(recv_view, hot_call_run,
                {{"recv_view", 0, 2, {"tag", "timeout"}},
                 "td", HOT_RECV_VIEW, false})
CONNECTION_VERB(recv_memory, hot_call_run,
                {{"_recv_memory", 0, 1, {"tag"}}, "t", HOT_RECV_MEMORY, false})
CONNECTION_VERB(irecv_memory, hot_call_run,
                {{"_irecv_memory", 0, 1, {"tag"}}, "t", HOT_RECV_MEMORY, true})
CONNECTION_VERB(probe, hot_call_run,
                {{"probe", 0, 2, {"tag", "timeout"}}, "td", HOT_PROBE, false})
CONNECTION_VERB(iprobe, hot_call_iprobe,
                {{"iprobe", 0, 1, {"tag"}}, "t", HOT_PROBE, false})
CONNECTION_VERB(mprobe, hot_call_run,
                {{"mprobe", 0, 2, {"tag", "timeout"}}, "td", HOT_MATCH, false})
CONNECTION_VERB(improbe, hot_call_improbe,
                {{"improbe", 0, 1, {"tag"}}, "t", HOT_MATCH, false})

static PyObject *connection_sendrecv(hot_connection_t *self,
                                     PyObject *const *args, Py_ssize_t n_args,
                                     PyObject *kwnames)
{
    static const hot_signature_t signature = {
        "sendrecv", 1, 5,
        {"sendbuf", "recvbuf", "sendtag", "recvtag", "timeout"}};
    hot_call_t send = {.kind = HOT_SEND, .deadline = PSC_FOREVER};
    hot_call_t recv = {.tag = PSC_ANY_TAG};
    PyObject *given[5];

    if (hot_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        hot_arg_tag(given[2], false, &send.tag) < 0 ||
        hot_arg_tag(given[3], true, &recv.tag) < 0 ||
        hot_arg_deadline(given[4], &send.deadline) < 0 ||
        hot_connection_address(self, &send) < 0 ||
        hot_connection_address(self, &recv) < 0)
        return NULL;
    send.buf = given[0];
    hot_verb_receive(&recv, given[1]);
    return hot_call_sendrecv(&send, &recv);
}

/* ---- remote memory and active messages ---- */

/* Runs the call with the bytes of `object` as its blob. */
static PyObject *connection_run_blob(hot_connection_t *self, hot_call_t *call,
                                     PyObject *object, const char *what)
{
    PyObject *result;
    Py_buffer blob;

    call->deadline = PSC_FOREVER;
    if (hot_connection_address(self, call) < 0 ||
        hot_bytes_get(&blob, object, what) < 0)
        return NULL;
    call->blob = &blob;
    result = hot_call_run(call);
    PyBuffer_Release(&blob);
    return result;
}

static PyObject *connection_access(hot_connection_t *self,
                                   const hot_signature_t *signature,
                                   hot_kind_t kind, PyObject *const *args,
                                   Py_ssize_t n_args, PyObject *kwnames)
{
    hot_call_t call = {.kind = kind};
    PyObject *given[3];

    if (hot_args_parse(signature, args, n_args, kwnames, given) < 0 ||
        hot_arg_u64(given[2], "the offset", UINT64_MAX, &call.offset) < 0)
        return NULL;
    call.buf = given[0];
    return connection_run_blob(self, &call, given[1], "the rkey");
}

static PyObject *connection_put(hot_connection_t *self, PyObject *const *args,
                                Py_ssize_t n_args, PyObject *kwnames)
{
    static const hot_signature_t signature = {
        "put", 2, 3, {"buf", "rkey", "offset"}};

    return connection_access(self, &signature, HOT_PUT, args, n_args, kwnames);
}

static PyObject *connection_get(hot_connection_t *self, PyObject *const *args,
                                Py_ssize_t n_args, PyObject *kwnames)
{
    static const hot_signature_t signature = {
        "get", 2, 3, {"buf", "rkey", "offset"}};

    return connection_access(self, &signature, HOT_GET, args, n_args, kwnames);
}

static PyObject *connection_am_send(hot_connection_t *self,
                                    PyObject *const *args, Py_ssize_t n_args,
                                    PyObject *kwnames)
{
    static const hot_signature_t signature = {
        "am_send", 3, 3, {"id", "header", "payload"}};
    hot_call_t call = {.kind = HOT_AM};
    PyObject *given[3], *result;
    uint64_t id = 0;

    if (hot_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        hot_arg_u64(given[0], "the id", PSC_TAG_MAX, &id) < 0)
        return NULL;
    call.id = (uint32_t)id;
    call.buf = given[2];
    /* The message may go on after this call was interrupted. */
    call.keep = PyBytes_Check(given[1]) ? Py_NewRef(given[1])
                                        : PyMemoryView_FromObject(given[1]);
    PyErr_Clear(); /* what has no buffer is refused below */
    result = connection_run_blob(self, &call, given[1], "the header");
    Py_XDECREF(call.keep);
    return result;
}

/* ---- the type ---- */

static int connection_traverse(hot_connection_t *self, visitproc visit,
                               void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->worker);
    Py_VISIT(self->keep);
    Py_VISIT(self->objects);
    Py_VISIT(self->heads);
    return 0;
}

static int connection_clear(hot_connection_t *self)
{
    self->core = NULL;
    Py_CLEAR(self->keep);
    Py_CLEAR(self->objects);
    Py_CLEAR(self->heads);
    Py_CLEAR(self->worker);
    return 0;
}

static void connection_dealloc(hot_connection_t *self)
{
    PyTypeObject *type = Py_TYPE(self);

    PyObject_GC_UnTrack(self);
    connection_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *connection_get_worker(hot_connection_t *self, void *closure)
{
    PyObject *worker = self->worker ? (PyObject *)self->worker : Py_None;

    (void)closure;
    Py_INCREF(worker);
    return worker;
}

static PyObject *connection_set_objects(hot_connection_t *self,
                                        PyObject *const *args,
                                        Py_ssize_t n_args)
{
    if (hot_object_bind(self, args, n_args) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *connection_get_objects(hot_connection_t *self, void *closure)
{
    PyObject *objects = self->objects ? self->objects : Py_None;

    (void)closure;
    Py_INCREF(objects);
    return objects;
}

static PyObject *connection_get_state(hot_connection_t *self, void *closure)
{
    bool alive = self->core && self->worker->core;

    (void)closure;
    return PyLong_FromLong(alive ? self->worker->api->conn_state(self->core)
                                 : PSC_CONN_CLOSED);
}

static PyGetSetDef connection_getset[] = {
    {"_objects", (getter)connection_get_objects, NULL,
     "What _set_objects was given, None before.", NULL},
    {"_worker", (getter)connection_get_worker, NULL, NULL, NULL},
    {"_state", (getter)connection_get_state, NULL,
     "psc_conn_state_t; CLOSED once the core's connection is gone.", NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef connection_methods[] = {
    {"send", HOT_FUNCTION(connection_send), HOT_FAST,
     "send($self, buf, tag=0, timeout=None)\n--\n\n"
     "Send one message: a bytes-like object, or a list of them. Returns when\n"
     "buf may be changed again. Timeout (seconds): nothing was sent, unless\n"
     "its .request says that it is under way and still owns buf."},
    {"isend", HOT_FUNCTION(connection_isend), HOT_FAST,
     "isend($self, buf, tag=0, lend=False)\n--\n\n"
     "Like send, but returns a Request at once; until it has ended buf must\n"
     "not be changed. With lend the receiver reads buf where it is, if buf is\n"
     "of the session's pool (empty, allocate) and the transport can do that:\n"
     "the request ends when the last view there has gone, and an array is\n"
     "read-only until then. Else it is sent like any other."},
    {"recv", HOT_FUNCTION(connection_recv), HOT_FAST,
     "recv($self, buf=None, tag=-1, timeout=None)\n--\n\n"
     "Receive one message, into buf (a writable bytes-like object or a list\n"
     "of them), giving its Status, or without buf as a new bytearray.\n"
     "Truncated: it was longer than buf, and is gone. Timeout: nothing was\n"
     "taken, unless its .request says that it is under way."},
    {"irecv", HOT_FUNCTION(connection_irecv), HOT_FAST,
     "irecv($self, buf=None, tag=-1)\n--\n\n"
     "Like recv, but returns a Request at once; until it has ended buf\n"
     "belongs to it."},
    {"send_init", HOT_FUNCTION(connection_send_init), HOT_FAST,
     "send_init($self, buf, tag=0)\n--\n\n"
     "A PersistentRequest: its start() sends buf as isend would, as it is\n"
     "then, any number of times."},
    {"recv_init", HOT_FUNCTION(connection_recv_init), HOT_FAST,
     "recv_init($self, buf, tag=-1)\n--\n\n"
     "A PersistentRequest: its start() receives into buf as irecv would, any\n"
     "number of times."},
    {"recv_status", HOT_FUNCTION(connection_recv_status), HOT_FAST,
     "recv_status($self, tag=-1, timeout=None)\n--\n\n"
     "Receive into new memory: (bytearray, Status)."},
    {"recv_view", HOT_FUNCTION(connection_recv_view), HOT_FAST,
     "recv_view($self, tag=-1, timeout=None)\n--\n\n"
     "Receive one message as a read-only numpy array of bytes: of the memory\n"
     "of its sender, if that has lent it, else of a copy. The loan ends when\n"
     "nothing refers to that memory any more; what the array shows does not\n"
     "change, also when the peer or the session has gone."},
    {"sendrecv", HOT_FUNCTION(connection_sendrecv), HOT_FAST,
     "sendrecv($self, sendbuf, recvbuf=None, sendtag=0, recvtag=-1,"
     " timeout=None)\n--\n\n"
     "Send and receive at the same time; gives what recv gives."},
    {"probe", HOT_FUNCTION(connection_probe), HOT_FAST,
     "probe($self, tag=-1, timeout=None)\n--\n\n"
     "Wait for a message and give its Status; it stays where it is."},
    {"iprobe", HOT_FUNCTION(connection_iprobe), HOT_FAST,
     "iprobe($self, tag=-1)\n--\n\n"
     "The Status of the message that recv would get, or None."},
    {"mprobe", HOT_FUNCTION(connection_mprobe), HOT_FAST,
     "mprobe($self, tag=-1, timeout=None)\n--\n\n"
     "Wait for a message and take it: a Message, which nobody else gets."},
    {"improbe", HOT_FUNCTION(connection_improbe), HOT_FAST,
     "improbe($self, tag=-1)\n--\n\n"
     "Like mprobe if there is a message; else None."},
    {"put", HOT_FUNCTION(connection_put), HOT_FAST,
     "put($self, buf, rkey, offset=0)\n--\n\n"
     "Write buf at `offset` (bytes) of the peer's memory region; returns when\n"
     "it is visible there."},
    {"get", HOT_FUNCTION(connection_get), HOT_FAST,
     "get($self, buf, rkey, offset=0)\n--\n\n"
     "Fill buf from `offset` (bytes) of the peer's memory region."},
    {"am_send", HOT_FUNCTION(connection_am_send), HOT_FAST,
     "am_send($self, id, header, payload)\n--\n\n"
     "Have the peer's handler of this id (on_message) called with header (a\n"
     "few bytes) and payload (any length)."},
    {"_bind", HOT_FUNCTION(connection_bind), METH_METHOD | HOT_FAST,
     "_bind($self, worker, conn_address, context, keep=None)\n--\n\n"
     "Tie it to the core's connection at that address, which lives as long as\n"
     "the object keep."},
    {"send_obj", HOT_FUNCTION(hot_object_send), HOT_FAST,
     "send_obj($self, obj, tag=0, timeout=None, lend=False)\n--\n\n"
     "Send any object that can be pickled; only recv_obj and its like receive\n"
     "it. Returns when it may be changed again: at once, or for long buffers\n"
     "(PSP_PARCEL_ZERO_COPY), which are sent from where they are, when they\n"
     "have left. With lend the receiver gets those of the session's pool as\n"
     "they are, read-only, and it returns when the last reference to them\n"
     "there has died. Raises what pickling the object raises. Timeout\n"
     "(seconds): nothing was sent, unless its .request says that it is under\n"
     "way."},
    {"recv_obj", HOT_FUNCTION(hot_object_recv), HOT_FAST,
     "recv_obj($self, tag=-1, timeout=None)\n--\n\n"
     "Receive one object. Its long buffers are memory of the session's pool.\n"
     "ParcelError: it cannot be put together here, and is gone.\n"
     "ProtocolError: the peer has sent something else. Timeout (seconds):\n"
     "nothing was taken, unless its .request says that it is under way."},
    {"_set_objects", HOT_FUNCTION(connection_set_objects), METH_FASTCALL,
     "_set_objects($self, objects, heads, pickles, /)\n--\n\n"
     "What send_obj and recv_obj use, and whether plain pickle does."},
    {"_recv_memory", HOT_FUNCTION(connection_recv_memory), HOT_FAST,
     "_recv_memory($self, tag=-1)\n--\n\n"
     "One message as bytes of the pool, or of its sender's."},
    {"_irecv_memory", HOT_FUNCTION(connection_irecv_memory), HOT_FAST,
     "_irecv_memory($self, tag=-1)\n--\n\n"
     "A Request of one message as bytes of the pool, or of its sender's."},
    {"_begin_open", HOT_FUNCTION(connection_begin_open), METH_NOARGS,
     "_begin_open($self)\n--\n\nCalled on first use; must not block."},
    {"_exception", HOT_FUNCTION(connection_exception), METH_FASTCALL,
     "_exception($self, status, nbytes, /)\n--\n\n"
     "The exception for a status of the core."},
    {NULL, NULL, 0, NULL}};

static PyType_Slot connection_slots[] = {
    {Py_tp_doc, "Messages with one peer."},
    {Py_tp_dealloc, connection_dealloc},
    {Py_tp_traverse, connection_traverse},
    {Py_tp_clear, connection_clear},
    {Py_tp_methods, connection_methods},
    {Py_tp_getset, connection_getset},
    {0, NULL}};

PyType_Spec hot_connection_spec = {
    .name = "pscompy.binding._binding.Connection",
    .basicsize = sizeof(hot_connection_t),
    .flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = connection_slots,
};
