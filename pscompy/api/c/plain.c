/* Collectives of plain arrays: contiguous numpy arrays of numbers, without
 * counts, and with an operation by name. They need nothing of what tasks.py
 * prepares in Python, and are what programs call most. Whatever is unusual or
 * wrong is left to tasks.py, which then says what is wrong. */
#include "connection.h"
#include "memory.h"

/* How the lengths of operand and result belong together. */
typedef enum plain_form {
    SIGNAL, /* there are no arrays */
    ONE, /* an array that is the same on all ranks */
    SAME, /* operand and result are as long */
    JOINED, /* the result has the operands of all ranks */
    CUT, /* the operand has a part of axis 0 for each rank */
    EXCHANGED /* as CUT, and the result has a part of each rank */
} plain_form_t;

static const uint8_t forms[PSC_COLL_COUNT] = {
    [PSC_COLL_BARRIER] = SIGNAL,     [PSC_COLL_BCAST] = ONE,
    [PSC_COLL_REDUCE] = SAME,        [PSC_COLL_ALLREDUCE] = SAME,
    [PSC_COLL_SCAN] = SAME,          [PSC_COLL_EXSCAN] = SAME,
    [PSC_COLL_REDUCE_SCATTER] = CUT, [PSC_COLL_GATHER] = JOINED,
    [PSC_COLL_SCATTER] = CUT,        [PSC_COLL_ALLGATHER] = JOINED,
    [PSC_COLL_ALLTOALL] = EXCHANGED,
};

/* A collective of this rank. */
typedef struct plain {
    psc_coll_t coll;
    plain_form_t form;
    size_t ranks;
    bool at_root;
    bool sends, receives; /* whether there is an operand, and a result */
    psb_plain_t send, recv;
} plain_t;

static bool plain_reduces(const plain_t *it)
{
    return it->coll >= PSC_COLL_REDUCE && it->coll <= PSC_COLL_REDUCE_SCATTER;
}

/* ---- arrays ---- */

/* Returns true if this rank gets a result. Rank 0 of an exscan, whose `root` is
 * 0, gets none. */
static bool plain_gets(const plain_t *it)
{
    if (it->coll == PSC_COLL_REDUCE || it->coll == PSC_COLL_GATHER)
        return it->at_root;
    return it->form >= ONE && !(it->coll == PSC_COLL_EXSCAN && it->at_root);
}

/* Describes the arrays. Returns false if one is not plain. A rank that gets no
 * result may give a buffer for one, except in a gather, which ignores it. */
static bool plain_take(plain_t *it, PyObject *send, PyObject *recv)
{
    bool away = !it->at_root;

    it->sends = it->form > ONE && !(it->coll == PSC_COLL_SCATTER && away);
    it->receives = plain_gets(it) || (it->form == SAME && recv != Py_None);
    if (it->sends && !psb_array_plain(&it->send, send, false))
        return false;
    return !it->receives ||
           psb_array_plain(&it->recv, recv, it->form != ONE || away);
}

/* Returns true if the ranks can share axis 0 of the operand. */
static bool plain_can_cut(const plain_t *it)
{
    return it->form < CUT || !it->sends ||
           (it->send.items >= 0 && (size_t)it->send.items % it->ranks == 0);
}

static bool plain_lengths_fit(const plain_t *it)
{
    size_t sent = it->send.memory.len, got = it->recv.memory.len;

    if (!it->sends || !it->receives)
        return true;
    if (it->form == JOINED)
        return got == sent * it->ranks;
    return sent == (it->form == CUT ? got * it->ranks : got);
}

/* Returns true if operand and result do not overlap, or are the same memory and
 * may be. */
static bool plain_apart(const plain_t *it)
{
    uintptr_t send = (uintptr_t)it->send.memory.base;
    uintptr_t recv = (uintptr_t)it->recv.memory.base;

    if (!it->sends || !it->receives ||
        (send == recv && (it->form == SAME || it->form == EXCHANGED)))
        return true;
    return send + it->send.memory.len <= recv ||
           recv + it->recv.memory.len <= send;
}

/* ---- what the core is to do ---- */

/* Sets sizes and counts as tasks.py does: the ranks cut long operands at the
 * same places. */
static void plain_measure(const plain_t *it, psc_coll_args_t *args)
{
    size_t part = it->send.memory.len;

    if (it->form == ONE || (it->form == CUT && it->receives))
        part = it->recv.memory.len;
    else if (it->form == EXCHANGED)
        part /= it->ranks;
    args->size = part ? part : 1;
    args->count = part > 0;
    if (it->form == ONE || plain_reduces(it)) {
        args->size = it->form == ONE ? 1 : it->send.size;
        args->count = part / args->size;
    }
}

