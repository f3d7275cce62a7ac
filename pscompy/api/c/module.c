/* The module pscompy.api.c._binding, its state, and how it finds the core.
 * The module uses multi-phase initialisation and has its state in the module
 * object: there are no globals here (guard.c counts per thread), and the
 * instances of the types reach the state through their Worker. */
#include "memory.h"
#include "guard.h"
#include "request.h"

static psb_state_t *module_state(PyObject *module)
{
    return PyModule_GetState(module);
}

/* ---- bind ---- */

/* Creates the capsule pscompy.core._api, by which other extensions import the
 * table psc_api_t. */
static int module_publish(const psc_api_t *api)
{
    PyObject *core = PyImport_ImportModule("pscompy.core");
    PyObject *capsule =
        core ? PyCapsule_New((void *)(uintptr_t)api, PSC_API_CAPSULE, NULL)
             : NULL;
    int result = capsule ? PyObject_SetAttrString(core, "_api", capsule) : -1;

    Py_XDECREF(capsule);
    Py_XDECREF(core);
    return result;
}

static int module_check_abi(const psc_api_t *api)
{
    if (api->abi == PSC_API_ABI && api->size >= sizeof(psc_api_t))
        return 0;
    PyErr_Format(
        PyExc_ImportError,
        "pscompy.api.c._binding was built for version %u of psc_api_t (%zu "
        "bytes), the core has version %u (%u bytes); rebuild: "
        "pip install -e .",
        PSC_API_ABI, sizeof(psc_api_t), api->abi, api->size);
    return -1;
}

static PyObject *module_bind(PyObject *module, PyObject *args)
{
    psb_state_t *state = module_state(module);
    unsigned long long address;
    PyTypeObject *status_type;
    const psc_api_t *api;

    if (!PyArg_ParseTuple(args, "KO!:bind", &address, &PyType_Type,
                          &status_type))
        return NULL;
    if (!PyType_IsSubtype(status_type, &PyTuple_Type) || !address)
        return PyErr_Format(PyExc_TypeError,
                            "bind() takes the address of a psc_api_t and a "
                            "named tuple's type");
    api = (const psc_api_t *)(uintptr_t)address;
    if (module_check_abi(api) < 0 || module_publish(api) < 0)
        return NULL;
    state->api = api;
    Py_INCREF(status_type);
    Py_XSETREF(state->status_type, status_type);
    Py_RETURN_NONE;
}

/* ---- waiting for several ---- */

typedef PyObject *(*module_waiter_t)(psb_state_t *state, PyObject *requests,
                                     int64_t deadline, PyObject *timeout);

static PyObject *module_wait(PyObject *module, module_waiter_t wait,
                             const psb_signature_t *signature,
                             PyObject *const *args, Py_ssize_t n_args,
                             PyObject *kwnames)
{
    psb_state_t *state = module_state(module);
    int64_t deadline = PSC_FOREVER;
    PyObject *given[2];

    if (n_args > 0 && PyObject_TypeCheck(args[0], state->request_type))
        return psb_wait_refuse(args[0]);
    if (psb_args_parse(signature, args, n_args, kwnames, given) < 0 ||
        psb_arg_deadline(given[1], &deadline) < 0)
        return NULL;
    return wait(state, given[0], deadline, given[1]);
}

static PyObject *module_wait_all(PyObject *module, PyObject *const *args,
                                 Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "wait_all", 1, 2, {"requests", "timeout"}};

    return module_wait(module, psb_wait_all, &signature, args, n_args, kwnames);
}

static PyObject *module_wait_any(PyObject *module, PyObject *const *args,
                                 Py_ssize_t n_args, PyObject *kwnames)
{
    static const psb_signature_t signature = {
        "wait_any", 1, 2, {"requests", "timeout"}};

    return module_wait(module, psb_wait_any, &signature, args, n_args, kwnames);
}

/* ---- arrays in pickles ---- */

static PyObject *module_reducer(PyObject *module, PyObject *args)
{
    PyObject *restore;
    Py_ssize_t copied;

    (void)module;
    return PyArg_ParseTuple(args, "On:reducer", &restore, &copied)
               ? psb_array_reducer(restore, copied)
               : NULL;
}

static PyObject *module_restore(PyObject *module, PyObject *const *args,
                                Py_ssize_t n_args)
{
    (void)module;
    if (n_args != 3 && n_args != 4)
        return PyErr_Format(PyExc_TypeError,
                            "restore() takes numbers, type, shape and order");
    return psb_array_restore(args[0], args[1], args[2],
                             n_args > 3 ? args[3] : NULL);
}

static int module_add_type(PyObject *module, PyType_Spec *spec,
                           PyTypeObject *base, PyTypeObject **type_p)
{
    *type_p = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec,
                                                       (PyObject *)base);
    if (!*type_p)
        return -1;
    return PyModule_AddType(module, *type_p);
}

