/* Calls of MPI functions that live in Python: C's arguments become a list of
 * Python's objects, and what Python returns goes to where the arguments say. An
 * exception becomes the code of an error. */
#include "host_python.h"

#include <string.h>

/* ---- errors of Python ---- */

/* A pending call: the main thread makes it once it is back in Python. */
static int raise_kept(void *exception)
{
    PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)exception), exception);
    Py_DECREF((PyObject *)exception);
    return -1;
}

void psc_mpi_error_later(void)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback)
        PyException_SetTraceback(value, traceback);
    Py_XDECREF(traceback);
    Py_XDECREF(type);
    if (Py_AddPendingCall(raise_kept, value) < 0) {
        PyErr_SetObject((PyObject *)Py_TYPE(value), value);
        PyErr_WriteUnraisable(NULL);
        Py_DECREF(value);
    }
}

void psc_mpi_error_clear(void)
{
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        psc_mpi_error_later();
    PyErr_Clear();
}

void psc_mpi_error_text(char *text, size_t room)
{
    PyObject *type, *value, *traceback, *string;
    const char *utf8 = NULL;

    PyErr_Fetch(&type, &value, &traceback);
    string = value ? PyObject_Str(value) : NULL;
    if (string)
        utf8 = PyUnicode_AsUTF8AndSize(string, NULL);
    PyErr_Clear();
    PyOS_snprintf(text, room, "%s",
                  utf8 && *utf8 ? utf8 : "an exception of Python");
    Py_XDECREF(string);
    PyErr_Restore(type, value, traceback);
    psc_mpi_error_clear();
}

int psc_mpi_error_code(void)
{
    char text[MPI_MAX_ERROR_STRING];

    psc_mpi_error_text(text, sizeof text);
    return psc_mpi_library->error_add(MPI_ERR_OTHER, text);
}

/* ---- what Python gets ---- */

static bool is_array(char way)
{
    return way == PSC_MPI_ARRAY || way == PSC_MPI_ARRAY_RESULT ||
           way == PSC_MPI_ARRAY_BOTH;
}

static bool is_result(char way)
{
    return way == PSC_MPI_RESULT || way == PSC_MPI_BOTH ||
           way == PSC_MPI_ARRAY_RESULT || way == PSC_MPI_ARRAY_BOTH;
}

static bool is_given(char way)
{
    return way != PSC_MPI_RESULT && way != PSC_MPI_ARRAY_RESULT;
}

/* Returns the element of an array in memory. */
static PyObject *element(char code, const void *at, Py_ssize_t i)
{
    if (code == PSC_MPI_CODE_LONG)
        return PyLong_FromLongLong(((const MPI_Count *)at)[i]);
    if (code == PSC_MPI_CODE_ADDRESS || code == PSC_MPI_CODE_TEXT)
        return PyLong_FromVoidPtr(((void *const *)at)[i]);
    return PyLong_FromLong(((const int *)at)[i]);
}

static PyObject *given_array(char code, const void *at, Py_ssize_t n)
{
    PyObject *list = PyList_New(n > 0 ? n : 0);

    for (Py_ssize_t i = 0; list && i < n; i++) {
        PyObject *item = element(code, at, i);

        if (!item || PyList_SetItem(list, i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

static PyObject *given_value(char code, intptr_t value)
{
    if (code == PSC_MPI_CODE_TEXT)
        return PyUnicode_DecodeUTF8((const char *)value,
                                    (Py_ssize_t)strlen((const char *)value),
                                    "surrogateescape");
    if (code == PSC_MPI_CODE_ADDRESS)
        return PyLong_FromVoidPtr((void *)value);
    return PyLong_FromLongLong(value);
}

static PyObject *given(const char *argument, const intptr_t *values)
{
    char way = argument[0], code = argument[1];

    if (is_array(way))
        return given_array(code, (const void *)values[0], values[1]);
    if (way == PSC_MPI_BOTH)
        return element(code, (const void *)values[0], 0);
    return given_value(code, values[0]);
}

/* Returns the arguments that are values, as a list. */
static PyObject *given_all(const char *arguments, const intptr_t *values)
{
    PyObject *list = PyList_New(0);

    for (; list && *arguments; arguments += 2) {
        PyObject *item =
            is_given(arguments[0]) ? given(arguments, values) : NULL;

        if (is_given(arguments[0]) && (!item || PyList_Append(list, item) < 0))
            Py_CLEAR(list);
        Py_XDECREF(item);
        values += is_array(arguments[0]) ? 2 : 1;
    }
    return list;
}

/* ---- what Python returns ---- */

static void put_element(char code, void *at, Py_ssize_t i, PyObject *value)
{
    if (value == Py_None)
        return;
    if (code == PSC_MPI_CODE_LONG)
        ((MPI_Count *)at)[i] = PyLong_AsLongLong(value);
    else if (code == PSC_MPI_CODE_ADDRESS)
        ((void **)at)[i] = PyLong_AsVoidPtr(value);
    else
        ((int *)at)[i] = (int)PyLong_AsLong(value);
}

static void put_text(char *at, Py_ssize_t room, PyObject *value)
{
    PyObject *bytes =
        PyUnicode_AsEncodedString(value, "utf-8", "surrogateescape");

    if (bytes && room > 0)
        PyOS_snprintf(at, (size_t)room, "%s", PyBytes_AsString(bytes));
    Py_XDECREF(bytes);
}

static void put_array(char code, const intptr_t *values, PyObject *value)
{
    Py_ssize_t n = PyList_Check(value) ? PyList_Size(value) : 0;

    if (code == PSC_MPI_CODE_TEXT && value != Py_None)
        put_text((char *)values[0], values[1], value);
    for (Py_ssize_t i = 0; i < n && i < values[1]; i++)
        put_element(code, (void *)values[0], i, PyList_GetItem(value, i));
}

/* Write a list of results to where the arguments say. */
static void put_all(const char *arguments, const intptr_t *values,
                    PyObject *results)
{
    Py_ssize_t n = 0;

    for (; *arguments; arguments += 2) {
        PyObject *value = is_result(arguments[0]) && n < PyList_Size(results)
                              ? PyList_GetItem(results, n++)
                              : NULL;

        if (value && is_array(arguments[0]))
            put_array(arguments[1], values, value);
        else if (value)
            put_element(arguments[1], (void *)values[0], 0, value);
        values += is_array(arguments[0]) ? 2 : 1;
    }
}

/* pscompy_mpi.carrier.call returns the code of an error, or a list. */
static int carry(const psc_mpi_function_t *it, const intptr_t *values)
{
    PyObject *list = given_all(it->arguments, values);
    PyObject *results =
        list ? PyObject_CallMethod(psc_mpi_module, "call", "sssO", it->module,
                                   it->name, it->arguments, list)
             : NULL;
    int code = MPI_SUCCESS;

    Py_XDECREF(list);
    if (results && PyList_Check(results))
        put_all(it->arguments, values, results);
    else if (results)
        code = (int)PyLong_AsLong(results);
    if (PyErr_Occurred())
        code = psc_mpi_error_code();
    Py_XDECREF(results);
    return code;
}

int psc_mpi_host_call(const psc_mpi_function_t *it, const intptr_t *values)
{
    PyGILState_STATE state = PyGILState_Ensure();
    int code = carry(it, values);

    PyGILState_Release(state);
    return code;
}
