/* Limits of what the calling thread may do at the moment: the types Lock and
 * NoWaiting, and the functions of the module that go with them.
 *
 * The collector runs finalizers, and a signal runs its handler, between any two
 * steps of a thread, also while the thread holds a lock of pscompy's Python
 * code. Such code must not wait: for another lock, because the thread that has
 * it may wait for this one's, or for a message, because the control thread may
 * need the lock. A Lock therefore counts, per thread, how many of them the
 * thread holds. While that is not 0, calls that would take another lock are
 * put off until the thread has released all of its own (when_outside), and
 * calls that would wait raise RuntimeError. */
#pragma once

#include "state.h"

extern PyType_Spec psb_lock_spec, psb_no_waiting_spec;
/* functions of the module, ended by an empty entry */
extern PyMethodDef psb_guard_functions[];

/* Returns whether the calling thread may wait for a message: it holds no Lock,
 * and is not in a NoWaiting. */
bool psb_guard_may_wait(void);
/* Raises RuntimeError; returns NULL. */
PyObject *psb_guard_refuse(void);
/* Calls function(argument), or puts the call off until the calling thread holds
 * no Lock. An exception goes to sys.unraisablehook, except Ctrl-C, which is
 * raised after the call. */
void psb_guard_call(PyObject *function, PyObject *argument);

/* ---- Ctrl-C ---- */

/* Ctrl-C while a call-back is about to run: Python would raise it at the first
 * line of the call-back, which has nobody to tell, so that the message would be
 * lost. It is raised after the call-back, in the call that has run it. */

/* Takes back a Ctrl-C that no handler has seen yet. Returns whether there was
 * one. Call with the GIL held. */
static inline bool psb_interrupt_take(void)
{
    return PyOS_InterruptOccurred();
}

/* Lets Python see a Ctrl-C that was taken. */
static inline void psb_interrupt_return(bool taken)
{
    if (taken)
        PyErr_SetInterrupt();
}
