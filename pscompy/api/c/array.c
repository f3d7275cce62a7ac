/* numpy arrays as buffers without the buffer protocol: numpy's C interface
 * takes a tenth of the time, because numpy builds a description of shape and
 * format for every Py_buffer. numpy is not imported for this, because a program
 * that has an array has imported numpy. This file also makes arrays over memory
 * of the core, and pickles arrays. */
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION

#include "memory.h"

#include <numpy/arrayobject.h>

/* The type numpy.ndarray; a global for the whole process, because numpy's
 * function table is global, too. */
static PyTypeObject *array_type;

static int array_import(void)
{
    if (!array_type && _import_array() < 0)
        return -1;
    array_type = &PyArray_Type;
    return 0;
}

/* Imports numpy's function table when the first array is passed. Returns true
 * if `object` is an array and this call has imported the table. */
static bool array_learn(PyObject *object)
{
    if (array_type || strcmp(Py_TYPE(object)->tp_name, "numpy.ndarray") != 0)
        return false;
    if (array_import() < 0) {
        /* clear the error, because the caller then uses the buffer protocol */
        PyErr_Clear();
        return false;
    }
    return Py_IS_TYPE(object, array_type);
}

bool psb_array_get(psc_iov_t *piece, PyObject *object, bool writable)
{
    PyArrayObject *array = (PyArrayObject *)object;
    int needed = NPY_ARRAY_C_CONTIGUOUS;

    if (!Py_IS_TYPE(object, array_type) && !array_learn(object))
        return false;
    if (writable)
        needed |= NPY_ARRAY_WRITEABLE;
    if (!PyArray_CHKFLAGS(array, needed) || PyArray_TYPE(array) >= NPY_OBJECT)
        return false;
    piece->base = PyArray_DATA(array);
    piece->len = (size_t)PyArray_NBYTES(array);
    return true;
}

/* Returns the type for the core, which has one per kind and size, where numpy
 * has one per type of C; or -1. */
static int array_core_type(char kind, npy_intp size)
{
    static const struct {
        char kind;
        uint8_t size;
        uint8_t type;
    } rows[] = {{'b', 1, PSC_TYPE_BOOL},       {'i', 1, PSC_TYPE_INT8},
                {'i', 2, PSC_TYPE_INT16},      {'i', 4, PSC_TYPE_INT32},
                {'i', 8, PSC_TYPE_INT64},      {'u', 1, PSC_TYPE_UINT8},
                {'u', 2, PSC_TYPE_UINT16},     {'u', 4, PSC_TYPE_UINT32},
                {'u', 8, PSC_TYPE_UINT64},     {'f', 4, PSC_TYPE_FLOAT32},
                {'f', 8, PSC_TYPE_FLOAT64},    {'c', 8, PSC_TYPE_COMPLEX64},
                {'c', 16, PSC_TYPE_COMPLEX128}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].kind == kind && rows[i].size == size)
            return rows[i].type;
    }
    return -1;
}

/* psb_array_get takes no float16, whose number for numpy is among those of
 * types that are not plain. */
bool psb_array_plain(psb_plain_t *plain, PyObject *object, bool writable)
{
    PyArrayObject *array = (PyArrayObject *)object;

    if (!psb_array_get(&plain->memory, object, writable) ||
        !PyArray_ISALIGNED(array) || PyArray_ISBYTESWAPPED(array))
        return false;
    plain->size = (size_t)PyArray_ITEMSIZE(array);
    plain->items = PyArray_NDIM(array) > 0 ? PyArray_DIM(array, 0) : -1;
    plain->type =
        array_core_type(PyArray_DESCR(array)->kind, PyArray_ITEMSIZE(array));
    return true;
}

/* ---- arrays over memory of the core ---- */

/* Returns an array over memory at `base` that `owner` keeps alive. Takes over
 * the reference `descr`. */
static PyObject *array_at(void *base, PyObject *owner, PyArray_Descr *descr,
                          int n, const npy_intp *shape, int flags)
{
    PyObject *array = PyArray_NewFromDescr(array_type, descr, n, shape, NULL,
                                           base, flags, NULL);

    if (!array)
        return NULL;
    Py_INCREF(owner);
    if (PyArray_SetBaseObject((PyArrayObject *)array, owner) < 0)
        Py_CLEAR(array);
    return array;
}

/* Returns an array over the start of `memory`, a Memory. Takes over the
 * reference `descr`. */
static PyObject *array_over(PyObject *memory, PyArray_Descr *descr, int n,
                            const npy_intp *shape, int flags)
{
    Py_ssize_t nbytes;
    void *base = psb_memory_base(memory, &nbytes);

    return array_at(base, memory, descr, n, shape, flags);
}

PyObject *psb_array_view(PyObject *memory)
{
    npy_intp nbytes;

    if (array_import() < 0)
        return NULL;
    psb_memory_base(memory, &nbytes);
    return array_over(memory, PyArray_DescrFromType(NPY_UINT8), 1, &nbytes,
                      NPY_ARRAY_CARRAY_RO);
}