/* Adds the types and functions by which Python code tells whether it may wait;
 * nothing in C needs the types. */
static int module_add_guard(PyObject *module)
{
    PyType_Spec *specs[] = {&psb_lock_spec, &psb_no_waiting_spec};

    for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
        PyTypeObject *type;

        if (module_add_type(module, specs[i], NULL, &type) < 0)
            return -1;
        Py_DECREF(type);
    }
    return PyModule_AddFunctions(module, psb_guard_functions);
}

static int module_exec(PyObject *module)
{
    psb_state_t *state = module_state(module);
    const struct {
        PyType_Spec *spec;
        PyTypeObject **type_p;
    } types[] = {
        {&psb_worker_spec, &state->worker_type},
        {&psb_connection_spec, &state->connection_type},
        {&psb_communicator_spec, &state->communicator_type},
        {&psb_request_spec, &state->request_type},
        {&psb_message_spec, &state->message_type},
        {&psb_memory_spec, &state->memory_type},
        {&psb_room_spec, &state->room_type},
        {&psb_sleeper_spec, &state->sleeper_type},
        {&psb_ended_spec, &state->ended_type},
    };

    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
                        "pscompy cannot be used in a sub-interpreter: the "
                        "process has one table of its core, which is bound to "
                        "the main interpreter; use threads or processes");
        return -1;
    }
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (module_add_type(module, types[i].spec, NULL, types[i].type_p) < 0)
            return -1;
    }
    if (module_add_type(module, &psb_persistent_spec, state->request_type,
                        &state->persistent_type) < 0 ||
        module_add_guard(module) < 0 ||
        PyModule_AddIntConstant(module, "ANY_TAG", PSC_ANY_TAG) < 0 ||
        PyModule_AddIntConstant(module, "OFFER_MAX", PSC_OFFER_PARTS_MAX) < 0 ||
        PyModule_AddIntConstant(module, "ANY_SOURCE", PSB_ANY_SOURCE) < 0 ||
        PyModule_AddIntConstant(module, "TAG_MAX", PSC_TAG_MAX) < 0)
        return -1;
    return 0;
}

static int module_traverse(PyObject *module, visitproc visit, void *arg)
{
    psb_state_t *state = module_state(module);

    for (size_t i = 0; i < PSB_STATE_OBJECTS; i++)
        Py_VISIT(state->objects[i]);
    return 0;
}

static int module_clear(PyObject *module)
{
    psb_state_t *state = module_state(module);

    for (size_t i = 0; i < PSB_STATE_OBJECTS; i++)
        Py_CLEAR(state->objects[i]);
    return 0;
}

static PyMethodDef module_methods[] = {
    {"bind", module_bind, METH_VARARGS,
     "bind($module, api_address, status_type, /)\n--\n\n"
     "Bind the extension to the core's psc_api_t after a check of its\n"
     "version, and publish the table as the capsule pscompy.core._api."},
    {"wait_all", PSB_FUNCTION(module_wait_all), PSB_FAST,
     "wait_all($module, requests, timeout=None)\n--\n\n"
     "The results of all requests, as a list. If some fail, the exception of\n"
     "the first of them is raised once all have completed. After a Timeout\n"
     "(seconds) the requests that have not completed are still in flight."},
    {"wait_any", PSB_FUNCTION(module_wait_any), PSB_FAST,
     "wait_any($module, requests, timeout=None)\n--\n\n"
     "(index, result) of a request that has completed; of several, the first\n"
     "in the list."},
    {"reducer", module_reducer, METH_VARARGS,
     "reducer($module, restore, copied, /)\n--\n\n"
     "A function for pickle's dispatch table that reduces arrays to a call of\n"
     "`restore`, if they hold plain numbers without gaps. Arrays of fewer\n"
     "than `copied` bytes are copied; others become a PickleBuffer."},
    {"restore", PSB_FUNCTION(module_restore), METH_FASTCALL,
     "restore($module, numbers, kind, shape, order='C', /)\n--\n\n"
     "The array over the memory of `numbers`, from the arguments that\n"
     "the reducer returned. TypeError or ValueError if they describe none."},
    {NULL, NULL, 0, NULL}};

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
#ifdef Py_mod_multiple_interpreters
    /* sub-interpreters are not supported, because the core's capsule and the
     * core's threads belong to one interpreter */
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    /* docs/threads.md has the state that only the GIL guards */
    {Py_mod_gil, Py_MOD_GIL_USED},
#endif
    {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "pscompy.api.c._binding",
    .m_doc = "The operations for messages, as methods over psc_api_t.",
    .m_size = sizeof(psb_state_t),
    .m_methods = module_methods,
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__binding(void)
{
    return PyModuleDef_Init(&module_def);
}
