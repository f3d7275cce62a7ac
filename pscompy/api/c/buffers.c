/* Gets the memory of messages through the buffer protocol, and raises the
 * errors that say what to do about an object that cannot be sent or received
 * into. */
#include "buffers.h"
#include "memory.h"

/* PyBUF_FORMAT asks for the format of the elements, because object arrays must
 * be refused: their memory holds addresses. */
#define BUFFER_FLAGS (PyBUF_STRIDES | PyBUF_FORMAT)

/* ---- errors ---- */

static void buffer_refuse_type(PyObject *object, bool writable)
{
    const char *type = Py_TYPE(object)->tp_name;

    if (writable)
        PyErr_Format(PyExc_TypeError,
                     "a message is received into a writable buffer (bytearray, "
                     "array, numpy array) or a list of them, not %.100s: "
                     "without one, recv(source=...) takes a message of any "
                     "length, and recv_obj() an object",
                     type);
    else if (PyUnicode_Check(object))
        PyErr_SetString(PyExc_TypeError,
                        "a message needs a bytes-like object, not str: "
                        "encode it first (text.encode())");
    else
        PyErr_Format(PyExc_TypeError,
                     "a message needs a bytes-like object (bytes, bytearray, "
                     "array, numpy array) or a list of them, not %.100s: "
                     "send_obj() sends any object",
                     type);
}

/* Raises an exception that explains why the buffer of `object` was refused.
 * `raised` is the exception that its exporter has raised. */
static void buffer_explain(PyObject *object, bool writable, psb_raised_t raised)
{
    const char *type = Py_TYPE(object)->tp_name;
    Py_buffer any;

    if (PyObject_GetBuffer(object, &any, PyBUF_FULL_RO) < 0) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError,
                     "%.100s does not give its memory (%S): view it as plain "
                     "numbers, for example array.view('i8')",
                     type, raised.value ? raised.value : Py_None);
        return;
    }
    if (writable && any.readonly)
        PyErr_Format(PyExc_BufferError,
                     "cannot receive into this %.100s, it is read-only: "
                     "use a bytearray or a writable array",
                     type);
    else
        PyErr_Format(PyExc_BufferError,
                     "this %.100s is not C-contiguous: only send and receive "
                     "take such memory, and not in a list; copy it first, for "
                     "example with numpy.ascontiguousarray()",
                     type);
    PyBuffer_Release(&any);
}

/* Returns true if `format` (of a Py_buffer) has elements that are or contain
 * Python objects ('O'). Names of fields stand between colons and may hold any
 * letter. */
static bool buffer_has_objects(const char *format)
{
    bool name = false;

    for (; format && *format; format++) {
        if (*format == ':')
            name = !name;
        else if (*format == 'O' && !name)
            return true;
    }
    return false;
}

/* ---- one object ---- */

/* Returns true if the memory is C-contiguous. For the usual buffer, which has
 * one dimension, this test is faster than Python's function. */
static bool buffer_contiguous(const Py_buffer *view)
{
    if (view->ndim == 1 && view->strides && !view->suboffsets &&
        view->strides[0] == view->itemsize)
        return true;
    return PyBuffer_IsContiguous(view, 'C') != 0;
}

/* Replaces a ValueError or BufferError, which the object's exporter has raised,
 * by an exception that says why and what to do. */
static void buffer_fail(PyObject *object, psb_needs_t needs)
{
    psb_raised_t raised;

    if (!PyErr_ExceptionMatches(PyExc_ValueError) &&
        !PyErr_ExceptionMatches(PyExc_BufferError))
        return;
    raised = psb_raised_take();
    buffer_explain(object, needs.writable, raised);
    Py_XDECREF(raised.type);
    Py_XDECREF(raised.value);
    Py_XDECREF(raised.traceback);
}

