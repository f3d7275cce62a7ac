/* The memory of messages through the buffer protocol, and the errors that say
 * what to do about an object that cannot be sent or received into. */
#include "buffers.h"

#include "array.h"
#include "errors.h"

/* The format is asked for because object arrays must be refused: their memory
 * holds addresses. */
#define BUFFER_FLAGS (PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)

/* ---- errors ---- */

static void buffer_refuse_type(PyObject *object)
{
    const char *type = Py_TYPE(object)->tp_name;

    if (PyUnicode_Check(object))
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

/* Raises an exception that explains why the buffer was refused. `raised` is the
 * exporter's own exception. */
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
                     "this %.100s is not C-contiguous: copy it first, for "
                     "example with numpy.ascontiguousarray()",
                     type);
    PyBuffer_Release(&any);
}

/* True if the elements are or contain Python objects. Names of fields stand
 * between colons and may hold any letter. */
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

static int buffer_get(Py_buffer *view, PyObject *object, bool writable)
{
    psb_raised_t raised;

    if (psb_array_get(view, object, writable))
        return 0;
    if (PSB_UNLIKELY(!PyObject_CheckBuffer(object))) {
        buffer_refuse_type(object);
        return -1;
    }
    if (PSB_UNLIKELY(PyObject_GetBuffer(object, view,
                                        writable ? BUFFER_FLAGS | PyBUF_WRITABLE
                                                 : BUFFER_FLAGS) < 0)) {
        if (!PyErr_ExceptionMatches(PyExc_ValueError) &&
            !PyErr_ExceptionMatches(PyExc_BufferError))
            return -1;
        raised = psb_raised_take();
        buffer_explain(object, writable, raised);
        Py_XDECREF(raised.type);
        Py_XDECREF(raised.value);
        Py_XDECREF(raised.traceback);
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
    buffers->views = PyMem_Calloc(n ? n : 1, sizeof *buffers->views);
    buffers->pieces = PyMem_Calloc(n ? n : 1, sizeof *buffers->pieces);
    if (!buffers->views || !buffers->pieces) {
        psb_buffers_release(buffers);
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static int buffers_get_pieces(psb_buffers_t *buffers, PyObject *tuple,
                              bool writable)
{
    size_t n = (size_t)PyTuple_GET_SIZE(tuple);

    if (buffers_allocate(buffers, n) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        Py_buffer *view = &buffers->views[i];
        PyObject *item = PyTuple_GET_ITEM(tuple, (Py_ssize_t)i);

        if (buffer_get(view, item, writable) < 0) {
            psb_buffers_release(buffers);
            return -1;
        }
        buffers->pieces[i] = (psc_iov_t){view->buf, (size_t)view->len};
        buffers->nbytes += (uint64_t)view->len;
        buffers->n = i + 1;
    }
    return 0;
}

/* One piece lives in `view`, so that the common message allocates nothing. */
static int buffers_get_one(psb_buffers_t *buffers, PyObject *object,
                           bool writable)
{
    if (buffer_get(&buffers->view, object, writable) < 0)
        return -1;
    buffers->piece.base = buffers->view.buf;
    buffers->piece.len = (size_t)buffers->view.len;
    buffers->nbytes = (uint64_t)buffers->view.len;
    buffers->n = 1;
    return 0;
}

/* A copy of the list, because getting a buffer may run code that changes it. */
static int buffers_get_list(psb_buffers_t *buffers, PyObject *list,
                            bool writable)
{
    PyObject *tuple = PySequence_Tuple(list);
    int result;

    if (!tuple)
        return -1;
    if (PyTuple_GET_SIZE(tuple) == 1)
        result = buffers_get_one(buffers, PyTuple_GET_ITEM(tuple, 0), writable);
    else
        result = buffers_get_pieces(buffers, tuple, writable);
    Py_DECREF(tuple);
    return result;
}

int psb_buffers_get(psb_buffers_t *buffers, PyObject *object, bool writable)
{
    psb_buffers_init(buffers);
    if (PSB_UNLIKELY(PyList_CheckExact(object) || PyTuple_Check(object) ||
                     PyList_Check(object)))
        return buffers_get_list(buffers, object, writable);
    return buffers_get_one(buffers, object, writable);
}

void psb_buffers_release(psb_buffers_t *buffers)
{
    size_t n = buffers->n;

    if (PSB_UNLIKELY(buffers->lease != NULL))
        psb_lease_end(buffers->lease);
    buffers->lease = NULL;
    buffers->n = 0;
    if (!buffers->views) {
        if (n == 1)
            PyBuffer_Release(&buffers->view);
        return;
    }
    for (size_t i = 0; i < n; i++)
        PyBuffer_Release(&buffers->views[i]);
    PyMem_Free(buffers->views);
    PyMem_Free(buffers->pieces);
    buffers->views = NULL;
    buffers->pieces = NULL;
}

int psb_buffers_traverse(psb_buffers_t *buffers, visitproc visit, void *arg)
{
    if (!buffers->views && buffers->n == 1)
        Py_VISIT(buffers->view.obj);
    for (size_t i = 0; buffers->views && i < buffers->n; i++)
        Py_VISIT(buffers->views[i].obj);
    return 0;
}
