/* Imports names when they are first needed. */
#include "state.h"

PyObject *psb_import_once(PyObject **slot_p, const char *module,
                          const char *name)
{
    PyObject *imported;

    if (*slot_p)
        return *slot_p;
    imported = PyImport_ImportModule(module);
    if (!imported)
        return NULL;
    Py_XSETREF(*slot_p, PyObject_GetAttrString(imported, name));
    Py_DECREF(imported);
    return *slot_p;
}
