/* Fills a psb_call_t from a method's arguments. The methods for messages differ
 * only in which roles their arguments have, and each has a table entry
 * (psb_verb_t) that gives these roles. */
#include "call.h"

void psb_call_receive(psb_call_t *call, PyObject *buf)
{
    call->buf = buf == Py_None ? NULL : buf;
    call->kind = call->buf ? PSB_RECV_INTO : PSB_RECV_NEW;
}

static bool verb_sends(const psb_verb_t *verb)
{
    return verb->kind == PSB_SEND;
}

static int verb_take_flag(PyObject *object, bool *flag_p)
{
    int flag = object ? PyObject_IsTrue(object) : 0;

    *flag_p = flag > 0;
    return flag < 0 ? -1 : 0;
}

static int verb_take(const psb_verb_t *verb, char role, PyObject *object,
                     psb_call_t *call, PyObject **peer_p)
{
    switch (role) {
    case 'b':
        call->buf = verb_sends(verb) || object != Py_None ? object : NULL;
        return 0;
    case 'D':
    case 'S':
        *peer_p = object;
        return 0;
    case 'l':
        return verb_take_flag(object, &call->lend);
    case 't':
        return psb_arg_tag(object, !verb_sends(verb), &call->tag);
    case 'y':
        call->dtype = object == Py_None ? NULL : object;
        return 0;
    case 's':
        call->shape = object == Py_None ? NULL : object;
        return 0;
    default:
        call->timeout = object;
        return psb_arg_deadline(object, &call->deadline);
    }
}

/* Parses the arguments of a method if some are given by name, or if they are
 * too few or too many. */
static int verb_parse_names(const psb_verb_t *verb, PyObject *const *args,
                            Py_ssize_t n_args, PyObject *kwnames,
                            PyObject **given)
{
    static const char *const names[] = {
        ['b'] = "buf",     ['D'] = "dest", ['S'] = "source", ['t'] = "tag",
        ['d'] = "timeout", ['l'] = "lend", ['y'] = "dtype",  ['s'] = "shape"};
    psb_signature_t signature;

    signature.function = verb->name;
    signature.required = verb->required;
    signature.n = verb->n;
    for (int i = 0; i < verb->n; i++)
        signature.names[i] = names[(unsigned char)verb->roles[i]];
    return psb_args_parse(&signature, args, n_args, kwnames, given);
}

/* Initializes the call field by field, because compilers clear a structure of
 * this size by a loop that costs more than the rest of the function. Connection
 * and Communicator fill in the other fields that messages use. */
static void verb_begin(const psb_verb_t *verb, psb_call_t *call)
{
    call->kind = verb->kind;
    call->post = verb->post;
    call->lend = false;
    call->type = NULL;
    call->connection = NULL;
    call->tag = verb_sends(verb) ? 0 : PSC_ANY_TAG;
    call->buf = NULL;
    call->deadline = PSC_FOREVER;
    call->timeout = NULL;
    call->keep = NULL;
    call->dtype = call->shape = NULL;
}

int psb_verb_parse(const psb_verb_t *verb, PyObject *const *args,
                   Py_ssize_t n_args, PyObject *kwnames, psb_call_t *call,
                   PyObject **peer_p)
{
    PyObject *given[PSB_ARGS_MAX];

    verb_begin(verb, call);
    *peer_p = NULL;
    if (PSB_UNLIKELY(kwnames || n_args < verb->required || n_args > verb->n)) {
        if (verb_parse_names(verb, args, n_args, kwnames, given) < 0)
            return -1;
        args = given;
        n_args = verb->n;
    }
    for (Py_ssize_t i = 0; i < n_args; i++) {
        if (verb_take(verb, verb->roles[i], args[i], call, peer_p) < 0)
            return -1;
    }
    if (call->kind == PSB_RECV_INTO && !call->buf)
        call->kind = PSB_RECV_NEW;
    return 0;
}