static int buffer_get(Py_buffer *view, PyObject *object, psb_needs_t needs)
{
    if (PSB_UNLIKELY(!PyObject_CheckBuffer(object))) {
        buffer_refuse_type(object, needs.writable);
        return -1;
    }
    if (PSB_UNLIKELY(PyObject_GetBuffer(object, view,
                                        needs.writable
                                            ? BUFFER_FLAGS | PyBUF_WRITABLE
                                            : BUFFER_FLAGS) < 0)) {
        buffer_fail(object, needs);
        return -1;
    }
    if (PSB_UNLIKELY(buffer_has_objects(view->format))) {
        PyErr_Format(PyExc_TypeError,
                     "this %.100s holds Python objects, which mean nothing to "
                     "another process: send_obj() sends them",
                     Py_TYPE(object)->tp_name);
        PyBuffer_Release(view);
        return -1;
    }
    if (PSB_UNLIKELY(needs.contiguous && !buffer_contiguous(view))) {
        buffer_explain(object, false, (psb_raised_t){0});
        PyBuffer_Release(view);
        return -1;
    }
    return 0;
}

int psb_bytes_get(Py_buffer *view, PyObject *object, const char *what)
{
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) == 0)
        return 0;
    if (PyErr_ExceptionMatches(PyExc_TypeError))
        PyErr_Format(PyExc_TypeError,
                     "%s must be a bytes-like object, not %.100s", what,
                     Py_TYPE(object)->tp_name);
    return -1;
}

/* ---- a message ---- */

static int buffers_allocate(psb_buffers_t *buffers, size_t n)
{
    psb_views_t *views = PyMem_Calloc(
        1, sizeof *views + n * (sizeof *views->view + sizeof *views->pieces));

    if (!views) {
        PyErr_NoMemory();
        return -1;
    }
    views->view = (Py_buffer *)(void *)&views[1];
    views->pieces = (psc_iov_t *)(void *)&views->view[n];
    buffers->keeper = (uintptr_t)views;
    return 0;
}

static void buffers_count(psb_views_t *views)
{
    const Py_buffer *view = &views->view[views->n];

    views->pieces[views->n++] = (psc_iov_t){view->buf, (size_t)view->len};
    views->nbytes += (uint64_t)view->len;
}

static int buffers_add(psb_buffers_t *buffers, PyObject *object,
                       psb_needs_t needs)
{
    psb_views_t *views = psb_buffers_views(buffers);

    if (buffer_get(&views->view[views->n], object, needs) < 0) {
        psb_buffers_release(buffers);
        return -1;
    }
    buffers_count(views);
    return 0;
}

/* Adds a numpy array of plain numbers to the views. Returns false for any other
 * object. */
static bool buffers_add_array(psb_buffers_t *buffers, PyObject *object,
                              bool writable)
{
    psb_views_t *views = psb_buffers_views(buffers);
    Py_buffer *view = &views->view[views->n];
    psc_iov_t piece;

    if (!psb_array_get(&piece, object, writable))
        return false;
    view->buf = piece.base;
    view->len = (Py_ssize_t)piece.len;
    view->obj = Py_NewRef(object);
    buffers_count(views);
    return true;
}

static int buffers_get_pieces(psb_buffers_t *buffers, PyObject *tuple,
                              psb_needs_t needs)
{
    Py_ssize_t n = PyTuple_GET_SIZE(tuple);

    needs.contiguous = true;
    if (buffers_allocate(buffers, (size_t)n) < 0)
        return -1;
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *object = PyTuple_GET_ITEM(tuple, i);

        if (!buffers_add_array(buffers, object, needs.writable) &&
            buffers_add(buffers, object, needs) < 0)
            return -1;
    }
    return 0;
}

/* Gets the memory of a bytearray, and counts an export, so that the bytearray
 * cannot be resized. PyObject_GetBuffer does the same, but takes several times
 * as long. Returns false if Python was built without the GIL, because the count
 * is not atomic. */
