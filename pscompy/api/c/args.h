/* Arguments of methods, parsed without allocation. */
#pragma once

#include "state.h"
#include "pscompy/transport/kit/clock.h"

#define PSB_ARGS_MAX 7

typedef struct psb_signature {
    const char *function;
    int required;
    int n;
    const char *names[PSB_ARGS_MAX];
} psb_signature_t;

/* Parses a method's arguments. given[i] becomes a borrowed reference to the
 * argument with name i of the signature, or NULL if it was not given. */
int psb_args_parse(const psb_signature_t *signature, PyObject *const *args,
                   Py_ssize_t n_args, PyObject *kwnames, PyObject **given);
/* The functions psb_arg_*() do not change the value if `object` is NULL (an
 * argument that was not given). */
int psb_arg_tag(PyObject *object, bool any, int32_t *tag_p);
int psb_arg_u64(PyObject *object, const char *name, uint64_t max,
                uint64_t *value_p);
/* Raises an exception whose text shows `object`, in place of the "%%U" in the
 * format, which is otherwise one of PyErr_Format. An object that has no repr,
 * such as a number of too many digits, is shown as its type. The exception
 * replaces one that is set. Returns -1. */
int psb_refuse(PyObject *type, PyObject *object, const char *format, ...);
/* Converts a timeout of Python (None, or seconds) to a deadline (as of
 * psc_clock_now). */
int psb_arg_deadline(PyObject *object, int64_t *deadline_p);
