/* Methods of Connection beside messages: put and get (access to the peer's
 * memory regions), _offer (of buffers to the peer), _fetch (of the buffers that
 * the peer has offered), and am_send (an active message to a handler of the
 * peer). */
#include "connection.h"

/* Runs the call with the bytes of `object` (a remote key, an offer, or a
 * header) as call->blob. `what` names the object in the TypeError. If `keep` is
 * given, the operation keeps it alive. */
static PyObject *access_run(psb_connection_t *self, psb_call_t *call,
                            PyObject *object, const char *what, PyObject *keep)
{
    PyObject *result;
    Py_buffer blob;

    if (psb_connection_address(self, call) < 0 ||
        psb_bytes_get(&blob, object, what) < 0)
        return NULL;
    call->blob = &blob;
    call->op.memory = Py_XNewRef(keep);
    result = psb_call_run(call);
    PyBuffer_Release(&blob);
    return result;
}

static PyObject *access_region(psb_connection_t *self,
                               const psb_signature_t *signature,
                               psb_kind_t kind, PyObject *const *args,
                               Py_ssize_t n_args, PyObject *kwnames)
{
    PyObject *given[3];
    psb_call_t call;

    psb_call_begin(&call, kind);
    call.offset = 0;
    if (psb_args_parse(signature, args, n_args, kwnames, given) < 0 ||
        psb_arg_u64(given[2], "the offset", UINT64_MAX, &call.offset) < 0)
        return NULL;
    call.buf = given[0];
    return access_run(self, &call, given[1], "the rkey", NULL);
}

PyObject *psb_connection_put(psb_connection_t *self, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "put", 2, 3, {"buf", "rkey", "offset"}};

    return access_region(self, &signature, PSB_PUT, args, n_args, kwnames);
}

PyObject *psb_connection_get(psb_connection_t *self, PyObject *const *args,
                             Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "get", 2, 3, {"buf", "rkey", "offset"}};

    return access_region(self, &signature, PSB_GET, args, n_args, kwnames);
}

PyObject *psb_connection_offer(psb_connection_t *self, PyObject *buffers)
{
    Py_ssize_t n = PySequence_Size(buffers);
    PyObject *request, *result = NULL;
    psb_call_t call;
    size_t len;

    psb_call_begin(&call, PSB_OFFER);
    call.post = true;
    call.buf = buffers;
    if (n < 0 || psb_connection_address(self, &call) < 0)
        return NULL;
    len = (size_t)n * PSC_OFFER_PART_MAX;
    call.offer_len = &len;
    call.offer = PyMem_Malloc(len);
    if (!call.offer)
        return PyErr_NoMemory();
    request = psb_call_run(&call);
    if (request)
        result = Py_BuildValue("(Oy#)", request, call.offer, (Py_ssize_t)len);
    Py_XDECREF(request);
    PyMem_Free(call.offer);
    return result;
}

PyObject *psb_connection_fetch(psb_connection_t *self, PyObject *const *args,
                               Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "_fetch", 2, 2, {"offer", "buffers"}};
    PyObject *given[2];
    psb_call_t call;

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0)
        return NULL;
    psb_call_begin(&call, PSB_FETCH);
    call.post = true;
    call.buf = given[1];
    return access_run(self, &call, given[0], "the offer", given[1]);
}

PyObject *psb_connection_am_send(psb_connection_t *self, PyObject *const *args,
                                 Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "am_send", 3, 3, {"id", "header", "payload"}};
    PyObject *given[3], *keep, *result;
    psb_call_t call;
    uint64_t id = 0;

    if (psb_args_parse(&signature, args, n_args, kwnames, given) < 0 ||
        psb_arg_u64(given[0], "the id", PSC_TAG_MAX, &id) < 0)
        return NULL;
    psb_call_begin(&call, PSB_AM);
    call.id = (uint32_t)id;
    call.buf = given[2];
    /* The message may still be sent after a signal has interrupted this call,
     * so the operation keeps the header's memory. */
    keep = PyBytes_Check(given[1]) ? Py_NewRef(given[1])
                                   : PyMemoryView_FromObject(given[1]);
    /* an object without a buffer is refused by access_run() below */
    PyErr_Clear();
    result = access_run(self, &call, given[1], "the header", keep);
    Py_XDECREF(keep);
    return result;
}
