/* numpy's arrays without the buffer protocol: their memory is asked for through
 * numpy's own interface, which costs a tenth (numpy builds a description of
 * shape and format for every Py_buffer). numpy is not imported for this: who
 * hands us an array has done so. */
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION

#include "hot.h"

#include <numpy/arrayobject.h>

/* numpy's, and the same for the whole process, as its function table is. */
static PyTypeObject *array_type;

/* The first array of all tells where numpy's functions are. */
static bool array_learn(PyObject *object)
{
    if (array_type || strcmp(Py_TYPE(object)->tp_name, "numpy.ndarray") != 0)
        return false;
    if (_import_array() < 0) {
        PyErr_Clear(); /* the buffer protocol does as well */
        return false;
    }
    array_type = &PyArray_Type;
    return Py_IS_TYPE(object, array_type);
}

bool hot_array_get(Py_buffer *view, PyObject *object, bool writable)
{
    PyArrayObject *array = (PyArrayObject *)object;
    int needed = NPY_ARRAY_C_CONTIGUOUS;

    if (!Py_IS_TYPE(object, array_type) && !array_learn(object))
        return false;
    if (writable)
        needed |= NPY_ARRAY_WRITEABLE;
    if (!PyArray_CHKFLAGS(array, needed) ||
        PyArray_TYPE(array) >= NPY_OBJECT)
        return false;
    view->buf = PyArray_DATA(array);
    view->len = PyArray_NBYTES(array);
    view->obj = object;
    Py_INCREF(object);
    return true;
}
