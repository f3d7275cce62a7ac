/* numpy arrays as buffers without the buffer protocol: numpy's own interface
 * costs a tenth of it, because numpy builds a description of shape and format
 * for every Py_buffer. numpy is not imported for this: a program that has an
 * array has imported it. And arrays over memory of the core. */
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION

#include "array.h"

#include "memory.h"

#include <numpy/arrayobject.h>

/* numpy.ndarray: one for the whole process, as numpy's function table is. */
static PyTypeObject *array_type;

static int array_import(void)
{
    if (!array_type && _import_array() < 0)
        return -1;
    array_type = &PyArray_Type;
    return 0;
}

/* Finds numpy's functions by the type of the first array that is passed. */
static bool array_learn(PyObject *object)
{
    if (array_type || strcmp(Py_TYPE(object)->tp_name, "numpy.ndarray") != 0)
        return false;
    if (array_import() < 0) {
        PyErr_Clear(); /* the caller then uses the buffer protocol */
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

/* ---- arrays over memory of the core ---- */

/* Takes over the reference `descr`. */
static PyObject *array_over(PyObject *memory, PyArray_Descr *descr, int n,
                            const npy_intp *shape, int flags)
{
    Py_ssize_t nbytes;
    void *base = psb_memory_base(memory, &nbytes);
    PyObject *array = PyArray_NewFromDescr(array_type, descr, n, shape, NULL,
                                           base, flags, NULL);

    if (!array)
        return NULL;
    Py_INCREF(memory);
    if (PyArray_SetBaseObject((PyArrayObject *)array, memory) < 0)
        Py_CLEAR(array);
    return array;
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

/* Returns -1 with an exception if such an array is not possible. */
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
                            const PyArray_Dims *shape)
{
    PyObject *memory, *array;
    size_t nbytes;

    if (array_bytes(descr, shape, &nbytes) < 0 ||
        !(memory = psb_memory_alloc(worker, nbytes)))
        return NULL;
    Py_INCREF(descr);
    array = array_over(memory, descr, shape->len, shape->ptr, NPY_ARRAY_CARRAY);
    Py_DECREF(memory);
    return array;
}

PyObject *psb_array_empty(psb_worker_t *worker, PyObject *shape,
                          PyObject *dtype)
{
    PyArray_Dims dims = {NULL, 0};
    PyArray_Descr *descr = NULL;
    PyObject *array = NULL;

    if (array_import() < 0)
        return NULL;
    if (PyArray_IntpConverter(shape, &dims) &&
        PyArray_DescrConverter(dtype, &descr))
        array = array_make(worker, descr, &dims);
    Py_XDECREF(descr);
    PyDimMem_FREE(dims.ptr);
    return array;
}

/* ---- for readonly_lease.c ---- */

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