static bool buffers_get_bytearray(psb_buffers_t *buffers, PyObject *object)
{
#ifdef Py_GIL_DISABLED
    (void)buffers;
    (void)object;
    return false;
#else
    ((PyByteArrayObject *)object)->ob_exports++;
    buffers->piece = (psc_iov_t){PyByteArray_AS_STRING(object),
                                 (size_t)PyByteArray_GET_SIZE(object)};
    buffers->keeper = (uintptr_t)Py_NewRef(object) | PSB_KEPT_BY_EXPORT;
    return true;
#endif
}

static void buffers_release_bytearray(PyObject *object)
{
    ((PyByteArrayObject *)object)->ob_exports--;
    Py_DECREF(object);
}

/* Gets the memory of a bytearray, bytes object or plain array. The memory stays
 * in its place as long as there is a reference to the object. Returns false for
 * other objects. */
static bool buffers_get_kept(psb_buffers_t *buffers, PyObject *object,
                             bool writable)
{
    if (PyByteArray_CheckExact(object))
        return buffers_get_bytearray(buffers, object);
    if (PyBytes_CheckExact(object) && !writable)
        buffers->piece = (psc_iov_t){PyBytes_AS_STRING(object),
                                     (size_t)PyBytes_GET_SIZE(object)};
    else if (!psb_array_get(&buffers->piece, object, writable))
        return false;
    buffers->keeper = (uintptr_t)Py_NewRef(object) | PSB_KEPT_BY_OWNER;
    return true;
}

/* Replaces a view that is not contiguous, in the psb_view_storage_t, by a view
 * on the heap with a layout (shape and strides). */
static int buffers_stride(psb_buffers_t *buffers, bool writable)
{
    Py_buffer view = *psb_buffers_views(buffers)->view;
    psc_layout_t *layout = psb_layout_new(&view, writable);
    psb_views_t *views;

    psb_buffers_init(buffers);
    if (!layout || buffers_allocate(buffers, 2) < 0) {
        PyMem_Free(layout);
        PyBuffer_Release(&view);
        return -1;
    }
    views = psb_buffers_views(buffers);
    *views->view = view;
    views->layout = layout;
    views->nbytes = (uint64_t)view.len;
    psc_layout_pieces(layout, views->pieces);
    views->n = 2;
    return 0;
}

/* Gets the memory of an object through the buffer protocol, as a view in
 * `storage`. */
static int buffers_get_view(psb_buffers_t *buffers, PyObject *object,
                            psb_needs_t needs, psb_view_storage_t *storage)
{
    Py_buffer *view = &storage->view;

    if (buffer_get(view, object, needs) < 0)
        return -1;
    storage->views = (psb_views_t){.view = view,
                                   .nbytes = (uint64_t)view->len,
                                   .n = 1,
                                   .in_storage = true};
    buffers->keeper = (uintptr_t)&storage->views;
    if (PSB_UNLIKELY(!buffer_contiguous(view)))
        return buffers_stride(buffers, needs.writable);
    buffers->piece = (psc_iov_t){view->buf, (size_t)view->len};
    return 0;
}

static int buffers_get_one(psb_buffers_t *buffers, PyObject *object,
                           psb_needs_t needs, psb_view_storage_t *storage)
{
    if (buffers_get_kept(buffers, object, needs.writable))
        return 0;
    return buffers_get_view(buffers, object, needs, storage);
}

int psb_buffers_keep(psb_buffers_t *buffers)
{
    const psb_views_t *storage = psb_buffers_views(buffers);
    psb_views_t *views;

    if (!storage || !storage->in_storage)
        return 0;
    if (buffers_allocate(buffers, 1) < 0)
        return -1;
    views = psb_buffers_views(buffers);
    *views->view = *storage->view;
    *views->pieces = buffers->piece;
    views->nbytes = storage->nbytes;
    views->n = storage->n;
    views->lease = storage->lease;
    return 0;
}

/* Returns the object that the message is in, also if that was the only one of a
 * list, or NULL if the message is in several objects or in none that an array
 * could be. */
