/* The arguments of the messages' methods, which are alike: a table entry per
 * method says which argument plays which role. */
#include "binding.h"

void hot_verb_receive(hot_call_t *call, PyObject *buf)
{
    call->buf = buf == Py_None ? NULL : buf;
    call->kind = call->buf ? HOT_RECV_INTO : HOT_RECV_NEW;
}

static bool verb_sends(const hot_verb_t *verb)
{
    return verb->kind == HOT_SEND;
}

static int verb_take_flag(PyObject *object, bool *flag_p)
{
    int flag = object ? PyObject_IsTrue(object) : 0;

    *flag_p = flag > 0;
    return flag < 0 ? -1 : 0;
}

static int verb_take(const hot_verb_t *verb, char role, PyObject *object,
                     hot_call_t *call, PyObject **peer_p)
{
    switch (role) {
    case 'b':
        call->buf = verb_sends(verb) || object != Py_None ? object : NULL;
        return 0;
    case 'p':
        *peer_p = object;
        return 0;
    case 'l':
        return verb_take_flag(object, &call->lend);
    case 't':
        return hot_arg_tag(object, !verb_sends(verb), &call->tag);
    default:
        return hot_arg_deadline(object, &call->deadline);
    }
}

/* Field by field: for a structure of this size compilers emit a loop that
 * costs more than all the rest. What is missing the address fills in. */
static void verb_begin(const hot_verb_t *verb, hot_call_t *call)
{
    call->kind = verb->kind;
    call->post = verb->post;
    call->lend = false;
    call->type = NULL;
    call->connection = NULL;
    call->tag = verb_sends(verb) ? 0 : PSC_ANY_TAG;
    call->buf = NULL;
    call->deadline = PSC_FOREVER;
    call->keep = NULL;
}

int hot_verb_parse(const hot_verb_t *verb, PyObject *const *args,
                   Py_ssize_t n_args, PyObject *kwnames, hot_call_t *call,
                   PyObject **peer_p)
{
    PyObject *given[HOT_ARGS_MAX];

    verb_begin(verb, call);
    *peer_p = NULL;
    if (HOT_UNLIKELY(kwnames || n_args < verb->signature.required ||
                     n_args > verb->signature.n)) {
        if (hot_args_parse(&verb->signature, args, n_args, kwnames, given) < 0)
            return -1;
        args = given;
        n_args = verb->signature.n;
    }
    for (Py_ssize_t i = 0; i < n_args; i++) {
        if (verb_take(verb, verb->roles[i], args[i], call, peer_p) < 0)
            return -1;
    }
    if (call->kind == HOT_RECV_INTO && !call->buf)
        call->kind = HOT_RECV_NEW;
    return 0;
}
