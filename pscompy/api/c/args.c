/* Parses the arguments of methods (METH_FASTCALL | METH_KEYWORDS) without
 * allocation, and converts them: tags, numbers, timeouts. */
#include "state.h"

/* ---- names ---- */

static int args_find(const psb_signature_t *signature, PyObject *name)
{
    for (int i = 0; i < signature->n; i++) {
        if (PyUnicode_CompareWithASCIIString(name, signature->names[i]) == 0)
            return i;
    }
    return -1;
}

static int args_take_keywords(const psb_signature_t *signature,
                              PyObject *const *values, PyObject *kwnames,
                              PyObject **given)
{
    Py_ssize_t n = PyTuple_GET_SIZE(kwnames);

    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, i);
        int at = args_find(signature, name);

        if (at < 0) {
            PyErr_Format(PyExc_TypeError,
                         "%s() got an unexpected keyword argument '%U'",
                         signature->function, name);
            return -1;
        }
        if (given[at]) {
            PyErr_Format(PyExc_TypeError,
                         "%s() got multiple values for argument '%U'",
                         signature->function, name);
            return -1;
        }
        given[at] = values[i];
    }
    return 0;
}

int psb_args_parse(const psb_signature_t *signature, PyObject *const *args,
                   Py_ssize_t n_args, PyObject *kwnames, PyObject **given)
{
    if (PSB_UNLIKELY(n_args > signature->n)) {
        PyErr_Format(PyExc_TypeError,
                     "%s() takes at most %d arguments (%zd given)",
                     signature->function, signature->n, n_args);
        return -1;
    }
    for (int i = 0; i < signature->n; i++)
        given[i] = i < n_args ? args[i] : NULL;
    if (kwnames &&
        args_take_keywords(signature, args + n_args, kwnames, given) < 0)
        return -1;
    for (int i = 0; i < signature->required; i++) {
        if (PSB_UNLIKELY(!given[i])) {
            PyErr_Format(PyExc_TypeError,
                         "%s() missing required argument: '%s'",
                         signature->function, signature->names[i]);
            return -1;
        }
    }
    return 0;
}

static PyObject *args_shown(PyObject *object)
{
    PyObject *text = PyObject_Repr(object);

    if (text)
        return text;
    PyErr_Clear();
    return PyUnicode_FromFormat("<%.100s>", Py_TYPE(object)->tp_name);
}

int psb_refuse(PyObject *type, PyObject *object, const char *format, ...)
{
    PyObject *reason, *text;
    va_list values;

    PyErr_Clear();
    text = args_shown(object);
    va_start(values, format);
    reason = PyUnicode_FromFormatV(format, values);
    va_end(values);
    if (reason && text)
        PyErr_Format(type, PyUnicode_AsUTF8(reason), text);
    Py_XDECREF(reason);
    Py_XDECREF(text);
    return -1;
}

/* ---- numbers ---- */

/* Raises the error of an argument that is no tag: a TypeError if it is no
 * integer, else a ValueError. Returns -1. */
static int args_refuse_tag(PyObject *object, bool any)
{
    PyObject *type = PyExc_ValueError;

    if (PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError))
            return -1;
        type = PyExc_TypeError;
    }
    return psb_refuse(type, object, "a tag is a number from 0 to %d%s, not %%U",
                      PSC_TAG_MAX, any ? ", or ANY_TAG" : "");
}

int psb_arg_tag(PyObject *object, bool any, int32_t *tag_p)
{
    long long tag;
    int overflow;

    if (!object)
        return 0;
    tag = PyLong_AsLongLongAndOverflow(object, &overflow);
    if (PSB_UNLIKELY(tag < 0 || tag > PSC_TAG_MAX)) {
        if (!any || tag != PSC_ANY_TAG || overflow || PyErr_Occurred())
            return args_refuse_tag(object, any);
    }
    *tag_p = (int32_t)tag;
    return 0;
}

int psb_arg_u64(PyObject *object, const char *name, uint64_t max,
                uint64_t *value_p)
{
    PyObject *index;
    unsigned long long value;

    if (!object)
        return 0;
    index = PyNumber_Index(object);
    if (!index)
        return -1;
    value = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (value == (unsigned long long)-1 && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_OverflowError))
            return -1;
        PyErr_Clear();
    } else if (value <= max) {
        *value_p = value;
        return 0;
    }
    return psb_refuse(PyExc_ValueError, object,
                      "%s is a number from 0 to %llu, not %%U", name,
                      (unsigned long long)max);
}

/* ---- time ---- */

int psb_arg_deadline(PyObject *object, int64_t *deadline_p)
{
    double seconds;
    int64_t now;

    if (!object || object == Py_None)
        return 0;
    seconds = PyFloat_AsDouble(object);
    if (seconds == -1.0 && PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_TypeError))
            PyErr_Format(PyExc_TypeError,
                         "a timeout is None or a number of seconds, not %.100s",
                         Py_TYPE(object)->tp_name);
        return -1;
    }
    if (!(seconds >= 0))
        return psb_refuse(PyExc_ValueError, object,
                          "a timeout is None or at least 0 seconds, not %%U");
    now = psc_clock_now();
    if (seconds < (double)(PSC_FOREVER - now) / 1e9)
        *deadline_p = now + (int64_t)(seconds * 1e9);
    return 0;
}