static PyObject *buffers_object(const psb_buffers_t *buffers)
{
    const psb_views_t *views = psb_buffers_views(buffers);

    if (psb_buffers_kept_by(buffers) == PSB_KEPT_BY_OWNER)
        return psb_buffers_keeper(buffers);
    return views && (views->in_storage || views->layout) ? views->view->obj
                                                         : NULL;
}

int psb_buffers_lend(psb_buffers_t *buffers, psb_state_t *state)
{
    PyObject *object = buffers_object(buffers);
    psb_lease_t *lease;

    if (!object)
        return 0;
    if (psb_lease_begin(state, object, &lease) < 0)
        return -1;
    if (lease && psb_buffers_kept_by(buffers) == PSB_KEPT_BY_OWNER) {
        /* drop the reference of `buffers`; the lease has one, too */
        Py_DECREF(object);
        buffers->keeper = (uintptr_t)lease | PSB_KEPT_BY_LEASE;
    } else if (lease) {
        psb_buffers_views(buffers)->lease = lease;
    }
    return 0;
}

/* Gets the buffers of a copy of the list, because getting a buffer may run code
 * that changes the list. */
static int buffers_get_list(psb_buffers_t *buffers, PyObject *list,
                            psb_needs_t needs, psb_view_storage_t *storage)
{
    PyObject *tuple = PySequence_Tuple(list);
    int result;

    if (!tuple)
        return -1;
    if (PyTuple_GET_SIZE(tuple) == 1)
        result = buffers_get_one(buffers, PyTuple_GET_ITEM(tuple, 0), needs,
                                 storage);
    else
        result = buffers_get_pieces(buffers, tuple, needs);
    Py_DECREF(tuple);
    return result;
}

int psb_buffers_get(psb_buffers_t *buffers, PyObject *object, psb_needs_t needs,
                    psb_view_storage_t *storage)
{
    psb_buffers_init(buffers);
    if (buffers_get_kept(buffers, object, needs.writable))
        return 0;
    if (PyTuple_Check(object) || PyList_Check(object))
        return buffers_get_list(buffers, object, needs, storage);
    return buffers_get_view(buffers, object, needs, storage);
}

static void buffers_free_views(psb_views_t *views)
{
    if (PSB_UNLIKELY(views->lease != NULL))
        psb_lease_end(views->lease);
    for (uint32_t i = 0; i < views->n; i++)
        PyBuffer_Release(&views->view[i]);
    if (views->in_storage)
        return;
    PyMem_Free(views->layout);
    PyMem_Free(views);
}

void psb_buffers_release(psb_buffers_t *buffers)
{
    unsigned kept_by = psb_buffers_kept_by(buffers);
    void *keeper = psb_buffers_keeper(buffers);

    psb_buffers_init(buffers);
    if (kept_by == PSB_KEPT_BY_OWNER)
        Py_DECREF((PyObject *)keeper);
    else if (kept_by == PSB_KEPT_BY_EXPORT)
        buffers_release_bytearray(keeper);
    else if (PSB_UNLIKELY(kept_by == PSB_KEPT_BY_LEASE))
        psb_lease_end(keeper);
    else if (keeper)
        buffers_free_views(keeper);
}

int psb_buffers_traverse(psb_buffers_t *buffers, visitproc visit, void *arg)
{
    const psb_views_t *views = psb_buffers_views(buffers);

    /* true for PSB_KEPT_BY_OWNER, and for PSB_KEPT_BY_EXPORT, in which this bit
     * is set, too */
    if (psb_buffers_kept_by(buffers) & PSB_KEPT_BY_OWNER)
        Py_VISIT((PyObject *)psb_buffers_keeper(buffers));
    else if (psb_buffers_kept_by(buffers) == PSB_KEPT_BY_LEASE)
        Py_VISIT(psb_lease_array(psb_buffers_keeper(buffers)));
    if (views && views->lease)
        Py_VISIT(psb_lease_array(views->lease));
    for (uint32_t i = 0; views && i < views->n; i++)
        Py_VISIT(views->view[i].obj);
    return 0;
}