/* Computes how many bytes an array of this type and shape has. Returns -1 with
 * an exception if such an array is not possible. */
static int array_bytes(const PyArray_Descr *descr, const PyArray_Dims *shape,
                       size_t *nbytes_p)
{
    size_t nbytes = (size_t)PyDataType_ELSIZE(descr);

    if (PyDataType_REFCHK(descr) || nbytes == 0) {
        PyErr_SetString(PyExc_TypeError,
                        "an array of the pool holds plain data of a known "
                        "size, no Python objects");
        return -1;
    }
    for (int i = 0; i < shape->len; i++) {
        if (shape->ptr[i] < 0) {
            PyErr_SetString(PyExc_ValueError,
                            "negative dimensions are not allowed");
            return -1;
        }
        if (__builtin_mul_overflow(nbytes, (size_t)shape->ptr[i], &nbytes) ||
            nbytes > PY_SSIZE_T_MAX) {
            PyErr_SetString(PyExc_ValueError, "the array is too big");
            return -1;
        }
    }
    *nbytes_p = nbytes;
    return 0;
}

static PyObject *array_make(psb_worker_t *worker, PyArray_Descr *descr,
                            const PyArray_Dims *shape, uint32_t flags)
{
    PyObject *memory, *array;
    size_t nbytes;

    if (array_bytes(descr, shape, &nbytes) < 0 ||
        !(memory = psb_memory_alloc(worker, nbytes, flags)))
        return NULL;
    Py_INCREF(descr);
    array = array_over(memory, descr, shape->len, shape->ptr, NPY_ARRAY_CARRAY);
    Py_DECREF(memory);
    return array;
}

PyObject *psb_array_empty(psb_worker_t *worker, PyObject *shape,
                          PyObject *dtype, uint32_t flags)
{
    PyArray_Dims dims = {NULL, 0};
    PyArray_Descr *descr = NULL;
    PyObject *array = NULL;

    if (array_import() < 0)
        return NULL;
    if (PyArray_IntpConverter(shape, &dims) &&
        PyArray_DescrConverter(dtype, &descr))
        array = array_make(worker, descr, &dims, flags);
    Py_XDECREF(descr);
    PyDimMem_FREE(dims.ptr);
    return array;
}

/* ---- arrays within an object that is pickled ---- */

/* The values of dtype.kind of types whose elements are plain numbers. */
#define ARRAY_KINDS "biufc"
#define ARRAY_DIMENSIONS_MAX 32

static bool array_of_numbers(const PyArray_Descr *descr)
{
    return descr->kind && strchr(ARRAY_KINDS, descr->kind);
}

/* Returns true if the array's numbers are contiguous in memory, in the order C
 * or F. */
static bool array_is_plain(PyObject *object)
{
    PyArrayObject *array = (PyArrayObject *)object;

    if (!Py_IS_TYPE(object, array_type) && !array_learn(object))
        return false;
    return array_of_numbers(PyArray_DESCR(array)) &&
           PyArray_NDIM(array) <= ARRAY_DIMENSIONS_MAX &&
           (PyArray_IS_C_CONTIGUOUS(array) || PyArray_IS_F_CONTIGUOUS(array));
}

/* Returns the array's numbers for pickle, in their order in memory, as bytes or
 * a PickleBuffer. If there are few numbers, a copy as bytes takes less time
 * than a PickleBuffer. */
static PyObject *array_numbers(PyArrayObject *array, Py_ssize_t copied)
{
    const char *base = PyArray_BYTES(array);
    npy_intp nbytes = PyArray_NBYTES(array);

    if (nbytes >= copied)
        return PyPickleBuffer_FromObject((PyObject *)array);
    if (PyArray_CHKFLAGS(array, NPY_ARRAY_WRITEABLE))
        return PyByteArray_FromStringAndSize(base, nbytes);
    return PyBytes_FromStringAndSize(base, nbytes);
}

/* Returns the shape as a tuple: the same object as for the previous array, if
 * the shapes are equal, because pickle writes each object once. */
static PyObject *array_shape(PyArrayObject *array)
{
    static npy_intp lengths[ARRAY_DIMENSIONS_MAX];
    static PyObject *shape;
    int n = PyArray_NDIM(array);

    if (!shape || PyTuple_GET_SIZE(shape) != n ||
        !PyArray_CompareLists(lengths, PyArray_DIMS(array), n)) {
        Py_XSETREF(shape, PyArray_IntTupleFromIntp(n, PyArray_DIMS(array)));
        for (int i = 0; i < n; i++)
            lengths[i] = PyArray_DIM(array, i);
    }
    return Py_XNewRef(shape);
}

/* The function that psb_array_reducer returns. `self` is the tuple of the
 * arguments of psb_array_reducer, `object` the array that is pickled. */
