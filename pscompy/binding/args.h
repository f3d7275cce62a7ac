/* Arguments of methods, parsed without allocation. */
#pragma once

#include "state.h"

#define PSB_ARGS_MAX 7

typedef struct psb_signature {
    const char *function;
    int required;
    int n;
    const char *names[PSB_ARGS_MAX];
} psb_signature_t;

/* Fills given[0 ... n-1] with borrowed references, NULL for an argument that
 * was not given. */
int psb_args_parse(const psb_signature_t *signature, PyObject *const *args,
                   Py_ssize_t n_args, PyObject *kwnames, PyObject **given);
/* These functions do not change the value if `object` is NULL (not given). */
int psb_arg_tag(PyObject *object, bool any, int32_t *tag_p);
int psb_arg_u64(PyObject *object, const char *name, uint64_t max,
                uint64_t *value_p);
/* Converts a timeout in Python (None, or seconds) to a deadline. */
int psb_arg_deadline(PyObject *object, int64_t *deadline_p);
int64_t psb_now(void); /* CLOCK_MONOTONIC, ns */