/* Returns false if the operation is not by name, or the type is unknown. */
static bool plain_reduce_by(const plain_t *it, PyObject *op,
                            psc_coll_args_t *args)
{
    if (!plain_reduces(it))
        return true;
    if (it->receives && it->recv.type != it->send.type)
        return false;
    args->commutes = true;
    args->type = (psc_type_t)it->send.type;
    return it->send.type >= 0 && psb_op_named(op, &args->op);
}

static bool plain_prepare(plain_t *it, PyObject *const *given,
                          psc_coll_args_t *args)
{
    PyObject *send = given[1], *recv = given[2], *op = given[3];

    if (!plain_take(it, send, recv) || !plain_can_cut(it) ||
        !plain_lengths_fit(it) || !plain_apart(it) ||
        !plain_reduce_by(it, op, args))
        return false;
    plain_measure(it, args);
    args->send = it->sends ? it->send.memory.base : NULL;
    args->recv = it->receives ? it->recv.memory.base : NULL;
    return true;
}

/* Runs the collective. Its op keeps `memory`, because it may outlive the call
 * if a signal handler raises. `coll` is what the program has called. */
static PyObject *plain_run(psb_communicator_t *self, psc_coll_t coll,
                           psc_coll_args_t *args, PyObject *memory)
{
    psb_call_t call;

    if (!memory)
        return NULL;
    psb_call_begin(&call, PSB_COLLECTIVE);
    call.op.worker = self->worker;
    call.op.origin = (PyObject *)self;
    call.op.context = self->context;
    call.op.tag = (int32_t)coll;
    call.op.memory = memory;
    call.communicator = self;
    call.collective = args;
    return psb_call_run(&call);
}

static PyObject *plain_arrays(psb_communicator_t *self, plain_t *it,
                              PyObject *const *given, psc_coll_args_t *args)
{
    if (!plain_prepare(it, given, args))
        Py_RETURN_NOTIMPLEMENTED;
    return plain_run(
        self, it->coll, args,
        PyTuple_Pack(2, given[1], plain_gets(it) ? given[2] : Py_None));
}

/* An allreduce of a number: an allgather of the numbers of all ranks. */
static PyObject *plain_number(psb_communicator_t *self,
                              const psb_number_t *number, PyObject *name,
                              psc_op_t op)
{
    Py_ssize_t size = (Py_ssize_t)sizeof *number;
    PyObject *send = PyBytes_FromStringAndSize((const char *)number, size);
    PyObject *recv = PyBytes_FromStringAndSize(NULL, size * self->size);
    psc_coll_args_t args = {.coll = PSC_COLL_ALLGATHER,
                            .instead_of = 1 + PSC_COLL_ALLREDUCE,
                            .size = sizeof *number,
                            .count = 1,
                            .op = op};
    PyObject *memory = send && recv ? PyTuple_Pack(3, send, recv, name) : NULL;

    if (memory) {
        args.send = PyBytes_AS_STRING(send);
        args.recv = PyBytes_AS_STRING(recv);
    }
    Py_XDECREF(send);
    Py_XDECREF(recv);
    return plain_run(self, PSC_COLL_ALLREDUCE, &args, memory);
}

/* Returns true if _plain() does this collective. */
static bool plain_does(const psb_communicator_t *self, long coll)
{
    return self->worker && self->group && coll >= 0 && coll < PSC_COLL_COUNT &&
           self->plain & 1u << coll;
}

PyObject *psb_collective_plain(psb_communicator_t *self, PyObject *const *given,
                               Py_ssize_t n)
{
    psc_coll_args_t args = {0};
    plain_t it = {.ranks = (size_t)self->size};
    psb_number_t number;
    long coll, root;
    psc_op_t op;

    if (n != 6)
        return PyErr_Format(PyExc_TypeError, "_plain() takes 6 arguments");
    coll = PyLong_AsLong(given[0]);
    root = PyLong_Check(given[4]) ? PyLong_AsLong(given[4]) : -1;
    if (PyErr_Occurred()) {
        PyErr_Clear();
        Py_RETURN_NOTIMPLEMENTED;
    }
    if (coll == PSC_COLL_ALLREDUCE && given[2] == Py_None &&
        given[5] == Py_None && plain_does(self, PSC_COLL_ALLGATHER) &&
        psb_number_pack(&number, given[1]) && psb_op_named(given[3], &op))
        return plain_number(self, &number, given[3], op);
    if (given[5] != Py_None || root < 0 || root >= self->size ||
        !plain_does(self, coll))
        Py_RETURN_NOTIMPLEMENTED;
    it.coll = args.coll = (psc_coll_t)coll;
    it.form = (plain_form_t)forms[coll];
    it.at_root = self->rank == root;
    args.root = (int)root;
    return plain_arrays(self, &it, given, &args);
}
