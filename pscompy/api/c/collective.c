/* The method _collective() of Communicator: collective operations, whose arrays
 * and results are made in Python (pscompy/world/tasks.py). Also what the core
 * says of collectives, for errors and explanations. */
#include "connection.h"
#include "request.h"

/* how to do the operation: until it has ended, as a Request, or as a
 * PersistentRequest; the same in world/collectives.py */
enum { HOW_RUN, HOW_POST, HOW_INIT };

/* Returns the memory of an object with a contiguous buffer, which must outlive
 * the operation. */
static int collective_address(PyObject *object, void **address_p)
{
    Py_buffer view;

    *address_p = NULL;
    if (object == Py_None)
        return 0;
    if (PyObject_GetBuffer(object, &view, PyBUF_SIMPLE) < 0)
        return -1;
    *address_p = view.buf;
    PyBuffer_Release(&view);
    return 0;
}

static PyObject *collective_run(psb_communicator_t *self, psb_call_t *call,
                                Py_ssize_t rank, const int32_t *members,
                                const int32_t *modules, bool check, bool init)
{
    if (psb_worker_enter(self->worker, (PyObject *)self) < 0 ||
        psb_group_begin(self, rank, members, modules, check) < 0) {
        psb_op_clear(&call->op);
        return NULL;
    }
    if (!call->collective->algorithm)
        self->plain |= 1u << call->collective->coll;
    return init ? psb_collective_init(call) : psb_call_run(call);
}

PyObject *psb_collective(psb_communicator_t *self, PyObject *const *args,
                         Py_ssize_t n_args, PyObject *kwnames)
{
    PyObject *packed = NULL, *members, *modules, *send, *recv, *counts,
             *recv_counts, *combine, *finish, *read, *timeout;
    psc_coll_args_t collective = {0};
    void *members_at, *modules_at, *send_at, *counts_at, *recv_counts_at;
    unsigned long long count, size;
    int check, called, coll, op, type, commutes, root, how;
    Py_ssize_t rank, i;
    psb_call_t call;

    if (kwnames || !self->worker)
        return PyErr_Format(PyExc_TypeError,
                            "_collective() takes no names, after _bind()");
    packed = PyTuple_New(n_args);
    if (!packed)
        return NULL;
    for (i = 0; i < n_args; i++)
        PyTuple_SET_ITEM(packed, i, Py_NewRef(args[i]));
    psb_call_begin(&call, PSB_COLLECTIVE);
    if (!PyArg_ParseTuple(
            packed, "iinOOpOOKOOKiiOpizOOiO:_collective", &coll, &called, &rank,
            &members, &modules, &check, &send, &recv, &count, &counts,
            &recv_counts, &size, &op, &type, &combine, &commutes, &root,
            &collective.algorithm, &finish, &read, &how, &timeout) ||
        collective_address(members, &members_at) < 0 ||
        collective_address(modules, &modules_at) < 0 ||
        collective_address(send, &send_at) < 0 ||
        collective_address(recv, &collective.recv) < 0 ||
        collective_address(counts, &counts_at) < 0 ||
        collective_address(recv_counts, &recv_counts_at) < 0 ||
        psb_arg_deadline(timeout, &call.deadline) < 0) {
        Py_DECREF(packed);
        return NULL;
    }
    call.op.worker = self->worker;
    call.op.origin = (PyObject *)self;
    call.op.context = self->context;
    call.op.tag = called;
    call.op.memory = Py_BuildValue("OOKO", finish, combine, size, read);
    call.post = how == HOW_POST;
    call.timeout = timeout;
    call.communicator = self;
    call.collective = &collective;
    collective.coll = (psc_coll_t)coll;
    collective.instead_of = called == coll ? 0 : 1 + (uint32_t)called;
    collective.send = send_at;
    collective.counts = counts_at;
    collective.recv_counts = recv_counts_at;
    collective.count = count;
    collective.size = size;
    collective.op = (psc_op_t)op;
    collective.type = (psc_type_t)type;
    collective.combine = combine == Py_None ? NULL : psb_group_combine;
    collective.arg = call.op.memory;
    collective.commutes = commutes;
    collective.root = root;
    Py_DECREF(packed); /* the caller holds its items */
    return call.op.memory ? collective_run(self, &call, rank, members_at,
                                           modules_at, check, how == HOW_INIT)
                          : NULL;
}

PyObject *psb_collective_explain(psb_communicator_t *self,
                                 PyObject *const *args, Py_ssize_t n_args)
{
    psc_coll_args_t collective = {.size = 1};
    void *members, *modules;
    char text[512];

    if (!self->worker || n_args != 7)
        return PyErr_Format(PyExc_TypeError, "_explain() takes 7 arguments");
    collective.coll = (psc_coll_t)PyLong_AsLong(args[0]);
    collective.count = PyLong_AsUnsignedLongLong(args[5]);
    if (args[6] != Py_None)
        collective.algorithm = PyUnicode_AsUTF8(args[6]);
    if (PyErr_Occurred() || collective_address(args[2], &members) < 0 ||
        collective_address(args[3], &modules) < 0 ||
        psb_worker_enter(self->worker, (PyObject *)self) < 0 ||
        psb_group_begin(self, PyLong_AsSsize_t(args[1]), members, modules,
                        args[4] == Py_True) < 0)
        return NULL;
    if (self->worker->api->coll_explain(self->group, &collective, text,
                                        sizeof text) == PSC_OK)
        return PyUnicode_FromString(text);
    return PyErr_Format(PyExc_ValueError, "there is no such algorithm");
}

/* Returns what rank 0 and another rank have called, in the order of
 * psc_called_t. */
PyObject *psb_collective_differs(psb_communicator_t *self, PyObject *unused)
{
    psc_called_t it[2];

    (void)unused;
    if (!self->worker || !self->group)
        return PyErr_Format(PyExc_TypeError, "no collective has begun");
    self->worker->api->coll_differs(self->group, it);
    return Py_BuildValue(
        "((iiiisKK)(iiiisKK))", it[0].coll, it[0].root, it[0].op, it[0].type,
        it[0].algorithm, (unsigned long long)it[0].nbytes,
        (unsigned long long)it[0].counts, it[1].coll, it[1].root, it[1].op,
        it[1].type, it[1].algorithm, (unsigned long long)it[1].nbytes,
        (unsigned long long)it[1].counts);
}