static PyObject *array_reduce(PyObject *self, PyObject *object)
{
    Py_ssize_t copied = PyLong_AsSsize_t(PyTuple_GET_ITEM(self, 1));
    PyArrayObject *array = (PyArrayObject *)object;
    PyObject *numbers, *shape, *args = NULL, *reduced = NULL;

    if (!array_is_plain(object))
        return PyObject_CallMethod(object, "__reduce_ex__", "i", 5);
    numbers = array_numbers(array, copied);
    shape = array_shape(array);
    if (numbers && shape)
        args = PyArray_IS_C_CONTIGUOUS(array)
                   ? PyTuple_Pack(3, numbers, PyArray_DESCR(array), shape)
                   : Py_BuildValue("OOOs", numbers, PyArray_DESCR(array), shape,
                                   "F");
    if (args)
        reduced = PyTuple_Pack(2, PyTuple_GET_ITEM(self, 0), args);
    Py_XDECREF(args);
    Py_XDECREF(shape);
    Py_XDECREF(numbers);
    return reduced;
}

PyObject *psb_array_reducer(PyObject *restore, Py_ssize_t copied)
{
    static PyMethodDef def = {"reduce", array_reduce, METH_O, NULL};
    PyObject *self = Py_BuildValue("(On)", restore, copied);
    PyObject *reducer = self ? PyCFunction_New(&def, self) : NULL;

    Py_XDECREF(self);
    return reducer;
}

/* Converts the tuple `shape` to *dims. Returns -1 with an exception if `shape`
 * is no tuple of at most ARRAY_DIMENSIONS_MAX lengths. */
static int array_dims(PyObject *shape, PyArray_Dims *dims)
{
    dims->len = PyTuple_CheckExact(shape) ? (int)PyTuple_GET_SIZE(shape) : -1;
    if (dims->len < 0 || dims->len > ARRAY_DIMENSIONS_MAX) {
        PyErr_SetString(PyExc_TypeError, "the shape is no tuple of lengths");
        return -1;
    }
    for (int i = 0; i < dims->len; i++) {
        dims->ptr[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(shape, i));
        if (dims->ptr[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static PyObject *array_restored(PyObject *numbers, const Py_buffer *view,
                                PyArray_Descr *descr, const PyArray_Dims *shape,
                                bool fortran)
{
    int flags = fortran ? NPY_ARRAY_F_CONTIGUOUS : NPY_ARRAY_C_CONTIGUOUS;
    size_t nbytes;
    PyObject *array;

    if (array_bytes(descr, shape, &nbytes) < 0)
        return NULL;
    if (nbytes != (size_t)view->len)
        return PyErr_Format(PyExc_ValueError,
                            "an array of %zu bytes has %zd bytes of numbers",
                            nbytes, view->len);
    if (!view->readonly)
        flags |= NPY_ARRAY_WRITEABLE;
    Py_INCREF(descr);
    array = array_at(view->buf, numbers, descr, shape->len, shape->ptr, flags);
    if (array)
        PyArray_UpdateFlags((PyArrayObject *)array, NPY_ARRAY_UPDATE_ALL);
    return array;
}

/* Makes an array that keeps only the object `numbers` alive. An array of
 * numpy.ndarray would also keep the memoryview through which the memory of
 * `numbers` is found. */
PyObject *psb_array_restore(PyObject *numbers, PyObject *kind, PyObject *shape,
                            PyObject *order)
{
    npy_intp lengths[ARRAY_DIMENSIONS_MAX];
    PyArray_Dims dims = {lengths, 0};
    PyArray_Descr *descr = (PyArray_Descr *)kind;
    PyObject *array;
    Py_buffer view;

    if (array_import() < 0)
        return NULL;
    if (!PyArray_DescrCheck(kind) || !array_of_numbers(descr) ||
        (order && !PyUnicode_Check(order)))
        return PyErr_Format(PyExc_TypeError, "%R is no type of numbers", kind);
    if (array_dims(shape, &dims) < 0 ||
        PyObject_GetBuffer(numbers, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    array = array_restored(
        numbers, &view, descr, &dims,
        order && PyUnicode_CompareWithASCIIString(order, "F") == 0);
    PyBuffer_Release(&view);
    return array;
}

/* ---- making arrays read-only, for readonly_lease.c ---- */

bool psb_array_set_writable(PyObject *object, bool writable)
{
    PyArrayObject *array = (PyArrayObject *)object;
    bool was;

    if (!array_type || !PyObject_TypeCheck(object, array_type))
        return false;
    was = PyArray_CHKFLAGS(array, NPY_ARRAY_WRITEABLE);
    if (writable)
        PyArray_ENABLEFLAGS(array, NPY_ARRAY_WRITEABLE);
    else
        PyArray_CLEARFLAGS(array, NPY_ARRAY_WRITEABLE);
    return was;
}
